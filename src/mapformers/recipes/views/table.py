"""The table of a recipe: a line for each row, a column for each split, ours beside the paper's, with marks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mapformers import players
from mapformers.evaluation.aggregate import Summary
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import has_other_settings, lines_run, players_note, runs_of, summaries
from mapformers.recipes.views.view import View, figure_text, spread
from mapformers.reports.marks import against, footnotes, marked
from mapformers.reports.table import Table
from mapformers.runs.provenance import freshness

Found = Mapping[tuple[str, str, str], Summary]


@dataclass(frozen=True)
class TableView(View):
    """A table for every world: a line per row, a column per split, ours and the paper's in brackets.

    Further metrics of `Splits` have tables of their own after the main one of their world.
    ``seeds``: whether a column says over how many seeds a line is.
    """

    seeds: bool = True
    caption = "by split"

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        found = []
        for world in recipe.worlds:
            if lines_run(recipe, record, world):
                found.append(self.table(recipe, record, world))
                found += [self.other_metric(recipe, record, world, metric) for metric in recipe.also]
        return [table for table in found if table.rows]

    def table(self, recipe: Recipe, record: Mapping[str, Any], world: str, marks: bool = True) -> Table:
        """One world; ``marks``: whether to mark what `mapformers.reports.marks` has a mark for."""
        found = summaries(recipe, record)
        best = best_without_map(recipe, record, world) if marks else None
        rows = []
        for line in lines_run(recipe, record, world):
            runs = runs_of(record, line, world)
            label = marked(line, line_states(recipe, record, runs)) if marks else line
            cells = [cell(found, recipe, line, world, split, best) for split in recipe.splits]
            rows.append([label, *([str(len(runs))] if self.seeds else []), *cells])
        blank = [""] if self.seeds else []
        below = [
            [f"player: {name}", *blank, *(figure_text(scores.get(split)) for split in recipe.splits)]
            for name, scores in record.get("players", {}).get(world, {}).items()
        ]
        title = f"{recipe.name}, {world}: {recipe.metric}{', ours (paper)' if recipe.paper else ''}"
        note = players_note(record, world)
        notes = [*footnotes([text for row in rows for text in row]), *([note] if note else [])]
        return Table(title, self._headings(recipe, world), rows, below, notes)

    def other_metric(self, recipe: Recipe, record: Mapping[str, Any], world: str, metric: str) -> Table:
        """Another metric of the same runs, where they have it; with the paper's numbers if it may have reported it."""
        found, compared = summaries(recipe, record, metric), metric in recipe.comparable
        rows = []
        for line in lines_run(recipe, record, world):
            if any((line, world, split) in found for split in recipe.splits):
                count = [str(len(runs_of(record, line, world)))] if self.seeds else []
                rows.append(
                    [
                        line,
                        *count,
                        *(plain_cell(found, recipe, line, world, split, compared) for split in recipe.splits),
                    ]
                )
        title = f"{recipe.name}, {world}: {metric} beside it{', ours (paper)' if compared and recipe.paper else ''}"
        return Table(title, self._headings(recipe, world), rows)

    def _headings(self, recipe: Recipe, world: str) -> list[str]:
        return [world, *(["seeds"] if self.seeds else []), *recipe.splits.values()]


def line_states(recipe: Recipe, record: Mapping[str, Any], runs: list[dict[str, Any]]) -> set[str]:
    """What there is to mark about a line: the age of its sources and settings, and a seed that was still learning."""
    learning = recipe.curve is not None and any(recipe.curve.converged(run) is False for run in runs)
    otherwise = any(has_other_settings(recipe, record["scale"], run) for run in runs)
    return {
        *(freshness(run) for run in runs),
        *(["learning"] if learning else []),
        *(["otherwise"] if otherwise else []),
    }


def best_without_map(recipe: Recipe, record: Mapping[str, Any], world: str) -> dict[str, float]:
    """split -> the best figure of a player that keeps no map, of those that were measured."""
    mapless = players.without_map(recipe.task)
    measured = [scores for name, scores in record.get("players", {}).get(world, {}).items() if name in mapless]
    best = min if recipe.lower_is_better else max
    by_split = {split: [s[split] for s in measured if s.get(split) is not None] for split in recipe.splits}
    return {split: best(values) for split, values in by_split.items() if values}


def cell(
    found: Found, recipe: Recipe, line: str, world: str, split: str, best: Mapping[str, float] | None = None
) -> str:
    """``0.998 ± 0.001 (1.00)``: ours with its spread over seeds, the paper's where it has one, and marks.

    ``best``: split -> figure of the best player without a map; without it nothing is marked.
    """
    text, ours, printed = plain_cell(found, recipe, line, world, split), found.get((line, world, split)), recipe.paper
    if ours is None or best is None:
        return text
    states = [against(ours.mean, printed[line, world, split][0])] if (line, world, split) in printed else []
    if split in best:
        gain = ours.mean - best[split]
        states += ["mapless"] if (gain > 0 if recipe.lower_is_better else gain < 0) else []
    return marked(text, states)


def plain_cell(found: Found, recipe: Recipe, line: str, world: str, split: str, compared: bool = True) -> str:
    """The same without marks; ``compared``: whether the paper's figure stands beside it."""
    ours, printed = found.get((line, world, split)), recipe.paper.get((line, world, split))
    if ours is None:
        return "–"
    return f"{spread(ours)} ({printed[0]:.2f})" if printed and compared else spread(ours)
