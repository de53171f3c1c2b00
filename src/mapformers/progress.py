"""What a person sees of long work: a line that fits the terminal, plain lines elsewhere."""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mapformers.stages import Stage, innermost, listed, watched_by

LINE_EVERY = 15.0  # seconds between plain lines
FIRST_LINE = 1.5  # seconds before the first of them
LIVE_AFTER, LIVE_EVERY = 0.5, 0.25  # the same on a terminal
BAR = (8, 40)  # least and most columns of a bar
ECHO = 3  # columns left free: Ctrl-C is echoed there as ^C, and must not begin a line of its own


def duration(seconds: float) -> str:
    """``0:42``, ``12:05`` or ``3:20 h``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d} h" if minutes >= 60 else f"{minutes}:{rest:02d}"


def short_number(number: float) -> str:
    """A number in at most four characters: 950, 12k, 1.2M.

    Examples:
        >>> [short_number(number) for number in (0, 950, 1250, 12_500, 1_234_567)]
        ['0', '950', '1.2k', '12k', '1.2M']
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 10 * size else f"{number // size:.0f}{unit}"
    return f"{number:.0f}"


@dataclass(frozen=True)
class Figures:
    """How far a run is; ``left``: seconds."""

    step: int
    steps: int
    loss: float
    score: float
    speed: float
    left: float
    unit: str = "seq"

    def wordings(self, title: str, metric: str) -> Iterator[tuple[str, str]]:
        """The same figures in ever fewer columns: what stands before a bar, and what after it.

        No wording leaves out the step, their total, the loss, the score, the speed or the time left.
        """
        steps, left = f"{self.step}/{self.steps}", "–" if math.isinf(self.left) else duration(self.left)
        loss, score, speed = _figure(self.loss, ".3f"), _figure(self.score, ".3f"), f"{self.speed:.0f}"
        brief, percent = f"{metric[:3]} {score} ", f"{_figure(self.score, '.0%')} "
        score = f"{metric} {score} · "
        if metric == "loss":  # of a language model the loss is the score, and its perplexity easier to read
            score, brief = f"perplexity {perplexity(self.loss)} · ", f"ppl {perplexity(self.loss)} "
            percent = ""
        yield title, f"{steps} · loss {loss} · {score}{speed} {self.unit}/s · {left} left"
        yield title, f"{steps} · loss {loss} · {brief}· {speed}/s · {left}"
        yield "", f"{steps} · loss {loss} · {score}{speed} {self.unit}/s · {left} left"
        yield "", f"{steps} · loss {loss} · {brief}· {speed}/s · {left}"
        yield "", f"{steps} loss {loss} {brief}{speed}/s {left}"
        loss = _figure(self.loss, ".2f")
        yield "", f"{steps} loss {loss} {percent}{speed}/s {left}"
        steps, speed = f"{short_number(self.step)}/{short_number(self.steps)}", short_number(self.speed)
        yield "", f"{steps} loss {loss} {percent}{speed}/s {left}"
        yield "", f"{steps} {_figure(self.loss, '.2g')} {percent}{speed}/s {left}"


def perplexity(loss: float) -> str:
    """e^loss in few characters.

    Examples:
        >>> [perplexity(loss) for loss in (2.0, 5.2, 11.5, 900.0)]
        ['7.39', '181', '99k', '∞']
    """
    if not loss < 700:
        return "–" if math.isnan(loss) else "∞"
    value = math.exp(loss)
    return f"{value:.3g}" if value < 1000 else short_number(float(f"{value:.2g}"))  # which rounds, as counts must not


