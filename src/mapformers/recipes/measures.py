"""What is measured of a finished run: its splits, how it learned, and a metric over two settings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mapformers.evaluation import evaluate_grid
from mapformers.runs.run import Run

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


@dataclass(frozen=True)
class Splits(Measure):
    """A metric on splits of the task, as result.json has them. ``headings``: split -> heading of its column."""

    headings: Mapping[str, str]
    metric: str = "accuracy"
    name = "splits"

    def fits(self, kept: Any) -> bool:
        return isinstance(kept, Mapping) and all(self.metric in kept.get(split, {}) for split in self.headings)

    def measure(self, run: Run) -> dict[str, Any]:
        return dict(run.result["splits"])


@dataclass(frozen=True)
class Curve(Measure):
    """A metric on fresh iid sequences after so many training sequences, as metrics.jsonl has it."""

    metric: str = "accuracy"
    name = "curve"

    def fits(self, kept: Any) -> bool:
        return isinstance(kept, list) and all(self.metric in point for point in kept)

    def measure(self, run: Run) -> list[dict[str, Any]]:
        batch = run.config.train.batch_size
        measured = [line for line in run.metrics if "split" in line]
        return [{"sequences": line["step"] * batch, self.metric: line[self.metric]} for line in measured]


@dataclass(frozen=True)
class GridMeasure(Measure):
    """A metric (the task's main one unless named) at every value of two settings of the task.

    ``n_sequences``: of each place of the grid; as many as for the splits of the run unless given.
    """

    rows: str
    row_values: Sequence[Any]
    columns: str
    column_values: Sequence[Any]
    metric: str | None = None
    n_sequences: int | None = None

    @property
    def name(self) -> str:
        return f"{self.rows} x {self.columns}"

    def fits(self, kept: Any) -> bool:
        axes = {self.rows: list(self.row_values), self.columns: list(self.column_values)}
        return kept is not None and kept["axes"] == axes and self.metric in (None, kept["metric"])

    def measure(self, run: Run) -> dict[str, Any]:
        grid = evaluate_grid(
            run.model,
            run.task,
            self.row_values,
            self.column_values,
            names=(self.rows, self.columns),
            metric=self.metric,
            n_sequences=self.n_sequences or run.config.train.final_sequences,
        )
        return grid.to_dict()
