"""Cells on this machine: a few processes side by side, one for each cell."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

from mapformers.launch.work import LOG, Work
from mapformers.runs.folder import RunFolder

PATIENCE = 60.0  # seconds in which a process that is asked to stop must have saved its run


class Processes:
    """Runs up to ``jobs`` cells at a time. A process that fails or is killed costs its own cell alone.

    The processes end with this one: at once if it is killed, after saving their runs if it stops them.
    """

    def __init__(self, jobs: int):
        self.jobs = jobs
        self.running: dict[Work, subprocess.Popen[bytes]] = {}

    def free_slots(self) -> int:
        """How many more cells it takes now."""
        return self.jobs - len(self.running)

    def is_free(self, work: Work) -> bool:
        """Whether nobody else is training in its folder."""
        return not RunFolder(work.folder).is_locked()

    def start(self, works: Sequence[Work]) -> None:
        for work in works:
            self.running[work] = start_process(work)

    def ended(self) -> Iterator[tuple[Work, str | None]]:
        """The cells that have come to an end since the last look, each with what befell it, if anything did."""
        for work, process in list(self.running.items()):
            code = process.poll()
            if code is not None:
                del self.running[work]
                _close(process)
                yield work, exit_reason(code)

    def shut_down(self) -> str:
        """Stop all processes; each saves its run first. Returns what to tell the user."""
        for process in self.running.values():
            process.terminate()
        try:
            for process in self.running.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE)
        finally:
            for process in self.running.values():
                process.kill()
                process.wait()
                _close(process)
        return "Stopped; the same command goes on where it was."


def start_process(work: Work) -> "subprocess.Popen[bytes]":
    """A process that runs a cell. Its stdin is a pipe that closes when this process ends; Ctrl-C does not reach it."""
    work.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "mapformers.launch.worker", json.dumps(work.to_dict())]
    with (work.folder / LOG).open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def _close(process: "subprocess.Popen[bytes]") -> None:
    """Let go of the pipe of a process that has ended."""
    if process.stdin is not None:
        process.stdin.close()


def exit_reason(code: int) -> str | None:
    """What an exit code says that the process itself could not: it was killed, or stopped from outside."""
    if code in (0, 1):  # its end, or a failure that failure.txt tells
        return None
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
    memory = ", perhaps for lack of memory" if name == "SIGKILL" else ""
    return f"the process was killed ({name}{memory})" if code < 0 else f"the process was stopped ({name})"
