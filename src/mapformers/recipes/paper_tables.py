"""What the tables of the paper share: headings of splits, sizes of models, and how printed figures are laid out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mapformers.recipes.recipe import Paper

IID, DENSE, SPARSE, SPARSE_512 = "iid", "ood-dense", "ood-sparse", "ood-sparse-512"
THREE = {IID: "IID", DENSE: "OOD-dense", SPARSE: "OOD-sparse"}
NAVIGATION = {**THREE, SPARSE_512: "OOD-sparse-512"}

DEEP = {"n_layers": 4, "n_heads": 2, "d_model": 128, "head_dim": 64}  # "up to 4 layers and two heads" of 64 (B.3)
TWO = {"n_layers": 2, "n_heads": 2, "d_model": 128, "head_dim": 64}  # two layers, two heads of 64
LOG_N = {"length_scaling": "log"}

# What navigation had before its grid got walls and its maps slower velocities: for results that were measured then.
TORUS = {"dims": 2, "edges": "torus"}
TURNS = {"omega_max": 2 * math.pi}

Printed = Mapping[str, Sequence[Paper]]


def paper_figures(printed: Printed, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str, str], Paper]:
    """Row -> figures in the order of ``places`` (world, split), as a recipe has them."""
    return {(row, *place): figure for row, figures in printed.items() for place, figure in zip(places, figures)}


def figures(*values: float, spread: float = 0.0) -> tuple[Paper, ...]:
    """Printed means that share a spread."""
    return tuple((value, spread) for value in values)


def rate(lr: float) -> dict[str, Any]:
    """A learning rate, chosen by `rates-…` on a seed that is not reported (docs/fidelity.md)."""
    return {"lr": lr}
