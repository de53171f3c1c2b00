"""A metric over two settings of a task: as heat maps, and as lines through them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.errors import require
from mapformers.evaluation.aggregate import summarise
from mapformers.recipes.measures import GridMeasure
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import lines_run, runs_of, whole
from mapformers.recipes.views.table import line_states
from mapformers.recipes.views.view import Draw, View, figure_text, file_name
from mapformers.reports.marks import footnotes, marked
from mapformers.reports.table import Table

Runs = list[dict[str, Any]]


@dataclass(frozen=True)
class GridView(View):
    """A metric over two settings: a table and a panel of a heat map for every line and world, mean over seeds."""

    grid: GridMeasure

    @property
    def caption(self) -> str:
        return f"{metric_prefix(self.grid)}by {self.grid.rows} and {self.grid.columns}"

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        return [
            self._table(f"{recipe.name}, {marked(f'{line}, {world}', line_states(recipe, record, runs))}", runs)
            for (line, world), runs in measured(self.grid, recipe, record).items()
        ]

    def _table(self, title: str, runs: Runs) -> Table:
        means = mean_matrix([self.grid.of(run) for run in runs])
        rows = [[str(value), *map(figure_text, line)] for value, line in zip(self.grid.row_values, means)]
        headings = [f"{self.grid.rows} \\ {self.grid.columns}", *map(str, self.grid.column_values)]
        return Table(f"{title}: {metric_of(self.grid, runs)}", headings, rows, notes=footnotes([title]))

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        found = measured(self.grid, recipe, record)
        several = len(recipe.worlds) > 1
        panels = {
            f"{line}, {world}" if several else line: mean_matrix([self.grid.of(run) for run in runs])
            for (line, world), runs in found.items()
        }

        def draw(path: Path) -> None:
            from mapformers.reports.heat_maps import draw_heat_maps

            ticks = (self.grid.row_values, self.grid.column_values)
            metric = metric_of(self.grid, next(iter(found.values())))
            draw_heat_maps(panels, path, (self.grid.rows, self.grid.columns), ticks, metric)

        name = self.grid.label or f"{self.grid.rows}-{self.grid.columns}"
        return {file_name(recipe.name, name): draw} if panels else {}


@dataclass(frozen=True)
class SliceView(View):
    """A line through a grid for every row, a panel per world: a metric along one setting, the other held.

    ``along``    the setting on the horizontal axis, one of the grid's two.
    ``at``       the value of the other.
    ``trained``  the largest value of ``along`` in training: up to there the panel is shaded.
    """

    grid: GridMeasure
    along: str
    at: Any
    trained: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        sides = (self.grid.rows, self.grid.columns)
        require(self.along in sides, f"A slice goes along {' or '.join(sides)}, not {self.along!r}.")
        held = self.grid.column_values if self.along == self.grid.rows else self.grid.row_values
        require(self.at in held, f"The grid has no {self.held} {self.at}; choose one of {', '.join(map(str, held))}.")

    @property
    def held(self) -> str:
        """The setting that has one value."""
        return self.grid.columns if self.along == self.grid.rows else self.grid.rows

    @property
    def caption(self) -> str:
        return f"{metric_prefix(self.grid)}by {self.along} at {self.held} {self.at}"

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        found = measured(self.grid, recipe, record)

        def draw(path: Path) -> None:
            from mapformers.reports.series import Frame, Series, draw_series

            panels: dict[str, dict[str, Series]] = {}
            for (line, world), runs in found.items():
                panels.setdefault(world, {})[line] = Series(self._points(runs))
            metric = metric_of(self.grid, next(iter(found.values())))
            ylabel = f"{metric} at {self.held} {self.at}"
            draw_series(panels, path, Frame(self.along, ylabel, log=self.log, shaded_to=self.trained, share=True))

        name = [*([self.grid.label] if self.grid.label else []), self.along, "at", self.held, str(self.at)]
        return {file_name(recipe.name, *name): draw} if found else {}

    def _points(self, runs: Runs) -> list[tuple[float, float, float]]:
        """(value of ``along``, mean, standard deviation) wherever every seed has a value."""
        points = []
        for value in self.grid.row_values if self.along == self.grid.rows else self.grid.column_values:
            place = (value, self.at) if self.along == self.grid.rows else (self.at, value)
            values = whole([self.grid.at(run, *place) for run in runs])
            if values:
                figures = summarise(values)
                points.append((value, figures.mean, figures.std))
        return points


def measured(grid: GridMeasure, recipe: Recipe, record: Mapping[str, Any]) -> dict[tuple[str, str], Runs]:
    """(line, world) -> the runs of which the grid as it is now was measured."""
    found = {}
    for world in recipe.worlds:
        for line in lines_run(recipe, record, world):
            runs = [run for run in runs_of(record, line, world) if grid.fits(grid.of(run))]
            if runs:
                found[line, world] = runs
    return found


def metric_of(grid: GridMeasure, runs: Runs) -> str:
    return str(grid.of(runs[0])["metric"])


def metric_prefix(grid: GridMeasure) -> str:
    return f"{grid.label} " if grid.label else ""


def mean_matrix(grids: Sequence[Mapping[str, Any]]) -> list[list[float | None]]:
    """The mean of several grids, place by place; None where any of them has no value."""
    stacks = [list(zip(*rows)) for rows in zip(*(grid["values"] for grid in grids))]
    return [[None if None in values else sum(values) / len(values) for values in row] for row in stacks]
