"""Random walks on a grid with walls: only possible steps are drawn (D.3), and a run ends at a wall.

The loop goes over runs, not over steps. The true length of a run is known when its direction is drawn: the walk stops
after the length that was drawn, or at the wall. numpy does the many small operations of the loop faster than torch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mapformers.tasks.walk import choice

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """The runs of B walks, as many as the walk with the shortest runs needs.

    ``start``      (B, dims) the cell where each walk starts.
    ``direction``  (B, R) the action that each run repeats.
    ``end``        (B, R) the number of steps that are done when the run ends.
    """

    start: Tensor
    direction: Tensor
    end: Tensor


def draw_runs(uniform: Tensor, dims: int, steps: int, grid: int, max_run: int) -> Runs:
    """Runs that fill ``steps`` steps, from dims + 2·steps uniform numbers per walk: start, directions, lengths.

    A direction is drawn uniformly at random among those that do not lead into a wall, and a length in 1…max_run.
    A run has at least one step, so there are at most ``steps`` of them.
    """
    start = choice(uniform[:, :dims], grid)
    draws = uniform[:, dims : dims + steps].double().numpy().T.copy()  # (steps, B): a row for each run
    lengths = (1 + choice(uniform[:, dims + steps : dims + 2 * steps], max_run)).numpy().T.copy()
    space = _space(start.numpy(), grid)
    done: Ints = np.zeros(len(uniform), dtype=np.int64)
    directions, ends = [], []
    for draw, length in zip(draws, lengths):
        direction = _possible_direction(space, draw)
        done = done + _move(space, direction, length)
        directions.append(direction)
        ends.append(done)
        if done.min() >= steps:
            break
    return Runs(start, torch.from_numpy(np.stack(directions, axis=1)), torch.from_numpy(np.stack(ends, axis=1)))


def _space(cells: Ints, grid: int) -> Ints:
    """How many steps are possible in each direction: (B, dims) -> (2·dims, B), in the order of the actions."""
    space = np.stack((grid - 1 - cells, cells), axis=2)  # (B, dims, forwards and backwards)
    return np.ascontiguousarray(space.reshape(len(cells), -1).T)


def _possible_direction(space: Ints, draw: NDArray[np.float64]) -> Ints:
    """One of the directions with space ahead, uniformly at random: (2·dims, B), (B,) -> (B,)."""
    number = (space > 0).cumsum(axis=0)  # the possible directions are numbered 1, 2, … n
    direction: Ints = (number <= draw * number[-1]).sum(axis=0)  # the first one whose number is above draw · n
    return direction


def _move(space: Ints, direction: Ints, length: Ints) -> Ints:
    """Go ``length`` steps or to the wall, and change ``space`` to that of the new cell; the steps really done, (B,)."""
    rows = np.arange(len(direction))
    ahead = space[direction, rows]
    done = np.minimum(length, ahead)
    space[direction, rows] = ahead - done
    space[direction ^ 1, rows] += done
    return done
