"""What a person sees while cells run: a live overview on a terminal, a line for each event elsewhere."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mapformers.launch.queue import Queue
from mapformers.launch.work import Progress, Work
from mapformers.progress import ECHO, duration, perplexity
from mapformers.stages import watched_by

REFRESH, HEARTBEAT = 1.0, 180.0  # seconds between looks at the folders; between plain lines where nothing happens
TITLE = 14  # columns that a title should have at least
SHORT = {"accuracy": "acc", "perplexity": "ppl"}


class Overview:
    """Shows a queue: done, running with their score, waiting, failed, time left.

    ``expected``  seconds that cells should take, as far as the record tells.
    ``parallel``  how many cells run at a time; None where a cluster decides.
    """

    def __init__(self, queue: Queue, console: Console, expected: Mapping[Work, float], parallel: int | None):
        self.queue, self.console, self.expected, self.parallel = queue, console, expected, parallel
        self.looked = self.said = time.monotonic()
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self.stack = ExitStack()

    def __enter__(self) -> "Overview":
        self.stack.enter_context(watched_by(None))  # one live line at a time
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
        """A line for each running cell, its title cut where the figures would not fit; then the summary."""
        room = self.console.width - ECHO
        found = self._progress()
        titles = max((len(work.cell.title) for work in found), default=0)
        forms = list(zip(*(wordings(progress) for progress in found.values()))) or [()]
        fitting = [form for least in (titles, TITLE) for form in forms if _columns(form) + least <= room]
        rows = next(iter(fitting), forms[-1])
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, room - _columns(rows)))
        for _ in range(4):
            grid.add_column(justify="right", no_wrap=True)
        for work, figures_of_it in zip(found, rows):
            grid.add_row(*map(Text, (work.cell.title, *figures_of_it)))
        return Group(grid, Constrain(Text(self._summary(found), style="bold"), room))

    def _in_a_line(self) -> str:
        found = self._progress()
        running = "; ".join(f"{work.cell.title}: {', '.join(figures(each))}" for work, each in found.items())
        return " — ".join(filter(None, [self._summary(found), running]))

    def _progress(self) -> dict[Work, Progress]:
        return {work: work.progress() for work in self.queue.running if work.folder.exists()}

    def _summary(self, found: Mapping[Work, Progress]) -> str:
        queue = self.queue
        counts = f"{queue.done} done, {len(queue.running)} running, {len(queue.waiting)} waiting"
        left = time_left(queue, found, self.expected, self.parallel)
        failed = f", {len(queue.failed)} failed" if queue.failed else ""
        return counts + failed + ("" if left is None else f", about {duration(left)} left")


def figures(progress: Progress) -> tuple[str, str, str, str]:
    """Steps, score, speed and time left of a running cell."""
    if progress.step == 0:
        return "starting", "", "", ""
    left = "measuring" if progress.step == progress.steps else duration(progress.left or 0.0) + " left"
    return f"step {progress.step}/{progress.steps}", " ".join(named(progress)), f"{progress.speed:.0f} seq/s", left


def named(progress: Progress) -> tuple[str, str]:
    """A score under its own name; a loss is in nats per token, and shown as the perplexity that it is."""
    is_loss = progress.metric == "loss"
    name = "perplexity" if is_loss else progress.metric.replace("_", " ")
    if progress.score is None:
        return name, "–"
    return name, perplexity(progress.score) if is_loss else f"{progress.score:.3f}"


def wordings(progress: Progress) -> Iterator[tuple[str, ...]]:
    """The figures of a running cell in ever fewer columns of the terminal."""
    long = figures(progress)
    yield long
    steps, score, speed, left = long
    name, value = named(progress) if score else ("", "")
    rest = speed.replace(" seq/s", "/s"), left.removesuffix(" left")
    steps = steps.removeprefix("step ")
    yield steps, f"{SHORT.get(name, name)} {value}".strip(), *rest
    yield steps, value, *rest


def _columns(rows: Sequence[Sequence[str]]) -> int:
    """Columns of the terminal that rows of figures take, with the space before each."""
    return sum(2 + max(map(len, column)) for column in zip(*rows))


def time_left(
    queue: Queue, found: Mapping[Work, Progress], expected: Mapping[Work, float], parallel: int | None
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
    rest = [totals.get(work, average) for work in queue.waiting]
    for work in queue.running:
        left = found[work].left if work in found else None
        rest.append(totals.get(work, average) if left is None else left)
    return max(sum(rest) / (parallel or max(1, len(rest))), max(rest, default=0.0))
