"""What is measured of a finished run: its splits, how it learned, and a metric over two settings."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mapformers.evaluation import evaluate_grid
from mapformers.runs.run import Run

GOAL = 0.99  # what a run is said to have learned at
FLAT = 0.01  # a gain from one quarter of a curve to the next that is no more learning
OWN_KEYS = ("splits", "curve")  # kept beside `measures` in a record, the others in it


class Measure(ABC):
    """Something measured of a run: plain data under a name."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def measure(self, run: Run) -> Any:
        """What is kept in the record: JSON-ready."""

    def of(self, entry: Mapping[str, Any]) -> Any:
        """What was kept of a run in a record; None where it was not measured."""
        kept = entry if self.name in OWN_KEYS else entry.get("measures", {})
        return kept.get(self.name)

    def fits(self, kept: Any) -> bool:
        """Whether what was kept is what would be measured now."""
        return kept is not None

    def require_ready(self) -> None:  # noqa: B027 - most measures need nothing
        """Refuse, before any run begins, where files that it needs are not there."""


class Figures(Measure):
    """Figures by name, such as a perplexity at each of several contexts.

    ``headings``         name of a figure -> heading of its column.
    ``lower_is_better``  for figures such as a loss.
    """

    lower_is_better = False

    @property
    @abstractmethod
    def headings(self) -> Mapping[str, str]: ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the figures depend on besides the run; kept beside them."""
        return {}

    def value(self, entry: Mapping[str, Any], figure: str) -> float | None:
        """One figure of a recorded run; None where there is none."""
        kept = self.of(entry) or {}
        return kept.get("values", {}).get(figure)

    def fits(self, kept: Any) -> bool:
        if not isinstance(kept, Mapping) or not set(self.headings) <= set(kept.get("values", {})):
            return False
        return kept.get("settings", {}) == self.settings


@dataclass(frozen=True)
class Splits(Measure):
    """A metric on splits of the task, as result.json has them.

    ``headings``         split -> heading of its column.
    ``also``             further metrics, shown beside the main one where a run has them, never instead of it.
    ``comparable``       those of ``also`` that the paper may have reported: its numbers are shown beside them too.
    ``lower_is_better``  for a metric such as a loss.
    """

    headings: Mapping[str, str]
    metric: str = "accuracy"
    also: Sequence[str] = ()
    comparable: Sequence[str] = ()
    lower_is_better: bool = False
    name = "splits"

    def fits(self, kept: Any) -> bool:
        return isinstance(kept, Mapping) and all(self.metric in kept.get(split, {}) for split in self.headings)

    def measure(self, run: Run) -> dict[str, Any]:
        return dict(run.result["splits"])


@dataclass(frozen=True)
class Curve(Measure):
    """A metric on the split that is watched in training (iid, or `val` of a text), as metrics.jsonl has it.

    ``lower_is_better``: for a metric such as a loss, which then has no goal.
    """

    metric: str = "accuracy"
    lower_is_better: bool = False
    name = "curve"

    @property
    def label(self) -> str:
        """What an axis says of it."""
        return f"{'validation' if self.lower_is_better else 'iid'} {self.metric}"  # a text is limited, worlds are not

    def fits(self, kept: Any) -> bool:
        return isinstance(kept, list) and all(self.metric in point for point in kept)

    def measure(self, run: Run) -> list[dict[str, Any]]:
        batch = run.config.train.batch_size
        measured = [line for line in run.metrics if "split" in line and self.metric in line]
        return [{"sequences": line["step"] * batch, self.metric: line[self.metric]} for line in measured]

    def points(self, entry: Mapping[str, Any]) -> list[tuple[float, float]]:
        """(sequences, value) of a recorded run, without points that have no value."""
        return [
            (point["sequences"], point[self.metric]) for point in self.of(entry) or () if point[self.metric] is not None
        ]

    def at(self, entry: Mapping[str, Any], sequences: float) -> float | None:
        """What a recorded run scored last within so many sequences; None before its first point and after its last."""
        points = self.points(entry)
        within = [value for at, value in points if at <= sequences]
        return within[-1] if within and points[-1][0] >= sequences else None

    def converged(self, entry: Mapping[str, Any]) -> bool | None:
        """Whether a recorded run had learned what it would learn (`is_converged`); None where that is unknown."""
        values = [value for _, value in self.points(entry)]
        if self.lower_is_better:  # a perplexity, of which a change of one percent counts, whatever its size
            return is_converged([-math.log(value) for value in values], goal=None)
        return is_converged(values, GOAL)


def is_converged(values: Sequence[float], goal: float | None) -> bool | None:
    """Whether a curve is at its goal in the end, or flat; None if it has fewer than two points.

    It is flat if the mean of its last quarter is at most ``FLAT`` above that of the quarter before. A learning rate
    that ends at zero flattens any curve: a flat one has come to its end, and not always to its best.
    """
    if len(values) < 2:
        return None
    quarter = max(1, len(values) // 4)
    last, before = values[-quarter:], values[-2 * quarter : -quarter]
    at_goal = goal is not None and values[-1] >= goal
    return at_goal or sum(last) / quarter - sum(before) / quarter <= FLAT


@dataclass(frozen=True)
class GridMeasure(Measure):
    """A metric (the task's main one unless named) at every value of two settings of the task.

    ``n_sequences``  of each place of the grid; as many as for the splits of the run unless given.
    ``label``        its name in the record, for a recipe that has two metrics over the same settings.
    """

    rows: str
    row_values: Sequence[Any]
    columns: str
    column_values: Sequence[Any]
    metric: str | None = None
    n_sequences: int | None = None
    label: str | None = None

    @property
    def name(self) -> str:
        return self.label or f"{self.rows} x {self.columns}"

    def at(self, entry: Mapping[str, Any], row: Any, column: Any) -> float | None:
        """What a recorded run scored at one place; None where it was not measured."""
        kept = self.of(entry)
        if kept is None:
            return None
        value = kept["values"][list(self.row_values).index(row)][list(self.column_values).index(column)]
        return None if value is None else float(value)

    def fits(self, kept: Any) -> bool:
        axes = {self.rows: list(self.row_values), self.columns: list(self.column_values)}
        if kept is None or kept["axes"] != axes or self.metric not in (None, kept["metric"]):
            return False
        return self.n_sequences in (None, kept.get("n_sequences", self.n_sequences))  # older records do not say it

    def measure(self, run: Run) -> dict[str, Any]:
        n_sequences = self.n_sequences or run.config.train.final_sequences
        grid = evaluate_grid(
            run.model,
            run.task,
            self.row_values,
            self.column_values,
            names=(self.rows, self.columns),
            metric=self.metric,
            n_sequences=n_sequences,
        )
        return {**grid.to_dict(), "n_sequences": n_sequences}
