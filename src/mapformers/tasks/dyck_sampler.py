"""Exact sampling of nestings, uniformly at random among all of length L and greatest depth D.

A nesting is a walk of L steps up or down that starts and ends at depth 0. Its next step depends on the number of steps
left, on the depth, and on whether D has been reached. The last two are one number here, the *place* on a line
0 … 2D: the depth before D is reached, and 2D − depth from then on. So a walk starts at place 0 and ends at place 2D. On
each half of the line it moves forward and back, but from place D (the fold) it only moves forward.
"""

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor


def count(length: int, depth: int) -> int:
    """The number of nestings of that length and greatest depth, whatever the types of the brackets."""
    *_, ways = _ways(length, depth)
    return ways[0]


@lru_cache(maxsize=64)
def forward_chances(length: int, depth: int) -> Tensor:
    """(L, 2D + 1) float64: the probability that step t goes forward from each place; 0 if the end is out of reach.

    The counts are too large for floats. They are Python integers, and the ratio of two of them is the nearest float.
    """
    table, ways = [], _ways(length, depth)
    after = next(ways)
    for before in ways:
        forward, _ = _moves(after, depth)
        table.append([ahead / total if total else 0.0 for ahead, total in zip(forward, before)])
        after = before
    return torch.tensor(table[::-1], dtype=torch.float64)  # rows were made from the last step to the first


def opening_chances(length: int, depth: int) -> Tensor:
    """(L, 2D + 1) float64: the probability that step t opens a bracket: forward before the fold, back after it."""
    forward = forward_chances(length, depth)
    return torch.where(torch.arange(2 * depth + 1) < depth, forward, 1 - forward)


def occupancy(length: int, depth: int) -> Tensor:
    """(L + 1, 2D + 1) float64: the probability of each place after 0, 1, … L steps."""
    here = torch.zeros(2 * depth + 1, dtype=torch.float64)
    here[0] = 1
    rows = [here]
    for forward in forward_chances(length, depth):
        ahead, behind = here * forward, here * (1 - forward)
        here = torch.zeros_like(here)
        here[1:] += ahead[:-1]
        here[:-1] += behind[1:]
        rows.append(here)
    return torch.stack(rows)


def place_of(depths: Tensor, deepest: int) -> Tensor:
    """The place after each step, from the depths so far: (B, T) -> (B, T)."""
    reached = depths.cummax(dim=1).values == deepest
    return torch.where(reached, 2 * deepest - depths, depths)


def draw_depths(uniform: Tensor, depth: int) -> Tensor:
    """The depth after each step of a nesting, from one uniform float64 number per step: (B, L) -> (B, L)."""
    rows, length = uniform.shape
    draws = uniform.T.contiguous()
    places = torch.empty(length, rows, dtype=torch.long)
    place = torch.zeros(rows, dtype=torch.long)
    for draw, chance, reached in zip(draws, forward_chances(length, depth), places):
        forward = draw < chance.take(place)
        place = torch.add(place - 1, forward, alpha=2, out=reached)
    return depth - (places.T - depth).abs()


def _ways(length: int, depth: int) -> Iterator[list[int]]:
    """For 0, 1, … L steps left: the number of ways from each place to the end."""
    ways = [0] * (2 * depth) + [1]
    yield ways
    for _ in range(length):
        ways = [ahead + behind for ahead, behind in zip(*_moves(ways, depth))]
        yield ways


def _moves(ways: list[int], depth: int) -> tuple[list[int], list[int]]:
    """From each place, the number of ways to the end after a step forward, and after a step back."""
    forward, back = [*ways[1:], 0], [0, *ways[:-1]]
    back[depth] = 0  # the fold
    return forward, back
