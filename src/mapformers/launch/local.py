"""Cells on this machine: a few processes side by side, each with one cell at a time."""

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from mapformers.errors import UserError

Work = TypeVar("Work")
Outcome = dict[str, Any] | Exception


def run_locally(
    function: Callable[..., dict[str, Any]], work: Sequence[tuple[Work, tuple[Any, ...]]], jobs: int
) -> Generator[tuple[Work, Outcome], None, None]:
    """``function(*arguments)`` for every (name, arguments), ``jobs`` at a time: each name with what came of it, as it
    comes.

    Every lane is a process of its own. If it fails or is killed, its cell has an exception as outcome, and the others
    go on; after a kill the lane gets a new process. Ctrl-C and SIGTERM stop them all, and each saves its run first.
    """
    waiting = list(reversed(work))
    lanes: dict[Future[dict[str, Any]], tuple[ProcessPoolExecutor, Work]] = {}
    idle = [_process() for _ in range(min(jobs, len(work)))]
    with _sigterm_as_interrupt():
        try:
            while waiting or lanes:
                while waiting and idle:
                    lane, (name, arguments) = idle.pop(), waiting.pop()
                    lanes[lane.submit(function, *arguments)] = lane, name
                done, _ = wait(lanes, return_when=FIRST_COMPLETED)
                for future in done:
                    lane, name = lanes.pop(future)
                    outcome = _outcome(future)
                    if isinstance(outcome, BrokenProcessPool):
                        lane.shutdown()
                        lane, outcome = _process(), UserError("the process was killed, perhaps for lack of memory")
                    idle.append(lane)
                    yield name, outcome
        except BaseException:
            for child in active_children():  # each saves its run and stops
                child.terminate()
            raise
        finally:
            for lane in [*idle, *(lane for lane, _ in lanes.values())]:
                lane.shutdown(cancel_futures=True)


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _outcome(future: "Future[dict[str, Any]]") -> Outcome:
    """The result or what was raised; an interruption of a worker is one of all."""
    try:
        return future.result()
    except Exception as error:
        return error


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Within it a SIGTERM, which a scheduler sends before it takes the machine away, ends the work as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
