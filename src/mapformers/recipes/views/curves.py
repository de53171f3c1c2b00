"""Learning curves: how the runs of a recipe learned."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.evaluation.aggregate import summarise
from mapformers.recipes.measures import GOAL, Curve
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import lines_run, runs_of
from mapformers.recipes.views.view import Draw, View, file_name

LEAST = 3  # points of a curve: two are a straight line, whatever lies between them


@dataclass(frozen=True)
class CurveView(View):
    """How each run learned: a panel per line of the table, a curve per seed.

    ``together``: a panel per world instead, with the mean over seeds of every line, sequences on a log scale.
    ``goal``: a dashed line, for a metric between 0 and 1; None for one that has no such goal.
    """

    goal: float | None = GOAL
    together: bool = False

    @property
    def caption(self) -> str:
        return "how fast each line learned" if self.together else "how each run learned"

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        longest = max((len(recipe.curve.points(run)) for run in record["runs"]), default=0) if recipe.curve else 0
        if recipe.curve is None or longest < LEAST or not lines_run(recipe, record):
            return {}
        if self.together:
            return {file_name(recipe.name, "learning"): self._together(recipe, record, recipe.curve)}
        return {file_name(recipe.name, "curves"): self._apart(recipe, record, recipe.curve)}

    def _apart(self, recipe: Recipe, record: Mapping[str, Any], curve: Curve) -> Draw:
        several = len(recipe.worlds) > 1
        panels = {
            f"{line}\n{world}" if several else line: {
                run["seed"]: curve.points(run) for run in runs_of(record, line, world)
            }
            for world in recipe.worlds
            for line in lines_run(recipe, record, world)
        }

        def draw(path: Path) -> None:
            from mapformers.reports.learning_curves import draw_curves  # a second, for those who draw

            draw_curves(panels, path, self.goal, curve.label)

        return draw

    def _together(self, recipe: Recipe, record: Mapping[str, Any], curve: Curve) -> Draw:
        def draw(path: Path) -> None:
            from mapformers.reports.series import Frame, Series, draw_series

            panels = {
                world: {
                    line: Series(mean_curve([curve.points(run) for run in runs_of(record, line, world)]))
                    for line in lines_run(recipe, record, world)
                }
                for world in recipe.worlds
                if lines_run(recipe, record, world)
            }
            log_y = curve.lower_is_better
            frame = Frame("training sequences", curve.label, log=True, log_y=log_y, markers=False, goal=self.goal)
            draw_series(panels, path, frame)

        return draw


def mean_curve(curves: list[list[tuple[float, float]]]) -> list[tuple[float, float, float]]:
    """(sequences, mean, standard deviation) over the seeds, at every point that all of them have."""
    by_seed = [dict(curve) for curve in curves]
    shared = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
    figures = [(at, summarise([points[at] for points in by_seed])) for at in shared]
    return [(at, figure.mean, figure.std) for at, figure in figures]
