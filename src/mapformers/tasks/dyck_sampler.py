"""Exact sampling of nestings: all walks of exactly L steps that return to 0 and climb exactly to D, each alike.

What is to come depends on three things: the steps left, the depth, and whether D was reached. The last two are one
number here, the *place* on a folded line 0 … 2D: the depth until D is reached, 2D − depth from then on. A walk begins
at place 0 and ends at 2D; on either half it goes back and forth, but from D, the fold, it goes only forward.
"""

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor


def count(length: int, depth: int) -> int:
    """How many nestings there are of that length and greatest depth (types of brackets not counted)."""
    *_, ways = _ways(length, depth)
    return ways[0]


@lru_cache(maxsize=64)
def forward_chances(length: int, depth: int) -> Tensor:
    """(L, 2D + 1) float64: the chance that step t goes forward from a place; 0 where the end is out of reach.

    The counts outgrow any float; a ratio of two Python integers is the float nearest to it all the same.
    """
    table, ways = [], _ways(length, depth)
    after = next(ways)
    for before in ways:
        forward, _ = _moves(after, depth)
        table.append([ahead / total if total else 0.0 for ahead, total in zip(forward, before)])
        after = before
    return torch.tensor(table[::-1], dtype=torch.float64)  # made from the last step to the first


def opening_chances(length: int, depth: int) -> Tensor:
    """(L, 2D + 1) float64: the chance that step t goes deeper; forward before the fold, back after it."""
    forward = forward_chances(length, depth)
    return torch.where(torch.arange(2 * depth + 1) < depth, forward, 1 - forward)


def occupancy(length: int, depth: int) -> Tensor:
    """(L + 1, 2D + 1) float64: the chance of each place after 0, 1, … L steps."""
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
    """The place after each step, (B, T) -> (B, T), from the depths up to there."""
    reached = depths.cummax(dim=1).values == deepest
    return torch.where(reached, 2 * deepest - depths, depths)


def draw_depths(uniform: Tensor, depth: int) -> Tensor:
    """The depth after each step of a nesting, by one uniform float64 number each: (B, L) -> (B, L)."""
    rows, length = uniform.shape
    draws = uniform.T.contiguous()
    places = torch.empty(length, rows, dtype=torch.long)
    place = torch.zeros(rows, dtype=torch.long)
    for draw, chance, reached in zip(draws, forward_chances(length, depth), places):
        forward = draw < chance.take(place)
        place = torch.add(place - 1, forward, alpha=2, out=reached)
    return depth - (places.T - depth).abs()


def _ways(length: int, depth: int) -> Iterator[list[int]]:
    """With 0, 1, … L steps left: the number of ways from each place to the end."""
    ways = [0] * (2 * depth) + [1]
    yield ways
    for _ in range(length):
        ways = [ahead + behind for ahead, behind in zip(*_moves(ways, depth))]
        yield ways


def _moves(ways: list[int], depth: int) -> tuple[list[int], list[int]]:
    """The number of ways on after a step forward, and after a step back, from each place."""
    forward, back = [*ways[1:], 0], [0, *ways[:-1]]
    back[depth] = 0  # the fold
    return forward, back
