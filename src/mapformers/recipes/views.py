"""How the record of a recipe is shown: as a table, as learning curves, as heat maps, as bars."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.evaluation.aggregate import Summary, summarise
from mapformers.recipes.measures import Curve, GridMeasure
from mapformers.recipes.recipe import Recipe, line_label
from mapformers.recipes.record import lines_run, runs_of, summaries
from mapformers.reports.page import footnotes, marked
from mapformers.reports.table import Table
from mapformers.runs.provenance import freshness

GOAL = 0.99  # what a run is said to have learned at
Draw = Callable[[Path], None]


class View(ABC):
    """Turns the record of a recipe into tables, or into figures: name of the file -> what draws it."""

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        return []

    def figures(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        return {}

    @property
    @abstractmethod
    def caption(self) -> str:
        """What it shows, after the name of the recipe."""


@dataclass(frozen=True)
class TableView(View):
    """A table for every world: a line per row, a column per split, ours and the paper's in brackets.

    ``seeds``: whether a column says over how many seeds a line is.
    """

    seeds: bool = True
    caption = "by split"

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        return [self.table(recipe, record, world) for world in recipe.worlds if lines_run(recipe, record, world)]

    def table(self, recipe: Recipe, record: Mapping[str, Any], world: str, marks: bool = True) -> Table:
        """One world; ``marks``: whether to mark lines whose sources have changed or were not recorded."""
        found = summaries(recipe, record)
        rows = []
        for line in lines_run(recipe, record, world):
            runs = runs_of(record, line, world)
            label = marked(line, [freshness(run) for run in runs]) if marks else line
            count = [str(len(runs))] if self.seeds else []
            rows.append([label, *count, *(cell(found, recipe, line, world, split) for split in recipe.splits)])
        blank, heading = ([""], ["seeds"]) if self.seeds else ([], [])
        measured = record.get("players", {}).get(world, {})
        below = [
            [f"player: {name}", *blank, *(_figure(scores.get(split)) for split in recipe.splits)]
            for name, scores in measured.items()
        ]
        title = f"{recipe.name}, {world}: {recipe.metric}{', ours (paper)' if recipe.paper else ''}"
        headings = [world, *heading, *recipe.splits.values()]
        return Table(title, headings, rows, below, footnotes([row[0] for row in rows]))


def cell(found: Mapping[tuple[str, str, str], Summary], recipe: Recipe, line: str, world: str, split: str) -> str:
    """``0.998 ± 0.001 (1.00)``: ours with its spread over seeds, then the paper's where it has one."""
    ours = found.get((line, world, split))
    if ours is None:
        return "–"
    printed = recipe.paper.get((line, world, split))
    return f"{spread(ours)} ({printed[0]:.2f})" if printed else spread(ours)


def spread(figures: Summary) -> str:
    """A mean, with its standard deviation where there are several seeds."""
    return f"{figures.mean:.3f}" + (f" ± {figures.std:.3f}" if figures.n > 1 else "")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


