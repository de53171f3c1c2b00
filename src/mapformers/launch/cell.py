"""One cell: train it or go on with it, measure it, and leave all in its folder."""

import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mapformers.errors import UserError, memory_asked_for, require
from mapformers.files import read_json, write_atomically, write_json
from mapformers.launch.work import FAILURE, LOG, Work
from mapformers.plugins import import_inherited_plugins
from mapformers.recipes.collect import CELL, joined_sources, measure_run
from mapformers.runs import checkpoint
from mapformers.runs.folder import RunFolder
from mapformers.runs.provenance import commit, sources_hash
from mapformers.training.train import resume_run, start_run

PAUSE = 0.2  # seconds between two looks at a folder that another process holds


def run_work(plain: Mapping[str, Any]) -> str | None:
    """Run a cell to its end; returns None, or the sentence that says why it failed, which stays in failure.txt.

    Its lines go to log.txt. Recipes of plug-ins are found by name like all others.
    """
    folder = Path(plain["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FAILURE).unlink(missing_ok=True)
    sys.argv[:] = plain["command"]  # what was typed is part of a result
    with (folder / LOG).open("a", encoding="utf-8", errors="backslashreplace") as log:
        try:
            import_inherited_plugins()
            work = Work.from_dict(plain)
            torch.set_num_threads(work.threads)
            train_and_measure(work, Console(file=log, force_terminal=False, width=160))
            return None
        except UserError as error:
            failure = str(error)
        except Exception as error:
            log.write(traceback.format_exc())
            size = memory_asked_for(error)
            why = (
                f"there is not enough memory, {size} was asked for at once"
                if size
                else f"{type(error).__name__}: {error}"
            )
            failure = f"{why} (see {LOG} of its folder)"
    write_atomically(folder / FAILURE, failure.encode(errors="replace"))
    return failure


def train_and_measure(work: Work, console: Console) -> None:
    """Start the run of a cell, or go on with it, unless it is done; then take the measures that are missing."""
    folder, run = work.folder, RunFolder(work.folder)
    commit()  # this and the hash are kept for the process: files may change while it trains
    _note_sources(work, sources_hash(work.config))
    if not run.config_file.exists():
        start_run(work.config, folder, console, work.cell.title)
    elif not _is_trained(work):
        resume_run(folder, console, work.cell.title)
    while run.is_locked():  # another command has taken it since, and measures it: what it keeps is not measured again
        time.sleep(PAUSE)
    with run.lock():  # or another command would take the cell for one that nobody is at work on
        measure_run(work.cell.recipe, folder)


def _is_trained(work: Work) -> bool:
    """Whether a run is at its end, with what measures of it need."""
    run = RunFolder(work.folder)
    if not run.result_file.exists():
        return False
    return work.is_finished() or checkpoint.is_whole(run.checkpoints, work.config.train.steps)


def _note_sources(work: Work, now: str) -> None:
    """Write cell.json; a run is not gone on with after its sources have changed, unless the user wants that."""
    file, run = work.folder / CELL, RunFolder(work.folder)
    if not (file.exists() and run.config_file.exists()):
        write_json(file, {**work.cell.to_dict(work.scale), "sources": now})
        return
    before = read_json(file).get("sources")
    if before not in (None, now) and not run.result_file.exists():
        changed = "The sources changed after this command was given; give it again to start anew, or with --keep-old."
        require(work.keep_old, changed)
        write_json(file, {**work.cell.to_dict(work.scale), "sources": joined_sources(before, now)})
