"""`navigation`: random walks on a grid of 1 to 5 dimensions; predict what a revisited cell holds (sec. 4.1, B.3).

A sequence is a₁ o₁ a₂ o₂ …: an action, then what is found in the cell to which it leads. A cell is empty with
probability ``p_empty``; otherwise it holds one of ``n_objects`` objects, uniformly at random. The grid is never built:
the content of a cell is drawn at its first visit, which gives the same distribution. The grid has walls (walls.py), or
it is a torus.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mapformers.config import require_choices
from mapformers.errors import require
from mapformers.tasks.task import Batch, register_task, require_names
from mapformers.tasks.walk import WalkTask, choice, contents, object_names
from mapformers.tasks.walk_drawing import draw_walk
from mapformers.tasks.walls import draw_runs

Edges = Literal["walls", "torus"]

ARROWS = ["→", "←", "↑", "↓"]
AXES = "xyzuv"
EMPTY = "·"

# dims -> (steps, grid) of the iid split. # paper: has no 4D; here: between 3D and 5D
IID_WORLDS = {1: (128, 64), 2: (128, 64), 3: (256, 16), 4: (64, 8), 5: (16, 5)}

# paper: gives no OOD sizes in 5D; here: longer walks, because nearly all its rows fall from iid to both OOD splits
LONGER_IN_5D = {"ood-dense": {"steps": 32, "grid": 5}, "ood-sparse": {"steps": 64, "grid": 10}}


@dataclass(frozen=True)
class World:
    """The distribution of one split, with every setting resolved."""

    dims: int
    steps: int
    grid: int
    p_empty: float
    n_objects: int
    max_run: int
    edges: Edges = "walls"

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("grid", 2), ("max_run", 1), ("n_objects", 1)):
            require(getattr(self, name) >= least, f"{name} must be at least {least}, not {getattr(self, name)}.")
        require_choices(self)
        require_names("n_objects", self.n_objects)
        require(0 <= self.p_empty <= 1, f"p_empty is a probability between 0 and 1, not {self.p_empty}.")
        require(self.grid**self.dims < 2**62, f"A grid of {self.grid} in {self.dims} dimensions has too many cells.")


@dataclass(frozen=True)
class NavigationSettings:
    """The settings of the iid split. None stands for the paper's value at that number of dimensions."""

    dims: int = 2
    """Dimensions of the grid, 1 to 5."""
    steps: int | None = None
    """Steps of a walk. A step is an action and an observation, so 128 steps are 256 tokens (None: the paper's)."""
    grid: int | None = None
    """Cells along each side of the grid (None: the paper's)."""
    p_empty: float = 0.5
    """Probability that a cell is empty."""
    n_objects: int = 16
    """Number of different objects."""
    max_run: int | None = None
    """The walk keeps a direction for 1 to this many steps (None: the paper's, 10 in 1D and 3 otherwise)."""
    edges: Edges = "walls"
    """walls: only steps inside the grid are possible; torus: who leaves the grid on one side enters on the other."""

    unrecorded = {"edges": "torus"}  # value of a setting in run folders from before it existed

    def __post_init__(self) -> None:
        require(self.dims in IID_WORLDS, f"dims must be 1 to 5, not {self.dims}.")
        self.world()

    def world(self) -> World:
        """The settings with the paper's values in place of None."""
        steps, grid = IID_WORLDS[self.dims]
        steps = steps if self.steps is None else self.steps
        grid = grid if self.grid is None else self.grid
        max_run = (10 if self.dims == 1 else 3) if self.max_run is None else self.max_run
        return World(self.dims, steps, grid, self.p_empty, self.n_objects, max_run, self.edges)


