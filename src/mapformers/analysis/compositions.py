"""Actions as matrices: which of them undo each other, which commute, and what the graph says (paper, D.2 and D.3)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mapformers import lie
from mapformers.analysis.finding import Finding, Missing, Outcome, Subject, plain
from mapformers.tasks.family_tree import family_of

FAMILIES = 12  # over which the truth of relations is counted

Step = Callable[[int, int], int]  # (place, action) -> place, −1 where there is no way


def compositions(subject: Subject) -> Outcome:
    """‖W_b W_a − 1‖ of every pair of actions and their commutators, beside how often the world says so."""
    title = "Learned action matrices: which undo each other, and which commute"
    if subject.layer is None:
        return Missing("compositions", title, subject.no_movement)
    matrices = action_matrices(subject)
    size = matrices.shape[-1] ** 0.5
    one = torch.eye(matrices.shape[-1], dtype=torch.float64)
    then = torch.einsum("bij,ajk->abik", matrices, matrices)  # a first, then b: W_b W_a
    from_identity = (then - one).flatten(2).norm(dim=2) / size
    commutator = (then - then.transpose(0, 1)).flatten(2).norm(dim=2) / size
    returns, commutes = world_truth(subject)
    names = [subject.task.token_names[action] for action in subject.actions]
    numbers = {
        "layer": subject.layer,
        "actions": names,
        "distance_from_identity": plain(from_identity, 4),
        "commutator": plain(commutator, 4),
        "share_that_returns": _listed(returns),
        "share_that_commutes": _listed(commutes),
        "inverse_correlation": _correlation(from_identity, returns),
        "commutator_correlation": _correlation(commutator, commutes),
    }
    reading = (
        "Every cell is an action, then another. Left: how far their product is from doing nothing (0: they undo each "
        "other). Right: how far the two orders are apart (0: they commute). A figure in a cell is the share of places "
        "of the world where the walk does return, or where both orders lead to one place."
    )
    data = {
        "names": names,
        "from_identity": from_identity.numpy(),
        "commutator": commutator.numpy(),
        "returns": returns,
        "commutes": commutes,
        "matrices": matrices.numpy(),
    }
    return Finding("compositions", title, reading, numbers, data)


def action_matrices(subject: Subject) -> Tensor:
    """What each action, read alone, does to a position: (actions, m, m), blocks of all heads along the diagonal."""
    assert subject.layer is not None
    notes = subject.alone[subject.layer]
    if "rotation" in notes:
        blocks = notes["rotation"][subject.actions, 0].flatten(1, 2).double()  # (A, H·n_b, n, n)
        return torch.stack([torch.block_diag(*of_one) for of_one in blocks])
    turned = lie.rotation_matrix(notes["theta"][subject.actions, :, 0].double())  # (A, H, D, D)
    side_by_side = (
        torch.arange(turned.shape[-1]).view(2, -1).T.flatten()
    )  # the two units of a block, which lie D/2 apart
    turned = turned[..., side_by_side, :][..., side_by_side]
    return torch.stack([torch.block_diag(*of_one) for of_one in turned])


def world_truth(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """For every two actions, the share of places at which one after the other leads back, and at which the order does
    not matter; NaN where the two cannot follow each other anywhere."""
    n = len(subject.actions)
    if subject.task.name == "navigation":
        axis = np.arange(n) // 2
        back = (axis[:, None] == axis[None]) & (np.arange(n)[:, None] != np.arange(n)[None])
        return back.astype(float), np.ones((n, n))
    counts = np.zeros((4, n, n))  # both steps possible, of which back; both orders possible, of which to one place
    for places, step in _worlds(subject):
        table = np.array([[step(place, action) for action in range(n)] for place in range(places)])
        twice = np.where(table[:, :, None] >= 0, table[table.clip(min=0)], -1)  # (place, first, second)
        counts[0] += (twice >= 0).sum(axis=0)
        counts[1] += (twice == np.arange(places)[:, None, None]).sum(axis=0)
        both = (twice >= 0) & (twice.transpose(0, 2, 1) >= 0)
        counts[2] += both.sum(axis=0)
        counts[3] += (both & (twice == twice.transpose(0, 2, 1))).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return counts[1] / counts[0], counts[3] / counts[2]


def _worlds(subject: Subject) -> list[tuple[int, Step]]:
    """The graphs that walks of this task are on, each with its number of places and its steps."""
    task: Any = subject.task
    if task.name == "graph":
        world = task.world
        number = {node: index for index, node in enumerate(world.nodes)}
        exits, names = world.exits(), task.token_names

        def along(place: int, action: int) -> int:
            target = exits[world.nodes[place]].get(names[action])
            return -1 if target is None else number[target]

        return [(len(world.nodes), along)]
    batch = subject.sample("iid", FAMILIES, "families")
    found: list[tuple[int, Step]] = []
    for row in range(FAMILIES):
        relatives = family_of(batch, row, task.settings).relatives
        found.append((len(relatives), lambda place, action, of=relatives: int(of[place, action])))  # type: ignore[misc]
    return found


def _correlation(distance: Tensor, share: np.ndarray) -> float | None:
    """Between being near 0 and being true in the world, over pairs of different actions; None where it has no value."""
    x, y = -distance.numpy(), share
    known = np.isfinite(y) & ~np.eye(len(y), dtype=bool)
    if known.sum() < 2 or x[known].std() < 1e-12 or y[known].std() < 1e-12:
        return None
    return round(float(np.corrcoef(x[known], y[known])[0, 1]), 4)


def _listed(shares: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(share) else round(float(share), 4) for share in row] for row in shares]
