"""Cells through submitit: an array job of Slurm, or submitit's own processes on this machine.

A cell leaves all it measures in its folder, which cluster and user share, so nothing else travels back. job.json in
the folder names its job: the same command given again watches a job that is still there instead of sending another.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mapformers.errors import UserError, require
from mapformers.files import read_json, write_json
from mapformers.launch.cell import run_work
from mapformers.launch.work import Work
from mapformers.runs.folder import RunFolder

Cluster = Literal["local", "slurm"]
JOB = "job.json"
LOOK_EVERY = 2.0  # seconds between two questions to the scheduler
GRACE = 10.0  # seconds a shared file system may take to show what a job that has ended wrote
MINUTES = 240  # of a job, unless the user asks for other ones; a cell that needs more is requeued
MANY = 10**6


class CellJob:
    """What a job does. Told that its time is over (or that others need the node), it saves its run and is requeued."""

    def __init__(self, plain: Mapping[str, Any]):
        self.plain = plain

    def __call__(self) -> None:
        from submitit import JobEnvironment

        number = getattr(signal, f"SIG{JobEnvironment.USR_SIG}")
        requeue: Any = signal.getsignal(number)  # submitit's own answer, which exits
        asked: list[int] = []

        def save_first(*_: object) -> None:
            asked.append(number)
            signal.raise_signal(signal.SIGTERM)  # the training loop saves and stops

        signal.signal(number, save_first)
        try:
            failure = run_work(self.plain)
        except KeyboardInterrupt:
            if asked:
                requeue(number, None)
            raise SystemExit(130) from None
        require(failure is None, str(failure))

    def checkpoint(self) -> Any:
        """What submitit runs after a requeue: the same, which goes on from the newest checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Jobs:
    """Cells as jobs. ``jobs``: how many at a time; with Slurm as many as it likes unless given."""

    def __init__(self, cluster: Cluster, folder: Path, jobs: int | None, options: Mapping[str, str]):
        self.cluster, self.jobs = cluster, jobs
        self.executor = _executor(cluster, folder, jobs, options)
        self.running: dict[Work, str] = {}  # -> the id of its job
        self.own: dict[str, Any] = {}  # id -> submitit's job, of those sent by this command
        self.gone: dict[Work, float] = {}  # -> since when its job has not been there
        self.looked = 0.0

    def free_slots(self) -> int:
        return MANY if self.cluster == "slurm" else (self.jobs or 1) - len(self.running)

    def is_free(self, work: Work) -> bool:
        return self.cluster == "slurm" or not RunFolder(work.folder).is_locked()

    def start(self, works: Sequence[Work]) -> None:
        """Send the cells as one array job, but for those whose job is still there."""
        there = live_jobs(works) if self.cluster == "slurm" else {}
        self.running |= there
        new = [work for work in works if work not in there]
        if not new:
            return
        try:
            sent = self.executor.submit_array([CellJob(work.to_dict()) for work in new])
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            raise UserError(f"The jobs could not be submitted: {_reason(error)}") from None
        for work, job in zip(new, sent):
            work.folder.mkdir(parents=True, exist_ok=True)
            write_json(work.folder / JOB, {"cluster": self.cluster, "job": job.job_id})
            self.running[work], self.own[job.job_id] = job.job_id, job

    def ended(self) -> Iterator[tuple[Work, str | None]]:
        """The cells that are finished, and those whose job is gone without that."""
        now = time.monotonic()
        if not self.running or now - self.looked < LOOK_EVERY:
            return
        self.looked = now
        there = self._present()
        for work, job in list(self.running.items()):
            if job in there:
                self.gone.pop(work, None)
            since = None if job in there else self.gone.setdefault(work, now)
            told = since is not None and work.failure() is not None
            if work.is_finished() or told or (since is not None and now - since > GRACE):
                del self.running[work]
                self.gone.pop(work, None)
                yield work, None if told else f"its job {job} ended before the cell did"

    def _present(self) -> set[str]:
        if self.cluster == "local":
            return {job for job, sent in self.own.items() if not sent.done()}
        try:
            return queued()
        except UserError:  # a scheduler that is too busy to answer is asked again
            return set(self.running.values())

    def shut_down(self) -> str:
        """Slurm's jobs go on; submitit's own processes are stopped, and save their runs first."""
        if self.cluster == "slurm":
            numbers = " ".join(sorted({job.split("_")[0] for job in self.running.values()}))
            return f"The jobs go on; the same command watches them again, `scancel {numbers}` stops them."
        for job in self._present():
            os.kill(int(job), signal.SIGTERM)  # the controller of a job hands it on
        while self._present():
            time.sleep(0.1)
        return "Stopped; the same command goes on where it was."


def _executor(cluster: Cluster, folder: Path, jobs: int | None, options: Mapping[str, str]) -> Any:
    """submitit's executor. Options that submitit does not count itself go to sbatch as they are."""
    try:
        import submitit
    except ImportError:
        raise UserError("--cluster needs submitit: pip install 'mapformers[slurm]'.") from None
    if cluster == "local":
        require(not options, "--slurm gives options to Slurm; use it with --cluster slurm.")
        here = submitit.LocalExecutor(folder)
        here.update_parameters(timeout_min=MANY)
        return here
    require(shutil.which("sbatch") is not None, "There is no Slurm on this machine (no sbatch); leave out --cluster.")
    queued()
    rest = {name.replace("_", "-"): value for name, value in options.items() if name != "time"}
    cpus = [f"--cpus-per-task={rest['cpus-per-task']}"] if "cpus-per-task" in rest else []
    executor = submitit.SlurmExecutor(folder, max_num_timeout=MANY)
    executor.update_parameters(
        job_name="mapformers",
        time=minutes_of(options["time"]) if "time" in options else MINUTES,
        array_parallelism=jobs or MANY,
        stderr_to_stdout=True,
        srun_args=cpus,
        additional_parameters={"requeue": True, **rest},
    )
    return executor


def queued() -> set[str]:
    """The ids of this user's jobs that wait or run; those of an array one by one."""
    try:
        line = ["squeue", "--me", "--array", "--noheader", "--format=%i"]
        found = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"Slurm does not answer: {_reason(error)}") from None
    return set(found.stdout.split())


def live_jobs(works: Sequence[Work]) -> dict[Work, str]:
    """Those cells that have a job in Slurm's queue, with its id."""
    told = {work: read_json(work.folder / JOB) for work in works if (work.folder / JOB).exists()}
    ids = {work: str(job["job"]) for work, job in told.items() if job.get("cluster") == "slurm"}
    if not ids or shutil.which("squeue") is None:
        return {}
    there = queued()
    return {work: job for work, job in ids.items() if job in there}


def minutes_of(text: str) -> int:
    """Slurm's notation of time: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; a begun minute counts."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    require(found is not None, f"time is given as Slurm takes it, such as 04:00:00 or 1-12, not {text!r}.")
    assert found is not None
    days, first, second, third = (None if part is None else int(part) for part in found.groups())
    if days is not None:
        seconds = ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0)
    elif third is not None:
        seconds = ((first or 0) * 60 + (second or 0)) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    require(seconds > 0, f"time must be above zero, not {text!r}.")
    return -(-seconds // 60)


def _reason(error: Exception) -> str:
    """The last line of what a command said, which names the cause."""
    text = getattr(error, "stderr", None) or str(error)
    return str(text).strip().splitlines()[-1]
