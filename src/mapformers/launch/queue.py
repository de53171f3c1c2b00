"""The queue of a command's cells, and the loop that runs them until none is left."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mapformers.errors import UserError
from mapformers.launch.work import LOG, Work
from mapformers.signals import interrupting, told

ATTEMPTS = 2  # of a cell; the second after all others had their turn
PAUSE = 0.2  # seconds between two looks at who has come to an end


class Executor(Protocol):
    """Where cells run: processes of this machine, or a cluster."""

    def free_slots(self) -> int: ...
    def is_free(self, work: Work) -> bool: ...
    def start(self, works: Sequence[Work]) -> None: ...
    def ended(self) -> Iterator[tuple[Work, str | None]]: ...
    def shut_down(self) -> str: ...


@dataclass
class Queue:
    """Which cells wait, run, are done (a count) and have failed for good (with the reason)."""

    waiting: list[Work]
    running: list[Work] = field(default_factory=list)
    done: int = 0
    failed: dict[Work, str] = field(default_factory=dict)
    attempts: dict[Work, int] = field(default_factory=dict)

    def take(self, executor: Executor) -> list[Work]:
        """The next cells to run: not those that another command has at work in the same folder."""
        free = (work for work in self.waiting if executor.is_free(work))
        taken = [work for _, work in zip(range(executor.free_slots()), free)]
        self.waiting = [work for work in self.waiting if work not in taken]
        self.running += taken
        for work in taken:
            self.attempts[work] = self.attempts.get(work, 0) + 1
        return taken

    def give_way(self, work: Work) -> None:
        """Another command took the cell at the same moment: it waits until that one is done with it."""
        self.running.remove(work)
        self.waiting.append(work)
        self.attempts[work] -= 1

    def end(self, work: Work, failure: str | None) -> bool:
        """A cell has come to an end; returns whether it will be tried again."""
        self.running.remove(work)
        again = failure is not None and self.attempts[work] < ATTEMPTS
        if again:
            self.waiting.append(work)
        elif failure is not None:
            self.failed[work] = failure
        else:
            self.done += 1
        return again


def run_queue(
    queue: Queue,
    executor: Executor,
    keep: Callable[[Work], str],
    say: Callable[[str], None],
    refresh: Callable[[], None],
) -> None:
    """Run every cell of a queue. ``keep`` puts a finished one into its record and returns its figures in words.

    A failed cell is tried once more at the end, and stops no other. Ctrl-C and SIGTERM leave the executor in order.
    """
    total = len(queue.waiting)
    with interrupting():
        try:
            while queue.waiting or queue.running:
                taken = queue.take(executor)
                there = [work for work in taken if work.is_finished()]
                executor.start([work for work in taken if work not in there])
                ended: list[tuple[Work, str | None]] = [*((work, None) for work in there), *executor.ended()]
                for work, reason in ended:
                    if work.is_finished() or executor.is_free(work):
                        say(_settle(queue, work, reason, keep, total))
                    else:
                        queue.give_way(work)
                refresh()
                if not ended:
                    time.sleep(PAUSE)
        except KeyboardInterrupt as error:
            say(executor.shut_down())
            raise told(error) from None
        except BaseException:
            say(executor.shut_down())
            raise


def _settle(queue: Queue, work: Work, reason: str | None, keep: Callable[[Work], str], total: int) -> str:
    """Keep what a cell measured, or note that it failed; returns the line that says so."""
    failure, words = None, ""
    try:
        if work.is_finished():
            words = keep(work)
        else:
            failure = reason or work.failure() or f"it ended without a word (see {LOG} of its folder)"
    except UserError as error:  # a folder that cannot be read
        failure = str(error)
    if queue.end(work, failure):
        return f"{work.cell.title}: failed: {failure}; it is tried once more."
    return f"({queue.done + len(queue.failed)}/{total}) {work.cell.title}: {words or f'failed: {failure}'}"
