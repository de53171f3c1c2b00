"""What a person sees while cells run: a live overview on a terminal, a line for each event elsewhere."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mapformers.launch.board import Board
from mapformers.launch.work import Progress, Work

REFRESH, HEARTBEAT = 1.0, 180.0  # seconds between looks at the folders; between plain lines where nothing happens


class Overview:
    """Shows a board: done, running with their accuracy, waiting, failed, time left.

    ``expected``  seconds that cells should take, as far as the record tells.
    ``lanes``     how many cells run at a time; None where a cluster decides.
    """

    def __init__(self, board: Board, console: Console, expected: Mapping[Work, float], lanes: int | None):
        self.board, self.console, self.expected, self.lanes = board, console, expected, lanes
        self.looked = self.said = time.monotonic()
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self.stack = ExitStack()

    def __enter__(self) -> "Overview":
        if self.live is not None:
            self.stack.enter_context(self.live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    def say(self, line: str) -> None:
        """Something happened."""
        self.said = time.monotonic()
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)

    def refresh(self) -> None:
        """Look at the running cells again, if it is time to."""
        now = time.monotonic()
        if self.live is not None and now - self.looked >= REFRESH:
            self.looked = now
            self.live.update(self._drawn(), refresh=True)
        if self.live is None and now - self.said >= HEARTBEAT:
            self.say(self._in_a_line())

    def _drawn(self) -> Group:
        grid = Table.grid(padding=(0, 2))
        for justify in ("left", "right", "right", "right", "right"):
            grid.add_column(justify=justify, no_wrap=True)
        found = self._progress()
        for work, progress in found.items():
            grid.add_row(*map(Text, (work.cell.title, *figures(progress))))
        return Group(grid, Text(self._summary(found), style="bold"))

    def _in_a_line(self) -> str:
        found = self._progress()
        running = "; ".join(f"{work.cell.title}: {', '.join(figures(each))}" for work, each in found.items())
        return " — ".join(filter(None, [self._summary(found), running]))

    def _progress(self) -> dict[Work, Progress]:
        return {work: work.progress() for work in self.board.running if work.folder.exists()}

    def _summary(self, found: Mapping[Work, Progress]) -> str:
        board = self.board
        counts = f"{board.done} done, {len(board.running)} running, {len(board.waiting)} waiting"
        left = time_left(board, found, self.expected, self.lanes)
        failed = f", {len(board.failed)} failed" if board.failed else ""
        return counts + failed + ("" if left is None else f", about {duration(left)} left")


def figures(progress: Progress) -> tuple[str, str, str, str]:
    """Steps, accuracy, speed and time left of a running cell."""
    if progress.step == 0:
        return "starting", "", "", ""
    score = "–" if progress.score is None else f"{progress.score:.3f}"
    left = "measuring" if progress.step == progress.steps else duration(progress.left or 0.0) + " left"
    return f"step {progress.step}/{progress.steps}", f"accuracy {score}", f"{progress.speed:.0f} seq/s", left


def time_left(
    board: Board, found: Mapping[Work, Progress], expected: Mapping[Work, float], lanes: int | None
) -> float | None:
    """Seconds until all is done; a cell of which nothing is known takes as long as the others do on average."""
    totals = dict(expected)
    for work, progress in found.items():
        if progress.speed:
            totals[work] = progress.steps * work.config.train.batch_size / progress.speed
    known = list(totals.values())
    if not known:
        return None
    average = sum(known) / len(known)
    rest = [totals.get(work, average) for work in board.waiting]
    for work in board.running:
        left = found[work].left if work in found else None
        rest.append(totals.get(work, average) if left is None else left)
    return max(sum(rest) / (lanes or max(1, len(rest))), max(rest, default=0.0))


def duration(seconds: float) -> str:
    """``0:42``, ``12:05`` or ``3:20 h``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d} h" if minutes >= 60 else f"{minutes}:{rest:02d}"
