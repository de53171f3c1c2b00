"""Figures by name (`mapformers.recipes.measures.Figures`): as a table, and as lines where names are numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mapformers.evaluation.aggregate import Summary, summarise
from mapformers.recipes.measures import Figures
from mapformers.recipes.recipe import Paper, Recipe
from mapformers.recipes.record import lines_run, runs_of, whole
from mapformers.recipes.views.table import line_states
from mapformers.recipes.views.view import Draw, View, file_name, spread
from mapformers.reports.marks import footnotes, marked
from mapformers.reports.table import Table


def summary(measure: Figures, runs: Sequence[Mapping[str, Any]], figure: str) -> Summary | None:
    """A figure over the seeds of a line; None where a seed has none."""
    values = whole([measure.value(run, figure) for run in runs])
    return summarise(values) if values else None


@dataclass(frozen=True)
class FiguresView(View):
    """A table for every world: a line per row, a column per figure, ours and the paper's in brackets.

    ``paper``     (line, figure) -> what the paper prints, of its own text and size: ``note`` says of which.
    ``in_world``  the world that these stand beside; every one unless given.
    """

    measure: Figures
    title: str
    paper: Mapping[tuple[str, str], Paper] = field(default_factory=dict)
    note: str = ""
    in_world: str | None = None

    @property
    def caption(self) -> str:
        return self.title

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        found = [self._table(recipe, record, world) for world in recipe.worlds]
        return [table for table in found if table.rows]

    def _table(self, recipe: Recipe, record: Mapping[str, Any], world: str) -> Table:
        rows = []
        printed = self.paper if self.in_world in (None, world) else {}
        for line in lines_run(recipe, record, world):
            runs = runs_of(record, line, world)
            figures = {name: summary(self.measure, runs, name) for name in self.measure.headings}
            if any(figures.values()):
                label = marked(line, line_states(recipe, record, runs))
                cells = [beside_paper(each, printed.get((line, name))) for name, each in figures.items()]
                rows.append([label, str(len(runs)), *cells])
        paper = ", ours (paper)" if printed else ""
        headings = [world, "seeds", *self.measure.headings.values()]
        elsewhere = bool(self.paper) and not printed  # then the note is on figures that do not stand here
        notes = [*footnotes([row[0] for row in rows]), *([self.note] if self.note and not elsewhere else [])]
        return Table(f"{recipe.name}, {world}: {self.title}{paper}", headings, rows, notes=notes)


def beside_paper(ours: Summary | None, printed: Paper | None) -> str:
    """``0.52 ± 0.01 (0.55 ± 0.02)``."""
    beside = f" ({printed[0]:.2f} ± {printed[1]:.2f})" if printed else ""
    return "–" if ours is None else spread(ours) + beside


@dataclass(frozen=True)
class AlongFigures(View):
    """A line for every row over those figures whose names are numbers, a panel per world.

    ``number``   what the numbers are.
    ``trained``  the largest of them in training: up to there the panel is shaded.
    ``panels``   of a world with many rows: title -> the rows of a panel.
    """

    measure: Figures
    number: str
    ylabel: str
    trained: float | None = None
    log: bool = True
    panels: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    @property
    def caption(self) -> str:
        return f"{self.ylabel} over {self.number}"

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        names = [name for name in self.measure.headings if name.isdigit()]
        panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
        for world in recipe.worlds:
            there = lines_run(recipe, record, world)
            for title, lines in self.panels.get(world, {"": there}).items():
                for line in filter(there.__contains__, lines):
                    runs = runs_of(record, line, world)
                    found = [(int(name), summary(self.measure, runs, name)) for name in names]
                    points = [(float(at), each.mean, each.std) for at, each in found if each is not None]
                    if points:
                        panels.setdefault(f"{world}: {title}" if title else world, {})[line] = points

        def draw(path: Path) -> None:
            from mapformers.reports.series import Frame, Series, draw_series

            series = {world: {line: Series(points) for line, points in of.items()} for world, of in panels.items()}
            log_y = self.measure.lower_is_better  # one line that rises tenfold would flatten all others
            of_their_own = bool(self.panels)
            frame = Frame(
                self.number, self.ylabel, log=self.log, log_y=log_y, shaded_to=self.trained, legends=of_their_own
            )
            draw_series(series, path, frame)

        return {file_name(recipe.name, "over", self.number): draw} if panels else {}
