"""Which cells of a recipe are still to do; their record is written after each, so nothing that was measured is lost."""

import hashlib
import json
import re
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mapformers.errors import UserError, require
from mapformers.files import clear_file_errors, write_json
from mapformers.launch.local import run_locally
from mapformers.plugins import import_inherited_plugins
from mapformers.recipes.collect import CELL, cell_of, entry_of
from mapformers.recipes.recipe import Cell, Recipe, Row
from mapformers.recipes.record import empty_record, has_run, read_record, with_players, with_run
from mapformers.runs.config import Scale
from mapformers.runs.folder import RunFolder
from mapformers.runs.provenance import commit, sources_hash
from mapformers.training.train import resume_run, start_run


def reproduce(
    recipe: Recipe,
    *,
    scale: Scale,
    seeds: int,
    rows: Sequence[Row] | None = None,
    jobs: int = 1,
    runs: Path,
    results: Path,
    console: Console,
) -> dict[str, Any]:
    """Train and measure every cell that the file ``results`` does not have yet, and return the record.

    A cell that fails leaves the others alone; at the end it is one sentence.
    """
    record = read_record(results) if results.exists() else empty_record(recipe, scale)
    cells = list(recipe.cells(rows, seeds))
    todo = [cell for cell in cells if not has_run(record, cell, scale)]
    ready = len(cells) - len(todo)
    console.print(f"{recipe.name} at {scale} scale: {len(todo)} runs to do, {ready} done.", highlight=False)
    with clear_file_errors("write to", results.parent):
        results.parent.mkdir(parents=True, exist_ok=True)
    whole = with_players(recipe, record)
    if whole != record:
        record = whole
        write_json(results, record)
    threads = max(1, torch.get_num_threads() // jobs)
    work = [(cell, (cell.to_dict(scale), runs, threads)) for cell in todo]
    failed: dict[str, Exception] = {}
    with closing(run_locally(run_cell, work, jobs)) as outcomes:
        for finished, (cell, outcome) in enumerate(outcomes, start=1):
            if isinstance(outcome, Exception):
                failed[cell.title] = outcome
                figures = f"failed: {outcome}"
            else:
                record = with_run(record, outcome)
                write_json(results, record)
                figures = _in_words(recipe, outcome)
            line = f"({finished}/{len(todo)}) {cell.title}: {figures}"
            console.print(line, highlight=False, soft_wrap=True, markup=False)
    require(not failed, _failures(failed, len(todo), runs))
    return record


def run_cell(plain: Mapping[str, Any], runs: Path, threads: int) -> dict[str, Any]:
    """One cell, in a process of its own; picks up where an interrupted one stopped. Its lines go to log.txt.

    ``plain`` names the cell as cell.json does; recipes of plug-ins are found by name like all others.
    """
    import_inherited_plugins()
    torch.set_num_threads(threads)
    cell, scale = cell_of(plain)
    folder = cell_folder(runs, cell, scale)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a") as log:
        try:
            return _run_in(folder, cell, scale, Console(file=log, force_terminal=False, width=160))
        except UserError:
            raise
        except Exception as error:
            log.write(traceback.format_exc())
            raise UserError(f"{type(error).__name__}: {error} (see log.txt of its folder)") from None


def _run_in(folder: Path, cell: Cell, scale: Scale, console: Console) -> dict[str, Any]:
    config, run = cell.config(scale), RunFolder(folder)
    commit()  # this and the hash are kept for the process: files may change while it trains
    sources = sources_hash(config)
    if not (folder / CELL).exists():
        write_json(folder / CELL, {**cell.to_dict(scale), "sources": sources})
    if run.config_file.exists():
        resume_run(folder, console, cell.title)
    else:
        start_run(config, folder, console, cell.title)
    return entry_of(cell, folder)


def cell_folder(runs: Path, cell: Cell, scale: Scale) -> Path:
    """Where a cell runs. One whose settings have changed gets another folder: the old run is not resumed, nor lost."""
    text = json.dumps(cell.config(scale).to_dict(), sort_keys=True)
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return runs / cell.recipe.name / scale / re.sub(r"\W+", "-", f"{cell.title} {mark}".replace("seed ", "seed"))


def _in_words(recipe: Recipe, entry: Mapping[str, Any]) -> str:
    """The figures of a run on one line."""
    values = {split: entry["splits"][split][recipe.metric]["value"] for split in recipe.splits}
    figures = [f"{split} {'–' if value is None else format(value, '.3f')}" for split, value in values.items()]
    return ", ".join(figures) or "done"


def _failures(failed: Mapping[str, Exception], asked: int, runs: Path) -> str:
    told = "; ".join(f"{title} ({error})" for title, error in failed.items())
    return f"{len(failed)} of {asked} runs failed: {told}; the others are kept, and their folders are in {runs}."
