"""Which cells of a recipe are to be run, and why: those that its record does not have as they would be measured now."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mapformers.evaluation.aggregate import summarise
from mapformers.recipes.recipe import Cell, Recipe, line_label
from mapformers.recipes.record import (
    Record,
    empty_record,
    is_run_of,
    key_of,
    line_of,
    read_record,
    same_line_otherwise,
)
from mapformers.recipes.shared_runs import recorded_elsewhere
from mapformers.reports.table import Table
from mapformers.runs.config import Scale
from mapformers.runs.provenance import freshness

Why = Literal["new", "settings changed", "sources changed", "not measured in full"]


@dataclass(frozen=True)
class Plan:
    """What is to do of one recipe.

    ``file``        of its record.
    ``todo``        cells, each with the reason.
    ``kept``        how many done runs are kept although their sources have changed.
    ``unrecorded``  how many done runs are from before sources were recorded; they are kept too.
    ``shared``      what the records of other recipes have of cells that are not done: runs of the same config.
    ``leaving``     how many recorded runs of other seeds have the settings that their line had before.
    """

    recipe: Recipe
    scale: Scale
    file: Path
    record: Record
    todo: Sequence[tuple[Cell, Why]]
    done: int
    kept: int
    unrecorded: int
    shared: Sequence[Mapping[str, Any]] = ()
    leaving: int = 0

    def sentences(self) -> Iterator[str]:
        yield f"{self.recipe.name} at {self.scale} scale: {len(self.todo)} runs to do, {self.done} done."
        reasons: Counter[str] = Counter(why for _, why in self.todo)
        for why, remedy in (("sources changed", " (--keep-old keeps such runs)"), ("settings changed", "")):
            if reasons[why]:
                yield f"Done before, and repeated because their {why}: {reasons[why]}{remedy}."
        if self.leaving:
            yield f"Recorded with former settings on seeds that are not run now: {self.leaving}; they leave the record."
        if self.shared:
            yield f"Taken from the records of other recipes, where the same run is: {len(self.shared)}."
        if self.kept:
            yield f"Kept although the sources that decide them have changed: {self.kept}."
        if self.unrecorded:
            yield f"Kept although it is not recorded which sources they are of: {self.unrecorded}."

    def worlds_without_players(self) -> list[str]:
        """Worlds that have runs, and nothing on what players score there."""
        ran = {entry["world"] for entry in self.record["runs"]} - set(self.record.get("players", {}))
        return [world for world in self.recipe.worlds if world in ran]


def make_plan(recipe: Recipe, scale: Scale, file: Path, cells: Sequence[Cell], keep_old: bool = False) -> Plan:
    """``keep_old``: runs whose sources have changed since they were measured count as done."""
    record = read_record(file) if file.exists() else empty_record(recipe, scale)
    entries = {key_of(entry): entry for entry in record["runs"]}
    todo: list[tuple[Cell, Why]] = []
    states: Counter[str] = Counter()
    elsewhere = recorded_elsewhere([cell for cell in cells if cell.key not in entries], scale, file.parent)
    for cell in cells:
        if cell.key in elsewhere:
            continue
        entry = entries.get(cell.key)
        state = "new" if entry is None else freshness(entry)
        why = _why(cell, scale, entry, state)
        if why is None or (why == "sources changed" and keep_old):
            states[state] += 1
        else:
            todo.append((cell, why))
    counts = states.total(), states["changed"], states["unrecorded"]
    leaving = _leaving([cell for cell, _ in todo], scale, record)
    return Plan(recipe, scale, file, record, todo, *counts, shared=list(elsewhere.values()), leaving=leaving)


def _leaving(todo: Sequence[Cell], scale: Scale, record: Record) -> int:
    """How many runs leave the record when these cells are done: other seeds of their lines, with other settings."""
    keys = {cell.key for cell in todo}
    coming = [{**cell.place(), "config": cell.config(scale).to_dict()} for cell in todo]
    others = [entry for entry in record["runs"] if key_of(entry) not in keys]
    return sum(any(same_line_otherwise(entry, new) for new in coming) for entry in others)


def _why(cell: Cell, scale: Scale, entry: Mapping[str, Any] | None, state: str) -> Why | None:
    """Why a cell is to be run, or None."""
    if entry is None:
        return "new"
    if not is_run_of(cell.config(scale), entry):
        return "settings changed"
    if not all(measure.fits(measure.of(entry)) for measure in cell.recipe.measures):
        return "not measured in full"
    return "sources changed" if state == "changed" else None


def expected_seconds(record: Record, cell: Cell, scale: Scale) -> tuple[float, float] | None:
    """Seconds and core-seconds that a cell should take, from recorded runs of its line and world; None without any."""
    line = line_label(cell.row.label, cell.sweep)
    runs = [entry for entry in record["runs"] if line_of(entry) == line and entry["world"] == cell.world]
    runs = [entry for entry in runs if entry.get("sequences") and entry.get("wall_seconds") is not None]
    if not runs:
        return None
    sequences = cell.config(scale).train.sequences
    seconds = [entry["wall_seconds"] * sequences / entry["sequences"] for entry in runs]
    threads = [entry.get("hardware", {}).get("threads", 1) for entry in runs]
    return summarise(seconds).mean, summarise([a * b for a, b in zip(seconds, threads)]).mean


def plan_table(plans: Sequence[Plan]) -> Table:
    """What would be run: every cell, why, its sequences, and the core-minutes that the record leads one to expect."""
    rows, sequences, minutes, unknown = [], 0, 0.0, 0
    for plan in plans:
        for cell, why in plan.todo:
            budget = cell.config(plan.scale).train.sequences
            known = expected_seconds(plan.record, cell, plan.scale)
            cost = "–" if known is None else f"{known[1] / 60:.1f}"
            rows.append([plan.recipe.name, cell.title, why, f"{budget:,}", cost])
            sequences, minutes = sequences + budget, minutes + (known[1] / 60 if known else 0.0)
            unknown += known is None
    missing = f"No run of the same row and world is recorded for {unknown} of them: the sum is without these."
    sum_of_known = "–" if unknown == len(rows) else f"{minutes:.1f}"
    total = ["all", f"{len(rows)} runs", "", f"{sequences:,}", sum_of_known]
    headings = ["recipe", "cell", "why", "sequences", "core-minutes"]
    return Table("To run", headings, rows, [total], [missing] if unknown else [])
