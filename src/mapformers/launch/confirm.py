"""Confirm recorded runs whose sources have changed since: old and new sources must compute the same.

A change to the sources marks every run that they decide as old, even if it changes nothing that is computed. A run is
confirmed if the sources that it was measured with, taken from its commit, and those of now end a run of a few steps
with the same weights to the last bit, and with the same figures on every split. Both are run on this machine: another
processor rounds otherwise, and after some hundred steps comes to another figure. Of runs that differ in nothing but the
seed and the learning rate, which are numbers that the same lines compute with, one is compared for all. A process that
has imported the package of a commit does the first steps of one run after another.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
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
    groups.sort(key=lambda group: _known(group[0]).get("commit") or "")  # a process is used for the next of its commit
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(ProcessPool(most=2 * jobs)) as processes,
        ThreadPoolExecutor(jobs) as pool,
    ):
        first = pool.map(partial(compare, Commits(Path(folder)), processes), [group[0] for group in groups])
        for found, group in zip(first, groups):
            if found.holds:
                update_record(file, partial(_with_confirmation, found, {key_of(run) for run in group}), record)
            yield found
            yield from (replace(found, run=run, compared=group[0]) for run in group[1:])


def alike(runs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Runs of the same sources and threads whose configs differ in the seed and the learning rate at most."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        known, config = _known(run), dict(run["config"])
        config["train"] = {name: value for name, value in config.get("train", {}).items() if name != "lr"}
        config.pop("seed", None)
        same = [config, known.get("sources"), known.get("commit"), threads_of(run)]
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    return list(groups.values())


def _known(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sources and the commit that a run was last known to be of."""
    known: Mapping[str, Any] = run.get("confirmed", run)
    return known


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


class Process:
    """The script `first_steps.py` with the package of a folder; it does the first steps of one run after another."""

    def __init__(self, source: Path):
        self.source = source
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(first_steps.__file__))],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )

    def first_steps(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """What the script answers of a run. A fault ends it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = {"config": run["config"], "threads": threads_of(run)}
        with suppress(BrokenPipeError):
            print(json.dumps(asked), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"fault": f"exit code {self._process.wait()}"}
        if "fault" in answer:
            self.end()
            raise UserError(f"its first steps ended in: {answer['fault']}")
        return answer

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()


class ProcessPool:
    """ProcessPool that do first steps. At most so many are kept for the next run with their sources, the last used."""

    def __init__(self, most: int):
        self.most, self._lock = most, Lock()
        self._idle: list[Process] = []

    def first_steps(self, run: Mapping[str, Any], source: Path) -> dict[str, Any]:
        """By a process that is idle, or by a new one."""
        with self._lock:
            process = next((idle for idle in self._idle if idle.source == source), None)
            if process is not None:
                self._idle.remove(process)
        process = process or Process(source)
        figures = process.first_steps(run)
        with self._lock:
            self._idle.append(process)
            surplus, self._idle = self._idle[: -self.most], self._idle[-self.most :]
        for each in surplus:
            each.end()
        return figures

    def close(self) -> None:
        for process in self._idle:
            process.end()


def compare(sources_at: Callable[[str], Path], processes: ProcessPool, run: Mapping[str, Any]) -> Confirmation:
    """Run the first steps with the sources that a run was last known to be of, and with those of now."""
    known = _known(run)
    try:
        require(bool(known.get("commit")), "its record names no commit.")
        then = processes.first_steps(run, sources_at(known["commit"].removesuffix("+changes")))
        changed = "it was measured with changes that are in no commit."
        require(then["sources"] == known["sources"], changed)
        now = processes.first_steps(run, PACKAGE.parent)
    except UserError as error:
        return Confirmation(run, fault=str(error))
    return Confirmation(run, tuple(name for name in COMPARED if then[name] != now[name]), sources=now["sources"])


def _with_confirmation(confirmation: Confirmation, keys: Collection[Key], record: Record) -> Record:
    noted = {"sources": confirmation.sources, "commit": commit()}
    runs = [{**run, "confirmed": noted} if key_of(run) in keys else run for run in record["runs"]]
    return {**record, "runs": runs}
