"""A cell to run: the folder it runs in, what a process must be told of it, and how to read how far it is."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mapformers.errors import require
from mapformers.files import read_json
from mapformers.recipes.collect import CELL, cell_of, kept_measures
from mapformers.recipes.recipe import Cell
from mapformers.recipes.record import is_run_of
from mapformers.runs.config import RunConfig, Scale
from mapformers.runs.folder import RunFolder
from mapformers.runs.metrics import parse_line
from mapformers.runs.provenance import sources_hash

FAILURE, LOG = "failure.txt", "log.txt"
TAIL = 8192  # bytes at the end of metrics.jsonl that hold its newest lines


@dataclass(frozen=True, eq=False)
class Work:
    """One cell and where it runs.

    ``keep_old``: go on with a run whose sources have changed since it began.
    """

    cell: Cell
    scale: Scale
    folder: Path
    threads: int = 1
    keep_old: bool = False

    @cached_property
    def config(self) -> RunConfig:
        return self.cell.config(self.scale)

    @cached_property
    def metric(self) -> str:
        """What its task is scored by first of all."""
        return self.config.build_task().main_metric

    def to_dict(self) -> dict[str, Any]:
        """What the process that runs it is told; ``command``: what was typed, for the record."""
        return {
            "cell": self.cell.to_dict(self.scale),
            "config": self.config.to_dict(),
            "folder": str(self.folder.resolve()),
            "threads": self.threads,
            "keep_old": self.keep_old,
            "command": list(sys.argv),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Work":
        cell, scale = cell_of(plain["cell"])
        same = is_run_of(cell.config(scale), {"config": plain["config"]})
        require(same, "The recipe's own file says other settings for this cell; change them there, and start again.")
        return cls(cell, scale, Path(plain["folder"]), plain["threads"], plain["keep_old"])

    def is_finished(self) -> bool:
        """Whether its run has come to its end and all that the recipe measures of it is in the folder."""
        if not RunFolder(self.folder).result_file.exists():
            return False
        kept = kept_measures(self.folder)
        return all(measure.fits(kept.get(measure.name)) for measure in self.cell.recipe.measures)

    def failure(self) -> str | None:
        """The sentence with which the last attempt ended, if it failed."""
        file = self.folder / FAILURE
        return file.read_text(encoding="utf-8") if file.exists() else None

    def progress(self) -> "Progress":
        """How far the run is, from the end of its metrics.jsonl."""
        step, score, speed = 0, None, 0.0
        for line in _last_lines(RunFolder(self.folder).metrics_file):
            step = max(step, line.get("step", 0))
            if "sequences_per_second" in line:
                score, speed = line.get(self.metric), line["sequences_per_second"] or 0.0
        train = self.config.train
        left = (train.steps - step) * train.batch_size / speed if speed else None
        return Progress(step, train.steps, score, speed, left, self.metric)


@dataclass(frozen=True)
class Progress:
    """``score``: of the last logged batch, by ``metric``; ``speed``: sequences per second; ``left``: seconds."""

    step: int
    steps: int
    score: float | None
    speed: float
    left: float | None
    metric: str = "accuracy"


def _last_lines(file: Path) -> list[dict[str, Any]]:
    """The whole lines within the last bytes of a file of JSON lines."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - TAIL))
            lines = opened.read().split(b"\n")
    except OSError:
        return []
    return [line for line in map(parse_line, lines) if line is not None]


def cell_folder(runs: Path, cell: Cell, scale: Scale, keep_old: bool = False) -> Path:
    """Where a cell runs; one whose settings or sources have changed gets another folder, and the old one stays.

    ``keep_old``: the sources may have changed, so a run that is there is gone on with, a finished one above all.
    """
    config = cell.config(scale)
    mark = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"\W+", "-", f"{cell.title} {mark}".replace("seed ", "seed"))
    first, now = runs / cell.recipe.name / scale / name, sources_hash(config)
    fresh = first.with_name(f"{name}-{now[:8]}")
    if keep_old:
        there = [folder for folder in (first, *sorted(first.parent.glob(f"{name}-*"))) if folder.exists()]
        finished = [folder for folder in there if RunFolder(folder).result_file.exists()]
        return next(iter([*finished, *there]), first)
    return first if not fresh.exists() and _made_with(first) <= {now} else fresh


def _made_with(folder: Path) -> set[str]:
    """The sources that a run in a folder began and ended with, as far as it says."""
    files = (folder / CELL, RunFolder(folder).result_file)
    told = [read_json(file) for file in files if file.exists()]
    return {str(each["sources"]) for each in told if isinstance(each, dict) and each.get("sources")}
