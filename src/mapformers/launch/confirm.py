"""Confirm recorded runs whose sources have changed since: old and new sources must compute the same.

A change to the sources marks every run that they decide as old, even if it changes nothing that is computed. A run is
confirmed if the sources that it was measured with, taken from its commit, and those of now end a run of a few steps
with the same weights to the last bit, and with the same figures on every split. Both are run on this machine: another
processor rounds otherwise, and after some hundred steps comes to another figure. Of runs that differ in nothing but the
seed and the learning rate, which are numbers that the same lines compute with, one is compared for all.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from mapformers.errors import UserError, require
from mapformers.launch import first_steps
from mapformers.recipes.recipe import Key
from mapformers.recipes.record import Record, key_of, line_of, update_record
from mapformers.runs.checkout import commit, unpack_commit
from mapformers.runs.provenance import is_stale
from mapformers.runs.sources import PACKAGE

COMPARED = ("losses", "splits", "weights")


@dataclass(frozen=True)
class Confirmation:
    """What the first steps of a run gave with its old sources and with those of now."""

    run: Mapping[str, Any]
    differs: tuple[str, ...] = ()
    """What is not the same."""
    fault: str = ""
    """Why it could not be compared."""
    sources: str = ""
    """A hash of the sources of now."""
    compared: Mapping[str, Any] | None = None
    """The run that was compared in its place, which has another seed or learning rate."""

    @property
    def holds(self) -> bool:
        return not self.fault and not self.differs

    def __str__(self) -> str:
        title = title_of(self.run)
        if self.compared is not None:
            title += f" (by {title_of(self.compared)})"
        if self.fault:
            return f"{title}: not confirmed: {self.fault}"
        if self.differs:
            return f"{title}: not confirmed: old and new sources differ in {' and '.join(self.differs)}."
        return f"{title}: the same weights and figures from old and new sources"


def title_of(run: Mapping[str, Any]) -> str:
    return f"{line_of(run)}, {run['world']}, seed {run['seed']}"


def confirm(file: Path, record: Record, jobs: int = 1) -> Iterator[Confirmation]:
    """Judge every run of a record whose sources have changed; those that agree are noted in the file at once."""
    groups = alike([run for run in record["runs"] if is_stale(run)])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        first = pool.map(partial(compare, Commits(Path(folder))), [group[0] for group in groups])
        for found, group in zip(first, groups):
            if found.holds:
                update_record(file, partial(_with_confirmation, found, {key_of(run) for run in group}), record)
            yield found
            yield from (replace(found, run=run, compared=group[0]) for run in group[1:])


def alike(runs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Runs of the same sources and threads whose configs differ in the seed and the learning rate at most."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        known, config = run.get("confirmed", run), dict(run["config"])
        config["train"] = {name: value for name, value in config.get("train", {}).items() if name != "lr"}
        config.pop("seed", None)
        same = [config, known.get("sources"), known.get("commit"), threads_of(run)]
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    return list(groups.values())


def threads_of(run: Mapping[str, Any]) -> int:
    threads: int = run.get("hardware", {}).get("threads", 1)
    return threads


class Commits:
    """The package as it was at earlier commits, each unpacked once."""

    def __init__(self, folder: Path):
        self.folder, self._lock = folder, Lock()

    def __call__(self, name: str) -> Path:
        """The folder to import mapformers from."""
        with self._lock:
            target = self.folder / name
            if not target.exists():
                unpack_commit(name, target)
        return target


def compare(sources_at: Callable[[str], Path], run: Mapping[str, Any]) -> Confirmation:
    """Run the first steps with the sources that a run was last known to be of, and with those of now."""
    known = run.get("confirmed", run)
    try:
        require(bool(known.get("commit")), "its record names no commit.")
        then = _first_steps(run, sources_at(known["commit"].removesuffix("+changes")))
        changed = "it was measured with changes that are in no commit."
        require(then["sources"] == known["sources"], changed)
        now = _first_steps(run, PACKAGE.parent)
    except UserError as error:
        return Confirmation(run, fault=str(error))
    return Confirmation(run, tuple(name for name in COMPARED if then[name] != now[name]), sources=now["sources"])


def _first_steps(run: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """What the script `first_steps.py` prints with the package of a folder."""
    asked = {"config": run["config"], "threads": threads_of(run)}
    command = [sys.executable, "-P", str(Path(first_steps.__file__))]
    done = subprocess.run(
        command,
        input=json.dumps(asked),
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"its first steps ended in: {last}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _with_confirmation(confirmation: Confirmation, keys: Collection[Key], record: Record) -> Record:
    noted = {"sources": confirmation.sources, "commit": commit()}
    runs = [{**run, "confirmed": noted} if key_of(run) in keys else run for run in record["runs"]]
    return {**record, "runs": runs}
