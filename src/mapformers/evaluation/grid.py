"""`evaluate_grid`: one metric over two settings of a task, such as length × depth (paper, fig. 2 and B.4)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mapformers.errors import UserError, require
from mapformers.evaluation.evaluate import evaluate
from mapformers.players import build
from mapformers.tasks import Metric, Task


@dataclass(frozen=True)
class Grid:
    """``values[i][j]`` is the metric at ``rows[i]``, ``columns[j]``; None where the two cannot be had together."""

    names: tuple[str, str]
    rows: tuple[Any, ...]
    columns: tuple[Any, ...]
    metric: str
    values: tuple[tuple[Metric | None, ...], ...]

    def at(self, row: Any, column: Any) -> Metric | None:
        """The metric at one value of each setting."""
        return self.values[self.rows.index(row)][self.columns.index(column)]

    def matrix(self) -> list[list[float]]:
        """The values as plain floats, NaN where there is none: what a heat map is drawn from."""
        return [[math.nan if value is None else float(value) for value in row] for row in self.values]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; None where there is no value."""
        plain = [[None if math.isnan(value) else value for value in row] for row in self.matrix()]
        counts = [[0 if value is None else value.count for value in row] for row in self.values]
        axes = {self.names[0]: list(self.rows), self.names[1]: list(self.columns)}
        return {"axes": axes, "metric": self.metric, "values": plain, "counts": counts}

    def __str__(self) -> str:
        cells = [["" if math.isnan(value) else f"{value:.3f}" for value in row] for row in self.matrix()]
        header = [f"{self.names[0]} \\ {self.names[1]}", *map(str, self.columns)]
        lines = [header, *([str(value), *row] for value, row in zip(self.rows, cells))]
        widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
        table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines]
        return "\n".join([self.metric, *table])


def evaluate_grid(
    model: Callable[[Tensor], Any] | str,
    task: Task[Any],
    rows: Sequence[Any],
    columns: Sequence[Any],
    *,
    names: tuple[str, str] = ("length", "depth"),
    split: str | Mapping[str, Any] = "iid",
    metric: str | None = None,
    n_sequences: int = 512,
    seed: int = 0,
    batch_size: int | None = None,
) -> Grid:
    """A metric (the task's main one unless named) at every value of two settings, everything else as in ``split``.

    ``model`` is anything `evaluate` takes, or the name of a player, which is then built for every cell.

    Examples:
        >>> import mapformers as mf
        >>> task = mf.build_task("navigation", dims=2)
        >>> grid = evaluate_grid("perfect", task, [4, 8], [3, 5], names=("steps", "grid"), n_sequences=8)
    """
    require(len(set(names)) == 2, f"A grid needs two different settings, not {names[0]!r} twice.")
    require(len(rows) > 0 and len(columns) > 0, f"Give at least one value of {names[0]} and one of {names[1]}.")
    metric = metric or task.main_metric
    task.split_settings(split)  # refused here, and not as holes of the grid
    base = task.splits[split] if isinstance(split, str) else split
    refused: list[UserError] = []

    def cell(row: Any, column: Any) -> Metric | None:
        here = {**base, names[0]: row, names[1]: column}
        try:
            task.split_settings(here)
        except UserError as error:
            refused.append(error)
            return None
        player = build(model, task, here) if isinstance(model, str) else model
        scores = evaluate(player, task, here, n_sequences=n_sequences, seed=seed, batch_size=batch_size)
        require(metric in scores, f"There is no metric {metric!r} of task {task.name!r}, only {', '.join(scores)}.")
        return scores[metric]

    values = tuple(tuple(cell(row, column) for column in columns) for row in rows)
    if len(refused) == len(rows) * len(columns):  # not a hole in the grid: something is wrong with what was asked
        raise refused[0]
    return Grid(names, tuple(rows), tuple(columns), metric, values)
