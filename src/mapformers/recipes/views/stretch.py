"""What a context longer than that of training costs in perplexity, with an interval over documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mapformers.evaluation.significance import paired
from mapformers.recipes.measures import Figures
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import lines_run, runs_of
from mapformers.recipes.views.differences import document_losses, over_seeds, with_interval
from mapformers.recipes.views.view import View
from mapformers.reports.table import Table


@dataclass(frozen=True)
class StretchView(View):
    """By how much perplexity rises from one context to a longer one, document by document, in percent.

    ``measure``            keeps the loss of every document under ``documents``, by the context.
    ``trained``, ``long``  the two contexts.
    ``note``               what else there is to know of the documents.
    """

    measure: Figures
    trained: int
    long: int
    note: str = ""
    caption = "what a longer context costs"

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        found = [self._table(recipe, record, world) for world in recipe.worlds]
        return [table for table in found if table.rows]

    def _table(self, recipe: Recipe, record: Mapping[str, Any], world: str) -> Table:
        rows = []
        for line in lines_run(recipe, record, world):
            runs, contexts = runs_of(record, line, world), (self.long, self.trained)
            losses = [over_seeds([document_losses(self.measure, run, each) for run in runs]) for each in contexts]
            if all(losses) and len(losses[0]) >= 2:
                change = paired(*losses).as_ratio()
                rows.append([line, with_interval(change), str(len(runs)), str(len(losses[0]))])
        heading = f"{self.long} against {self.trained} tokens"
        notes = [
            f"The same targets in every document, with {self.long} and with {self.trained} tokens before the last of "
            "them; the interval (95 %) is over documents, each with its mean over seeds.",
            *([self.note] if self.note else []),
        ]
        title = f"{recipe.name}, {world}: perplexity with {heading}"
        return Table(title, [world, heading, "seeds", "documents"], rows, notes=notes)
