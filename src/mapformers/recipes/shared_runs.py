"""Runs that two recipes share: measured once, shown in both."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mapformers.errors import UserError
from mapformers.recipes.recipe import RECIPES, Cell, Key
from mapformers.recipes.record import is_run_of, read_record, results_file
from mapformers.runs.config import Scale
from mapformers.runs.provenance import freshness


def recorded_elsewhere(cells: Sequence[Cell], scale: Scale, folder: Path) -> dict[Key, dict[str, Any]]:
    """What the record keeps of those cells of a recipe whose very run another recipe's record in the folder has.

    The run has the same config, the sources are as they are now, and all that the cell's recipe measures was measured.
    """
    names = {cell.recipe.name for cell in cells}
    others = {name: _runs(results_file(folder, name, scale)) for name in RECIPES if name not in names}
    found: dict[Key, dict[str, Any]] = {}
    for cell in cells:
        for name, runs in others.items():
            entry = next((run for run in runs if _is_of(cell, scale, run)), None)
            if entry is not None:
                found[cell.key] = {**entry, **cell.place(), "taken_from": entry.get("taken_from", name)}
                break
    return found


def _runs(file: Path) -> list[dict[str, Any]]:
    try:
        return list(read_record(file)["runs"]) if file.exists() else []
    except UserError:  # a damaged record of another recipe is no concern of this one
        return []


def _is_of(cell: Cell, scale: Scale, entry: Mapping[str, Any]) -> bool:
    return (
        entry["seed"] == cell.seed
        and "added" not in entry
        and all(measure.fits(measure.of(entry)) for measure in cell.recipe.measures)
        and is_run_of(cell.config(scale), entry)
        and freshness(entry) == "current"
    )
