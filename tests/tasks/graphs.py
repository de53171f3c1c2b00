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


def without_the_unreached(world):
    """The world with only those nodes that a walk from its start can reach."""
    reached = [world.get("start", world["nodes"][0])]
    for node in reached:
        reached += {head for tail, _, head in world["edges"] if tail == node} - set(reached)
    kept = {
        "nodes": [n for n in world["nodes"] if n in reached],
        "edges": [e for e in world["edges"] if e[0] in reached],
    }
    if "observations" in world:
        kept["observations"] = {n: symbol for n, symbol in world["observations"].items() if n in reached}
    return {**world, "start": reached[0], **kept}
