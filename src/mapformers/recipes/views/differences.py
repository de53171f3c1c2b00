"""Rows against one row: the difference with its interval, over seeds and pair by pair."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mapformers.evaluation.significance import Difference, in_both, mean_losses, p_text, paired, welch
from mapformers.recipes.measures import Figures, Measure
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import lines_run, runs_of, whole
from mapformers.recipes.views.view import View
from mapformers.reports.table import Table

Runs = Sequence[Mapping[str, Any]]
Losses = Sequence[float | None] | None  # of windows or documents


@dataclass(frozen=True)
class DifferenceView(View):
    """How much lower or higher the perplexity of every row is than that of one, in percent, with intervals of 95 %.

    ``measure``, ``figure``  the perplexity of a seed, for Welch's test over the seeds of both rows, and for a paired
                             one over those that both have, which read the same text in the same order.
    ``windows``              a measure that keeps a list of losses of the same windows for every run. Seeds of a row
                             count by their mean, and both rows are compared on the seeds that both have.
    ``documents``            one that keeps the same of documents, under ``documents`` by the context.
    ``context``              which of those is compared.
    ``paper``, ``in_world``  line -> the difference that the paper prints, and the world it stands beside.
    """

    against: str
    measure: Figures
    figure: str
    windows: Measure
    documents: Measure
    context: int
    paper: Mapping[str, str] = field(default_factory=dict)
    in_world: str | None = None
    caption = "differences between rows"

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        found = [self._table(recipe, record, world) for world in recipe.worlds]
        return [table for table in found if table.rows]

    def _table(self, recipe: Recipe, record: Mapping[str, Any], world: str) -> Table:
        reference = runs_of(record, self.against, world)
        rows = []
        paper = self.paper if self.in_world in (None, world) else {}
        for line in lines_run(recipe, record, world):
            runs = runs_of(record, line, world)
            if line != self.against and reference:
                both = in_both(by_seed(runs), by_seed(reference))
                windows = self._pairs([[self.windows.of(run) for run in side] for side in both])
                documents = self._pairs(
                    [[document_losses(self.documents, run, self.context) for run in side] for side in both]
                )
                rows.append([line, *self._seeds(runs, reference), *windows, *documents, paper.get(line, "–")])
        headings = [world, "over seeds (Welch)", "p", "seeds", "seed by seed", "p", "pairs"]
        headings += [word for each in ("window", "document") for word in (f"{each} by {each}", "p", f"{each}s")]
        notes = [
            "Over seeds and seed by seed: the mean of the last five evaluations in training, as in the paper; windows "
            "and documents: the model as it is. Seeds with one number read the same text in the same order, so those "
            "that both rows have are pairs. A row of one seed is compared with the same seed.",
            "Validation windows, and long documents, each with the mean loss over the seeds that both rows have. "
            "Windows of one document resemble each other, and seeds add a spread of their own, so these p say only "
            "that the trained models differ, not that models trained anew would.",
        ]
        title = f"{recipe.name}, {world}: perplexity against {self.against}"
        return Table(title, [*headings, "paper"], rows, notes=notes)

    def _seeds(self, runs: Runs, reference: Runs) -> list[str]:
        """Welch's test with its interval and p, and how many seeds; then the same seed by seed."""
        ours, theirs = (self._logs(each) for each in (runs, reference))
        both = in_both(by_seed(runs), by_seed(reference))
        one, other = (self._logs(each) for each in both)
        groups, pairs = ["–", "–", f"{len(runs)} and {len(reference)}"], ["–", "–", str(len(both[0]))]
        if min(len(ours), len(theirs)) >= 2:
            groups[:2] = cells_of(welch(ours, theirs))
        if len(one) == len(other) == 1:
            pairs[0] = percent(math.expm1(one[0] - other[0]))
        elif len(one) == len(other) >= 2:
            pairs[:2] = cells_of(paired(one, other))
        return [*groups, *pairs]

    def _logs(self, runs: Runs) -> list[float]:
        return list(map(math.log, whole([self.measure.value(run, self.figure) for run in runs])))

    @staticmethod
    def _pairs(kept: Sequence[Sequence[Losses]]) -> list[str]:
        """The difference of two rows, pair by pair, given what each has of every seed."""
        sides = [over_seeds(side) for side in kept]
        if not all(sides) or len(sides[0]) != len(sides[1]) or len(sides[0]) < 2:
            return ["–", "–", "–"]
        found = paired(*sides)
        return [*cells_of(found), str(found.n[0])]


def by_seed(runs: Runs) -> dict[int, Mapping[str, Any]]:
    return {run["seed"]: run for run in runs}


def document_losses(measure: Measure, run: Mapping[str, Any], context: int) -> Losses:
    """What a run lost on every long document with so many tokens of context."""
    losses: Losses = (measure.of(run) or {}).get("documents", {}).get(str(context))
    return losses


def over_seeds(losses: Sequence[Losses]) -> list[float]:
    """The mean over seeds, pair by pair; none where a seed has none."""
    return mean_losses([whole(each or []) for each in losses])


def cells_of(logarithms: Difference) -> list[str]:
    """A difference of logarithms as a ratio with its interval, and its p."""
    found = logarithms.as_ratio()
    return [with_interval(found), p_text(found.p)]


def percent(value: float) -> str:
    return f"{100 * value:+.2f} %"


def with_interval(found: Difference) -> str:
    return f"{percent(found.mean)} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"
