"""The state of a command's cells, and the loop that hands them out until none is left."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mapformers.errors import UserError
from mapformers.launch.work import LOG, Work
from mapformers.signals import interrupting, told

ATTEMPTS = 2  # of a cell; the second after all others had their turn
PAUSE = 0.2  # seconds between two looks at who has come to an end


class Place(Protocol):
    """Where cells run: processes of this machine, or a cluster."""

    def room(self) -> int: ...
    def is_free(self, work: Work) -> bool: ...
    def start(self, works: Sequence[Work]) -> None: ...
    def ended(self) -> Iterator[tuple[Work, str | None]]: ...
    def leave(self) -> str: ...


@dataclass
class Board:
    """Which cells wait, run, are done (a count) and have failed for good (with the reason)."""

    waiting: list[Work]
    running: list[Work] = field(default_factory=list)
    done: int = 0
    failed: dict[Work, str] = field(default_factory=dict)
    attempts: dict[Work, int] = field(default_factory=dict)

    def take(self, place: Place) -> list[Work]:
        """The next cells to run: not those that another command has at work in the same folder."""
        free = (work for work in self.waiting if place.is_free(work))
        taken = [work for _, work in zip(range(place.room()), free)]
        self.waiting = [work for work in self.waiting if work not in taken]
        self.running += taken
        for work in taken:
            self.attempts[work] = self.attempts.get(work, 0) + 1
        return taken

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


def run_board(
    board: Board,
    place: Place,
    keep: Callable[[Work], str],
    say: Callable[[str], None],
    refresh: Callable[[], None],
) -> None:
    """Run every cell of a board. ``keep`` puts a finished one into its record and returns its figures in words.

    A failed cell is tried once more at the end, and stops no other. Ctrl-C and SIGTERM leave the place in order.
    """
    total = len(board.waiting)
    with interrupting():
        try:
            while board.waiting or board.running:
                taken = board.take(place)
                there = [work for work in taken if work.is_finished()]
                place.start([work for work in taken if work not in there])
                ended: list[tuple[Work, str | None]] = [*((work, None) for work in there), *place.ended()]
                for work, fate in ended:
                    say(_settle(board, work, fate, keep, total))
                refresh()
                if not ended:
                    time.sleep(PAUSE)
        except KeyboardInterrupt as error:
            say(place.leave())
            raise told(error) from None
        except BaseException:
            say(place.leave())
            raise


def _settle(board: Board, work: Work, fate: str | None, keep: Callable[[Work], str], total: int) -> str:
    """Keep what a cell measured, or note that it failed; returns the line that says so."""
    failure, words = None, ""
    try:
        if work.is_finished():
            words = keep(work)
        else:
            failure = fate or work.failure() or f"it ended without a word (see {LOG} of its folder)"
    except UserError as error:  # a folder that cannot be read
        failure = str(error)
    if board.end(work, failure):
        return f"{work.cell.title}: failed: {failure}; it is tried once more."
    return f"({board.done + len(board.failed)}/{total}) {work.cell.title}: {words or f'failed: {failure}'}"
