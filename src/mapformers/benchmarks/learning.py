"""How many sequences and seconds a model needs until it has learned 2D navigation, seed by seed."""

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mapformers.recipes import RECIPES
from mapformers.runs.config import Scale
from mapformers.runs.folder import RunFolder
from mapformers.training.train import start_run

ROW, WORLD = "MapWM-r2", "2D"


@dataclass(frozen=True)
class Learned:
    """When a run first measured the accuracy asked for on fresh iid sequences; None where it never did."""

    seed: int
    sequences: int | None
    seconds: float | None
    best: float


def learning(goal: float = 0.99, seeds: int = 5, scale: Scale = "cpu", console: Console | None = None) -> list[Learned]:
    """Train the row of table 2 as it is trained there, one seed after another, with all threads for each."""
    recipe = RECIPES["table2"]
    found = []
    for seed in range(seeds):
        config = recipe.cell(ROW, WORLD, seed).config(scale)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "run"
            start_run(config, folder, console, f"{ROW}, seed {seed}")
            measured = [line for line in RunFolder(folder).metrics() if "split" in line]
        found.append(first_reached(seed, measured, recipe.metric, goal, config.train.batch_size))
    return found


def first_reached(seed: int, measured: list[dict[str, float]], metric: str, goal: float, batch_size: int) -> Learned:
    best = max(line[metric] for line in measured)
    for line in measured:
        if line[metric] >= goal:
            return Learned(seed, int(line["step"]) * batch_size, line["seconds"], best)
    return Learned(seed, None, None, best)


def median_or_none(values: list[float | None]) -> float | None:
    """The median, a run that never got there counting as the slowest; None when it is one of those."""
    ranked = sorted(float("inf") if value is None else value for value in values)
    middle = statistics.median(ranked)
    return None if middle == float("inf") else middle