@dataclass(frozen=True)
class CurveView(View):
    """How each run learned: a panel per line of the table, a curve per seed.

    ``goal``: a dashed line, for a metric between 0 and 1; None for one that has no such goal.
    """

    goal: float | None = GOAL
    caption = "how each run learned"

    def figures(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        curve = next((measure for measure in recipe.measures if isinstance(measure, Curve)), None)
        if curve is None:
            return {}
        metric, worlds = curve.metric, list(recipe.worlds)
        panels = {
            line if len(worlds) == 1 else f"{line}, {world}": {
                run["seed"]: [(point["sequences"], point[metric]) for point in curve.of(run) or ()]
                for run in runs_of(record, line, world)
            }
            for world in worlds
            for line in lines_run(recipe, record, world)
        }

        def draw(path: Path) -> None:
            from mapformers.reports.learning_curves import draw_curves  # a second, for those who draw

            draw_curves(panels, path, self.goal, metric)

        return {f"{recipe.name}-curves.png": draw} if panels else {}


@dataclass(frozen=True)
class GridView(View):
    """A metric over two settings: a table and a panel of a heat map for every line and world, mean over seeds."""

    grid: GridMeasure

    @property
    def caption(self) -> str:
        return f"by {self.grid.rows} and {self.grid.columns}"

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        headings = [f"{self.grid.rows} \\ {self.grid.columns}", *map(str, self.grid.column_values)]
        return [
            Table(
                f"{recipe.name}, {marked(label, [freshness(run) for run in runs])}: {self._metric(runs)}",
                headings,
                [
                    [str(value), *map(_figure, means)]
                    for value, means in zip(self.grid.row_values, mean_matrix([self.grid.of(run) for run in runs]))
                ],
                notes=footnotes([marked(label, [freshness(run) for run in runs])]),
            )
            for label, runs in self._panels(recipe, record).items()
        ]

    def figures(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        panels = {
            label: mean_matrix([self.grid.of(run) for run in runs])
            for label, runs in self._panels(recipe, record).items()
        }

        def draw(path: Path) -> None:
            from mapformers.reports.heat_maps import draw_heat_maps

            ticks = (self.grid.row_values, self.grid.column_values)
            draw_heat_maps(panels, path, (self.grid.rows, self.grid.columns), ticks)

        return {f"{recipe.name}-{self.grid.rows}-{self.grid.columns}.png": draw} if panels else {}

    def _panels(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        panels = {}
        for world in recipe.worlds:
            for line in lines_run(recipe, record, world):
                runs = [run for run in runs_of(record, line, world) if self.grid.of(run) is not None]
                if runs:
                    panels[f"{line}, {world}"] = runs
        return panels

    def _metric(self, runs: Sequence[Mapping[str, Any]]) -> str:
        return str(self.grid.of(runs[0])["metric"])


def mean_matrix(grids: Sequence[Mapping[str, Any]]) -> list[list[float | None]]:
    """The mean of several grids, place by place; None where any of them has no value."""
    stacks = [list(zip(*rows)) for rows in zip(*(grid["values"] for grid in grids))]
    return [[None if None in values else sum(values) / len(values) for values in row] for row in stacks]


@dataclass(frozen=True)
class BarView(View):
    """A bar for the figure of one split, with its spread over seeds.

    ``over``: a swept setting along the horizontal axis, a series per row; without it every row has its own place.
    """

    split: str = "iid"
    over: str | None = None

    @property
    def caption(self) -> str:
        return f"{self.split} by {'row' if self.over is None else self.over}"

    def figures(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        groups: dict[str, dict[str, tuple[float, float]]] = {}
        for (place, series), values in self._values(recipe, record).items():
            figures = summarise(values)
            groups.setdefault(place, {})[series] = (figures.mean, figures.std)

        def draw(path: Path) -> None:
            from mapformers.reports.bars import draw_bars

            draw_bars(groups, path, f"{self.split} {recipe.metric}", self.over or "")

        name = "-".join([recipe.name, self.split, *([self.over] if self.over else ["rows"])])
        return {f"{name}.png": draw} if groups else {}

    def _values(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[tuple[str, str], list[float]]:
        """(place, series) -> one figure per run, in the order of the recipe."""
        found: dict[tuple[str, str], list[float]] = {}
        several = len(recipe.worlds) > 1
        for world in recipe.worlds:
            for row in recipe.rows:
                for sweep in recipe.swept():
                    rest = {name: value for name, value in sweep.items() if name != self.over}
                    place = line_label(row.label, rest) if self.over is None else str(sweep[self.over])
                    series = ([] if self.over is None else [line_label(row.label, rest)]) + ([world] if several else [])
                    for run in runs_of(record, line_label(row.label, sweep), world):
                        value = run["splits"][self.split][recipe.metric]["value"]
                        if value is not None:
                            found.setdefault((place, ", ".join(series)), []).append(value)
        return found
