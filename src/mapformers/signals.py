"""What Ctrl-C and SIGTERM do: end a process that has nothing to lose, or interrupt it where it can be put in order.

SIGTERM is what a scheduler sends before it takes the machine away.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED, TERMINATED = 130, 143  # exit codes: 128 and the number of the signal
ONE_REQUEST = 1.0  # seconds within which `torchrun` or Slurm may send the same request twice
SENT_TWICE = ("RANK", "SLURM_JOB_ID")  # where they are at work, by what they set


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what Ctrl-C would end is ended in the same way, with another exit code."""


class Stopped(KeyboardInterrupt):
    """A run was asked to stop, has saved and has said so: nothing is left to say."""


class StoppedByTerm(Stopped, Terminated):
    """The same after a SIGTERM."""


def exit_code(error: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


def told(error: KeyboardInterrupt) -> Stopped:
    """The same interruption, once the user was told what became of the work."""
    return StoppedByTerm() if isinstance(error, Terminated) else Stopped()


def sentence(error: KeyboardInterrupt) -> str:
    """What to tell the user who ended a command; nothing if that was said."""
    if isinstance(error, Stopped):
        return ""
    return "Ended by SIGTERM." if isinstance(error, Terminated) else "Interrupted by Ctrl-C."


def end_at_once() -> None:
    """From now on a signal ends the process with one sentence: while modules are imported, and on the way out."""

    def end(signum: int, frame: FrameType | None) -> None:
        error = _raised(signum)
        os.write(2, f"mapformers: {sentence(error)}\n".encode())
        os._exit(exit_code(error))

    _answer({signal.SIGINT: end, signal.SIGTERM: end})


@contextmanager
def interrupting() -> Iterator[None]:
    """Inside the ``with`` block a signal raises, so that files are closed and workers are stopped on the way out."""
    before = _answer({signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate})
    try:
        yield
    finally:
        _answer(before)


class Requests:
    """The signals that came while they were only noted."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.when = 0.0

    def __bool__(self) -> bool:
        return self.first is not None

    def note(self, signum: int, frame: FrameType | None) -> None:
        """The first request is noted, the second one interrupts."""
        now = time.monotonic()
        if self.first is None:
            self.first, self.when = signum, now
            return
        same = signum == signal.SIGTERM and now - self.when < ONE_REQUEST
        if not (same and any(name in os.environ for name in SENT_TWICE)):
            raise _raised(signum)

    def stopped(self) -> Stopped:
        """What ends the run that was asked to stop. If only another process of the run was, that was no Ctrl-C."""
        return told(KeyboardInterrupt() if self.first == signal.SIGINT else Terminated())


@contextmanager
def noted() -> Iterator[Requests]:
    """Inside the ``with`` block the first Ctrl-C or SIGTERM is only noted, so that a loop can stop where it is safe to.

    One that came too late to be heeded there interrupts afterwards.
    """
    requests = Requests()
    before = _answer({signal.SIGINT: requests.note, signal.SIGTERM: requests.note})
    try:
        yield requests
    finally:
        _answer(before)
    if requests.first is not None:
        raise _raised(requests.first)


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated


def _raised(signum: int) -> KeyboardInterrupt:
    return Terminated() if signum == signal.SIGTERM else KeyboardInterrupt()


def _answer(handlers: dict[signal.Signals, Any]) -> dict[signal.Signals, Any]:
    """Install handlers and return those before; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, new) or signal.SIG_DFL for number, new in handlers.items()}
