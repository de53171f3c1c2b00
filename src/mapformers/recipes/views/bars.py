"""Figures of splits: as bars, and as lines over a swept setting."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapformers.errors import require
from mapformers.evaluation.aggregate import Summary
from mapformers.recipes.recipe import Recipe, line_label
from mapformers.recipes.record import summaries
from mapformers.recipes.views.view import Draw, View, file_name

if TYPE_CHECKING:
    from mapformers.reports.bars import Bar


@dataclass(frozen=True)
class BarView(View):
    """Bars with their spread over seeds, the paper's figure a mark on each that has one.

    By default a panel per world, a group per row, and a bar per split.
    ``split``: of one split only, the worlds side by side.
    ``over``: with a split, the values of a swept setting along the horizontal axis, a bar per row.
    """

    split: str | None = None
    over: str | None = None

    def __post_init__(self) -> None:
        require(self.over is None or self.split is not None, "BarView(over=…) shows one split; name it: split=….")

    @property
    def caption(self) -> str:
        if self.split is None:
            return "by row and split"
        return f"{self.split} by {'row' if self.over is None else self.over}"

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        panels: dict[str, dict[str, dict[str, Bar]]] = {}
        for panel, place, series, bar in self._bars(recipe, record):
            panels.setdefault(panel, {}).setdefault(place, {})[series] = bar

        def draw(path: Path) -> None:
            from mapformers.reports.bars import draw_bars

            draw_bars(panels, path, " ".join([*([self.split] if self.split else []), recipe.metric]), self.over or "")

        parts = ["bars"] if self.split is None else [self.split, self.over or "rows"]
        return {file_name(recipe.name, *parts): draw} if panels else {}

    def _bars(self, recipe: Recipe, record: Mapping[str, Any]) -> "Iterator[tuple[str, str, str, Bar]]":
        """(panel, place, series, bar) in the order of the recipe."""
        for found in in_order(recipe, record):
            if self.split in (None, found.split):
                yield *self._place(recipe, found), (found.ours.mean, found.ours.std, found.paper)

    def _place(self, recipe: Recipe, found: "Found") -> tuple[str, str, str]:
        several = [found.world] if len(recipe.worlds) > 1 else []
        if self.split is None:
            return found.world, found.line(), recipe.splits[found.split]
        if self.over is None:
            return "", found.line(), ", ".join(several)
        return "", str(found.sweep[self.over]), ", ".join([found.line(self.over), *several])


@dataclass(frozen=True)
class LineView(View):
    """A figure of one split over a swept setting of numbers: a panel per world, a line per row.

    ``log``: whether the setting is on a log scale. The paper's figures, where there are any, are open marks.
    """

    over: str
    split: str = "iid"
    log: bool = False

    @property
    def caption(self) -> str:
        return f"{self.split} over {self.over}"

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        require(self.over in recipe.sweep, f"Recipe {recipe.name!r} sweeps no {self.over!r}.")
        found = [each for each in in_order(recipe, record) if each.split == self.split]

        def draw(path: Path) -> None:
            from mapformers.reports.series import Frame, Series, draw_series

            panels: dict[str, dict[str, Series]] = {}
            for each in found:
                series = panels.setdefault(each.world, {}).setdefault(each.line(self.over), Series())
                series.points.append((each.sweep[self.over], each.ours.mean, each.ours.std))
                if each.paper is not None:
                    series.paper.append((each.sweep[self.over], each.paper))
            ylabel, share = f"{self.split} {recipe.metric}", not recipe.lower_is_better
            draw_series(panels, path, Frame(self.over, ylabel, log=self.log, log_y=not share, share=share))

        return {file_name(recipe.name, self.split, "over", self.over): draw} if found else {}


@dataclass(frozen=True)
class AlongWorlds(View):
    """A figure of one split over worlds that differ in one number: a line per row.

    ``number``  what the number is, such as "steps of a walk".
    ``worlds``  number -> the world that has it.
    """

    number: str
    worlds: Mapping[float, str]
    split: str = "iid"
    log: bool = False

    @property
    def caption(self) -> str:
        return f"{self.split} over {self.number}"

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        number_of = {world: number for number, world in self.worlds.items()}
        found = [each for each in in_order(recipe, record) if each.split == self.split and each.world in number_of]

        def draw(path: Path) -> None:
            from mapformers.reports.series import Frame, Series, draw_series

            lines: dict[str, Series] = {}
            for each in found:
                points = lines.setdefault(each.line(), Series()).points
                points.append((number_of[each.world], each.ours.mean, each.ours.std))
            for series in lines.values():
                series.points.sort()
            frame = Frame(self.number, recipe.metric, log=self.log, share=not recipe.lower_is_better)
            draw_series({"": lines}, path, frame)

        return {file_name(recipe.name, self.split, "over", self.number): draw} if found else {}


@dataclass(frozen=True)
class Found:
    """A figure of a recipe's record, and the paper's where it has one."""

    row: str
    sweep: Mapping[str, Any]
    world: str
    split: str
    ours: Summary
    paper: float | None

    def line(self, without: str | None = None) -> str:
        """Its line of the table; ``without``: a swept setting to leave out."""
        return line_label(self.row, {name: value for name, value in self.sweep.items() if name != without})


def in_order(recipe: Recipe, record: Mapping[str, Any]) -> Iterator[Found]:
    """Every figure that was measured, in the order of the recipe."""
    found = summaries(recipe, record)
    for world, row, sweep, split in product(recipe.worlds, recipe.rows, recipe.swept(), recipe.splits):
        key = line_label(row.label, sweep), world, split
        if key in found:
            paper = recipe.paper[key][0] if key in recipe.paper else None
            yield Found(row.label, sweep, world, split, found[key], paper)