class Navigation(WalkTask[World]):
    """Tokens: the 2·dims actions, then "empty", then the objects."""

    empty_id: int
    reference_players = ("best-lag",)

    def __init__(self, settings: NavigationSettings):
        world = settings.world()
        super().__init__(world)
        self.token_names = [*_action_names(world.dims), EMPTY, *object_names(world.n_objects)]
        self.action_ids = list(range(2 * world.dims))
        self.empty_id = 2 * world.dims
        self.splits = _splits(world)

    def split_settings(self, split: str | Mapping[str, Any] | World) -> World:
        world = super().split_settings(split)
        same = (world.dims, world.n_objects) == (self.settings.dims, self.settings.n_objects)
        require(
            same,
            "A split must keep dims and n_objects, which decide the tokens; build another task to change them.",
        )
        return world

    def numbers_per_sequence(self, world: World) -> int:
        """The direction and the length of each run (at most one run per step), and what each cell holds.

        With walls also the start. On a torus all cells are alike, and a walk starts at 0.
        """
        return 3 * world.steps + (world.dims if world.edges == "walls" else 0)

    def draw(self, uniform: Tensor, world: World) -> Batch:
        actions, displacement, positions = self._walk(uniform, world)
        found = contents(uniform[:, -world.steps :], world.p_empty, self.empty_id, world.n_objects)
        cells = self._cells(positions, world.grid)
        return self.walk_batch(actions, cells, found, positions=positions, displacement=displacement)

    def trace(self, actions: Sequence[int], world: World) -> list[tuple[int, ...]]:
        """The displacement from the start. On a torus it wraps around; between walls it never does."""
        cell, cells = [0] * world.dims, []
        for action in actions:
            axis, backwards = divmod(action, 2)
            cell[axis] += -1 if backwards else 1
            if world.edges == "torus":
                cell[axis] %= world.grid
            cells.append(tuple(cell))
        return cells

    def _walk(self, uniform: Tensor, world: World) -> tuple[Tensor, Tensor, Tensor]:
        """The actions (B, T), the displacement from the start after each of them (B, T, dims), and the cells reached.

        The displacement does not wrap around; the cells are numbered from 0 to grid − 1 along each axis.
        """
        steps, dims = world.steps, world.dims
        if world.edges == "walls":
            runs = draw_runs(uniform, dims, steps, world.grid, world.max_run)
            actions = _repeat(runs.direction, runs.end, steps)
            displacement = _displacement(actions, dims)
            return actions, displacement, runs.start[:, None] + displacement
        run_end = (1 + choice(uniform[:, steps : 2 * steps], world.max_run)).cumsum(dim=1)
        actions = _repeat(choice(uniform[:, :steps], 2 * dims), run_end, steps)
        displacement = _displacement(actions, dims)
        return actions, displacement, displacement % world.grid

    def _cells(self, positions: Tensor, grid: int) -> Tensor:
        """One number per cell, (B, T, dims) -> (B, T)."""
        powers = grid ** torch.arange(positions.shape[-1])
        return (positions * powers).sum(dim=-1)

    def model_defaults(self) -> dict[str, Any]:
        """One map dimension per axis (at least two); ω from 1, or twice the slowest, to one turn per grid.

        Faster ones turn further than π in a step, so that a movement and another look the same to them: maps in which
        → and ← do not cancel are then learned too, and first have to be unlearned (docs/fidelity.md).
        """
        grid = self.settings.grid
        return {"rank": max(2, self.settings.dims), "base": float(grid), "omega_max": max(1.0, 4 * math.pi / grid)}

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """The walk as tokens and, in one and two dimensions, as a picture of the grid."""
        batch = self.sample(split, 1, generator)
        sequence = [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]
        names = [self.token_names[token] for token in sequence]
        cells = [tuple(cell) for cell in batch.info["displacement"][0].tolist()]
        note = " (the torus unrolled)" if self.split_settings(split).edges == "torus" else ""
        return draw_walk(names, cells, batch.info["first_visit"][0].tolist(), EMPTY, note)


def _splits(world: World) -> dict[str, dict[str, Any]]:
    """Half the steps and the grid with few empty cells, and twice of both with many, except in 5D with walls."""
    dense = {"steps": max(1, world.steps // 2), "grid": max(2, -(-world.grid // 2))}
    sparse = {"steps": 2 * world.steps, "grid": 2 * world.grid}
    if world.edges == "walls" and world.dims == 5 and (world.steps, world.grid) == IID_WORLDS[5]:
        dense, sparse = LONGER_IN_5D["ood-dense"], LONGER_IN_5D["ood-sparse"]
    splits = {"iid": {}, "ood-dense": {**dense, "p_empty": 0.2}, "ood-sparse": {**sparse, "p_empty": 0.8}}
    if world.dims <= 2:  # the paper has 256 steps in its table and 512 in its text
        splits[f"ood-sparse-{4 * world.steps}"] = {**splits["ood-sparse"], "steps": 4 * world.steps}
    return splits


def _repeat(direction: Tensor, run_end: Tensor, steps: int) -> Tensor:
    """The action of every step (B, T), from the direction of each run and the number of steps done at its end."""
    times = torch.arange(steps).expand(len(direction), -1).contiguous()
    run = torch.searchsorted(run_end, times, right=True)
    return direction.gather(1, run)


def _displacement(actions: Tensor, dims: int) -> Tensor:
    """The sum of all movements so far: (B, T) -> (B, T, dims)."""
    unit = torch.zeros(2 * dims, dims, dtype=torch.long)
    unit[torch.arange(2 * dims), torch.arange(2 * dims) // 2] = torch.tensor([1, -1]).repeat(dims)
    return unit[actions].cumsum(dim=1)


def _action_names(dims: int) -> list[str]:
    """Arrows in one and two dimensions, otherwise +x, -x, +y, …"""
    return ARROWS[: 2 * dims] if dims <= 2 else [f"{sign}{AXES[axis]}" for axis in range(dims) for sign in "+-"]


register_task(
    "navigation",
    settings=NavigationSettings,
    build=Navigation,
)