def _figure(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def one_line(
    wordings: Iterator[tuple[str, str]] | Sequence[tuple[str, str]], width: int, share: float | None = None
) -> RenderableType:
    """The first wording that fits, with a bar between its halves where there is room for one (``share`` of it done)."""
    room = width - ECHO
    before, after = "", ""
    for before, after in wordings:
        if len(before) + len(after) + 1 <= room + (not before):
            break
    free = room - len(before) - len(after) - 2
    grid = Table.grid(padding=(0, 1, 0, 0))
    parts: list[RenderableType] = [Text(before, no_wrap=True, overflow="ellipsis")] if before else []
    if share is not None and free >= BAR[0]:
        parts.append(ProgressBar(total=1.0, completed=share, width=min(free, BAR[1])))
    parts.append(Text(after, no_wrap=True, overflow="ellipsis"))
    for _ in parts:
        grid.add_column(no_wrap=True)
    grid.add_row(*parts)
    return grid


class StageDisplay:
    """Shows the stages under way: on a terminal one line, which vanishes in the end; elsewhere a line now and then."""

    def __init__(self, console: Console | None = None):
        self.given = console
        self.stages: list[Stage] = []

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[None]:
        """Watch a stage (`mapformers.stages.watched_by`)."""
        self.stages.append(stage)
        outermost = len(self.stages) == 1
        if outermost:
            self.console = self.given or Console(stderr=True)
            over = threading.Event()
            thread = threading.Thread(target=self._show, args=(over,), daemon=True)
            thread.start()
        try:
            yield
        finally:
            self.stages.remove(stage)
            if outermost:
                over.set()
                thread.join()

    def _show(self, over: threading.Event) -> None:
        if not self.console.is_terminal:
            pause = FIRST_LINE
            while not over.wait(pause):
                self.console.print(self._words(), highlight=False, soft_wrap=True, markup=False)
                pause = LINE_EVERY
        elif not over.wait(LIVE_AFTER):
            with Live(console=self.console, auto_refresh=False, transient=True) as live:
                while True:
                    live.update(self._drawn(self.console.width), refresh=True)
                    if over.wait(LIVE_EVERY):
                        break

    def _words(self) -> str:
        stages = list(self.stages)
        text = " · ".join(map(str, stages))
        since = duration(time.monotonic() - stages[0].began) if stages else ""
        return f"{text[:1].upper()}{text[1:]} ({since})"

    def _drawn(self, width: int) -> RenderableType:
        stages = list(self.stages)
        parts = [stage for stage in stages if stage.total]
        share = parts[-1].done / (parts[-1].total or 1) if parts else None
        words = self._words()
        inner = str(stages[-1]) if stages else ""
        return one_line([("", words), ("", inner), ("", inner[: width - ECHO - 1])], width, share)


class TrainingProgress:
    """Shows loss, accuracy (or perplexity), sequences per second and time left while a run goes on.

    ``unit``: in which the speed is shown instead of sequences, and how many of them a sequence has.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        done: int,
        batch_size: int,
        console: Console,
        metric: str = "accuracy",
        unit: tuple[str, int] = ("seq", 1),
    ):
        self.title, self.steps, self.batch_size = title, steps, batch_size
        self.unit, self.per_sequence = unit
        self.console, self.metric = console, metric
        self.first_step, self.step = done, done
        self.started = self.last_line = time.monotonic()
        self.loss = self.score = math.nan
        self.stages: list[Stage] = []
        self.stack = ExitStack()

    def __enter__(self) -> "TrainingProgress":
        if self.console.is_terminal:
            self.stack.enter_context(watched_by(partial(listed, self.stages)))
            live = Live(console=self.console, get_renderable=self._drawn, refresh_per_second=4, transient=True)
            self.stack.enter_context(live)
        else:
            self.stack.enter_context(watched_by(StageDisplay(self.console)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()
        if kind is None and self.console.is_terminal and self.step > self.first_step:
            self.say(" ".join(next(self._figures().wordings(self.title, self.metric))))

    @property
    def speed(self) -> float:
        """Sequences per second since this process began the run."""
        return (self.step - self.first_step) * self.batch_size / max(1e-9, time.monotonic() - self.started)

    def update(self, step: int, loss: float, score: float) -> None:
        self.step, self.loss, self.score = step, loss, score
        now = time.monotonic()
        if not self.console.is_terminal and (now - self.last_line >= LINE_EVERY or step == self.steps):
            self.last_line = now
            figures = self._figures()
            named = f"perplexity {perplexity(loss)}" if self.metric == "loss" else f"{self.metric} {score:.3f}"
            self.say(
                f"{self.title}: step {step}/{self.steps}, loss {loss:.3f}, {named}, "
                f"{figures.speed:.0f} {self.unit}/s, {duration(figures.left)} left"
            )

    def say(self, message: str) -> None:
        self.console.print(message, highlight=False, soft_wrap=True)

    def _figures(self) -> Figures:
        speed = self.speed
        left = (self.steps - self.step) * self.batch_size / speed if speed else math.inf
        return Figures(self.step, self.steps, self.loss, self.score, speed * self.per_sequence, left, self.unit)

    def _drawn(self) -> RenderableType:
        wordings = self._figures().wordings(innermost(self.stages, self.title), self.metric)
        return one_line(wordings, self.console.width, self.step / self.steps)
