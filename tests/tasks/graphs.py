"""What the tests of `graph` share: a small world, and how a task and its generator are made."""

import json

import torch

import mapformers as mf

WORLDS = ["dihedral", "free-product", "subway", "tree"]
FLAT = {
    "name": "flat",
    "nodes": ["hall", "kitchen", "bath"],
    "actions": ["in", "out"],
    "edges": [["hall", "in", "kitchen"], ["kitchen", "out", "hall"], ["bath", "out", "hall"], ["hall", "out", "bath"]],
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def build(world=FLAT, **options):
    return mf.build_task("graph", world=world if isinstance(world, str) else json.dumps(world), **options)


def changed(**parts):
    return {**FLAT, **parts}
