"""From run folders to records: every folder of a cell says which cell it is, and holds all that was measured."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mapformers.errors import UserError, require
from mapformers.files import read_json, write_json
from mapformers.recipes.measures import OWN_KEYS
from mapformers.recipes.recipe import RECIPES, Cell, Recipe
from mapformers.recipes.record import Record, empty_record, is_run_of, key_of, with_added_rows, with_players, with_run
from mapformers.runs.config import Scale
from mapformers.runs.folder import RunFolder
from mapformers.runs.provenance import freshness
from mapformers.runs.run import load

CELL, MEASURES = "cell.json", "measures.json"


def cell_of(plain: Mapping[str, Any]) -> tuple[Cell, Scale]:
    """The cell and the scale that cell.json names; refused in one sentence if there is no such cell any more."""
    require(isinstance(plain, Mapping), f"{CELL} is not what `mapformers reproduce` wrote; run the cell anew.")
    missing = [name for name in ("recipe", "scale", "row", "world", "seed", "sweep") if name not in plain]
    require(not missing, f"{CELL} does not say {' or '.join(missing)}; restore it, or run the cell anew.")
    words = all(isinstance(plain[name], str) for name in ("recipe", "scale", "row", "world"))
    require(words and isinstance(plain["sweep"], Mapping), f"{CELL} is not what `mapformers reproduce` wrote.")
    recipe = with_added_rows(RECIPES[plain["recipe"]], [plain])
    cell = recipe.cell(plain["row"], plain["world"], plain["seed"], **plain["sweep"])
    return cell, plain["scale"]


def measure_run(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Everything the recipe measures of a finished run, kept in its folder: what is there is not measured again."""
    file, kept = folder / MEASURES, kept_measures(folder)
    missing = [measure for measure in recipe.measures if not measure.fits(kept.get(measure.name))]
    if missing:
        run = load(folder)
        require(
            run.step == run.result.get("steps"),
            f"The last checkpoint of {folder} is missing or damaged: resume the run, or move the folder away.",
        )
        for fault in run.faults:
            print(fault, file=sys.stderr)
        for measure in missing:  # each is kept at once: one that fails later does not cost the others
            kept[measure.name] = measure.measure(run)
            with suppress(OSError):  # a folder that may only be read
                write_json(file, kept)
    return {measure.name: kept[measure.name] for measure in recipe.measures}


def kept_measures(folder: Path) -> dict[str, Any]:
    """What was measured of a run; nothing where the file is damaged, since it can be measured again."""
    try:
        kept = read_json(folder / MEASURES)
    except UserError:
        return {}
    return kept if isinstance(kept, dict) else {}


def entry_of(cell: Cell, folder: Path) -> dict[str, Any]:
    """What the record keeps of a finished cell: which it is, its config, result.json and what was measured."""
    found = measure_run(cell.recipe, folder)
    own = {name: found[name] for name in OWN_KEYS if name in found}
    others = {name: data for name, data in found.items() if name not in OWN_KEYS}
    return {**cell.place(), **config_and_result(folder), **own, "measures": others}


def config_and_result(folder: Path) -> dict[str, Any]:
    """The config of a finished run, and what result.json says, with all the sources that it was run with."""
    run = RunFolder(folder)
    result = read_json(run.result_file)
    for name in ("commit", "sources"):
        result.setdefault(name, None)  # a run from before they were recorded
    began = read_json(folder / CELL).get("sources")
    return {"config": read_json(run.config_file), **result, "sources": joined_sources(began, result["sources"])}


def joined_sources(before: str | None, after: str | None) -> str | None:
    """The sources of a run that began with some and went on with others: a text that no hash is equal to."""
    if before is None or after is None:
        return after
    return before if before.split(", then ")[-1] == after else f"{before}, then {after}"


@dataclass
class Collected:
    """``records``: (recipe, scale) -> record; ``skipped``: folder -> why it is in none of them."""

    records: dict[tuple[str, Scale], Record] = field(default_factory=dict)
    skipped: dict[Path, str] = field(default_factory=dict)


def collect(folders: Sequence[str | Path]) -> Collected:
    """Rebuild the records of recipes from run folders, or from folders that hold run folders at any depth.

    Of two folders of one cell, that with a run of the sources as they are now is taken.
    """
    collected = Collected()
    for folder in sorted(_run_folders(folders), key=_is_current, reverse=True):
        try:
            _add(collected, folder)
        except UserError as error:
            collected.skipped[folder] = str(error)
    for (name, scale), record in collected.records.items():
        collected.records[name, scale] = with_players(RECIPES[name], record)
    return collected


def _is_current(folder: Path) -> bool:
    try:
        return freshness(config_and_result(folder)) == "current"
    except (UserError, LookupError, TypeError, AttributeError):  # not finished, or no run of ours: `_add` says so
        return False


def _add(collected: Collected, folder: Path) -> None:
    require((folder / CELL).exists(), f"It has no {CELL}, so it is not the run of a recipe.")
    cell, scale = cell_of(read_json(folder / CELL))
    unfinished = "The run has not come to its end; `mapformers reproduce` resumes it."
    require(RunFolder(folder).result_file.exists(), unfinished)
    other = "It was made with other settings than the recipe has now."
    require(is_run_of(cell.config(scale), {"config": read_json(RunFolder(folder).config_file)}), other)
    record = collected.records.get((cell.recipe.name, scale)) or empty_record(cell.recipe, scale)
    twice = any(key_of(entry) == cell.key for entry in record["runs"])
    require(not twice, "Another of the folders holds the same cell, and is taken.")
    collected.records[cell.recipe.name, scale] = with_run(record, entry_of(cell, folder))


def _run_folders(folders: Sequence[str | Path]) -> Iterator[Path]:
    for given in map(Path, folders):
        require(given.is_dir(), f"There is no folder {given}; give folders that `mapformers reproduce` wrote runs to.")
        found = sorted({file.parent for name in (CELL, "config.json") for file in given.rglob(name)})
        require(bool(found), f"{given} holds no run; give a folder that `mapformers reproduce` wrote runs to.")
        yield from found
