"""Rows against one row: the difference with its interval, over seeds and pair by pair."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mapformers.evaluation.significance import Difference, mean_losses, p_text, paired, welch
from mapformers.recipes.measures import Figures, Measure
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import lines_run, runs_of
from mapformers.recipes.views.view import View
from mapformers.reports.table import Table

Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class DifferenceView(View):
    """How much lower or higher the perplexity of every row is than that of one, in percent, with intervals of 95 %.

    ``measure``, ``figure``  the perplexity of a seed, for Welch's test over the seeds of both rows.
    ``pairs``                a measure that keeps a list of losses of the same windows for every run. Seeds of a row
                             count by their mean, and both rows are compared on the seeds that both have.
    ``paper``                line -> the difference that the paper prints.
    """

    against: str
    measure: Figures
    figure: str
    pairs: Measure
    paper: Mapping[str, str] = field(default_factory=dict)
    caption = "differences between rows"

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        found = [self._table(recipe, record, world) for world in recipe.worlds]
        return [table for table in found if table.rows]

    def _table(self, recipe: Recipe, record: Mapping[str, Any], world: str) -> Table:
        reference = runs_of(record, self.against, world)
        rows = []
        for line in lines_run(recipe, record, world):
            runs = runs_of(record, line, world)
            if line != self.against and reference:
                rows.append(
                    [line, *self._seeds(runs, reference), *self._windows(runs, reference), self.paper.get(line, "–")]
                )
        headings = [world, "over seeds", "Welch's p", "seeds", "pair by pair", "p of pairs", "pairs", "paper"]
        notes = [
            "Pairs are validation windows, each with the mean loss over the seeds that both rows have. Windows of one "
            "document resemble each other, and seeds add a spread of their own, so the p of pairs says only that the "
            "trained models differ, not that models trained anew would.",
        ]
        title = f"{recipe.name}, {world}: perplexity against {self.against}"
        return Table(title, headings, rows, notes=notes)

    def _seeds(self, runs: Runs, reference: Runs) -> list[str]:
        ours, theirs = (self._logs(each) for each in (runs, reference))
        counts = f"{len(ours)} and {len(theirs)}"
        if not ours or not theirs:
            return ["–", "–", counts]
        if min(len(ours), len(theirs)) < 2:
            return [percent(math.expm1(sum(ours) / len(ours) - sum(theirs) / len(theirs))), "–", counts]
        found = welch(ours, theirs).as_ratio()
        return [with_interval(found), p_text(found.p), counts]

    def _logs(self, runs: Runs) -> list[float]:
        values = [self.measure.value(run, self.figure) for run in runs]
        return [math.log(value) for value in values if value is not None]

    def _windows(self, runs: Runs, reference: Runs) -> list[str]:
        shared = {run["seed"] for run in runs} & {run["seed"] for run in reference}
        sides = [self._mean_losses([run for run in each if run["seed"] in shared]) for each in (runs, reference)]
        if not all(sides) or len(sides[0]) != len(sides[1]) or len(sides[0]) < 2:
            return ["–", "–", "–"]
        found = paired(*sides).as_ratio()
        return [with_interval(found), p_text(found.p), str(found.n[0])]

    def _mean_losses(self, runs: Runs) -> list[float]:
        kept = [self.pairs.of(run) for run in runs]
        return mean_losses(kept) if all(kept) else []


def percent(value: float) -> str:
    return f"{100 * value:+.2f} %"


def with_interval(found: Difference) -> str:
    return f"{percent(found.mean)} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"
