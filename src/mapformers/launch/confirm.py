"""Confirm recorded runs whose sources have changed since: the first part of each is trained again, and must agree.

A change to the sources marks every run that they decide as old, even if it changes nothing that is computed. A run is
confirmed if it comes to the first telling point of its recorded curve, where the figure is neither 0 nor 1, with the
same figure to the last digit: hundreds of steps of sampling, model, gradients, optimiser and evaluation then agree.
What only its end depends on, such as the settings of an OOD split, is not looked at.
"""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mapformers.errors import UserError
from mapformers.recipes.measures import Curve
from mapformers.recipes.recipe import RECIPES
from mapformers.recipes.record import Record, key_of, line_of, update_record
from mapformers.runs.config import RunConfig
from mapformers.runs.folder import RunFolder
from mapformers.runs.provenance import commit, is_stale, sources_hash
from mapformers.training.loop import Trainer


@dataclass(frozen=True)
class Confirmation:
    """What training the first part of a run again gave; ``fault``: why it could not be compared."""

    run: Mapping[str, Any]
    sequences: int = 0
    metric: str = ""
    found: float | None = None
    recorded: float | None = None
    fault: str = ""

    @property
    def holds(self) -> bool:
        return not self.fault and self.found == self.recorded

    def __str__(self) -> str:
        title = f"{line_of(self.run)}, {self.run['world']}, seed {self.run['seed']}"
        if self.fault:
            return f"{title}: not confirmed: {self.fault}"
        ours = f"{self.metric} {_shown(self.found)} after {self.sequences:,} sequences"
        return f"{title}: {ours}, as recorded" if self.holds else f"{title}: {ours}, recorded {_shown(self.recorded)}"


def confirm(file: Path, record: Record, jobs: int = 1) -> Iterator[Confirmation]:
    """Compare every run of a record whose sources have changed; each that agrees is noted in the file at once."""
    old = [run for run in record["runs"] if is_stale(run)]
    for confirmation in _in_processes(partial(compare, RECIPES[record["recipe"]].curve), old, jobs):
        if confirmation.holds:
            update_record(file, partial(_with_confirmation, confirmation), record)
        yield confirmation


def compare(curve: Curve | None, run: Mapping[str, Any]) -> Confirmation:
    """Train a recorded run up to the first telling point of its curve."""
    points = [] if curve is None else curve.points(run)
    if curve is None or not points:
        return Confirmation(run, fault="its record has no learning curve.")
    torch.set_num_threads(run.get("hardware", {}).get("threads", 1))
    sequences, recorded = next((point for point in points if point[1] not in (0, 1)), points[0])
    try:
        config = RunConfig.from_dict(run["config"])
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(config, RunFolder.create(Path(folder), config), Console(quiet=True))
            found = trainer.measured_at(int(sequences) // config.train.batch_size)
    except UserError as error:
        return Confirmation(run, fault=str(error))
    return Confirmation(run, int(sequences), curve.metric, found[curve.metric], recorded)


def _in_processes(
    look: Callable[[Mapping[str, Any]], Confirmation], runs: Sequence[Mapping[str, Any]], jobs: int
) -> Iterator[Confirmation]:
    if jobs == 1:
        yield from map(look, runs)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(look, runs)


def _with_confirmation(confirmation: Confirmation, record: Record) -> Record:
    noted = {"sources": sources_hash(confirmation.run["config"]), "commit": commit()}
    key = key_of(confirmation.run)
    runs = [{**run, "confirmed": noted} if key_of(run) == key else run for run in record["runs"]]
    return {**record, "runs": runs}


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.6f}"
