"""Visible progress: a bar on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY = 15.0  # seconds between plain lines


class TrainingProgress:
    """Shows loss, accuracy, sequences per second and time left while a run goes on."""

    def __init__(self, title: str, steps: int, done: int, batch_size: int, console: Console, metric: str = "accuracy"):
        self.title, self.steps, self.batch_size = title, steps, batch_size
        self.console, self.metric = console, metric
        self.first_step, self.step = done, done
        self.started = self.last_line = time.monotonic()
        self.bar: Progress | None = None
        if console.is_terminal:
            score = "" if metric == "loss" else "· {task.fields[metric]} {task.fields[score]} "
            figures = TextColumn("loss {task.fields[loss]} " + score + "· {task.fields[speed]} seq/s")
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                figures,
                TimeRemainingColumn(),
                console=console,
            )
            self.row = self.bar.add_task(
                title, total=steps, completed=done, loss="–", metric=metric, score="–", speed="–"
            )

    def __enter__(self) -> "TrainingProgress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    @property
    def speed(self) -> float:
        """Sequences per second since this process began the run."""
        return (self.step - self.first_step) * self.batch_size / max(1e-9, time.monotonic() - self.started)

    def update(self, step: int, loss: float, score: float) -> None:
        self.step = step
        if self.bar is not None:
            self.bar.update(
                self.row, completed=step, loss=f"{loss:.3f}", score=f"{score:.3f}", speed=f"{self.speed:.0f}"
            )
            return
        now = time.monotonic()
        if now - self.last_line >= LINE_EVERY or step == self.steps:
            self.last_line = now
            left = (self.steps - step) * self.batch_size / max(1e-9, self.speed)
            figure = "" if self.metric == "loss" else f"{self.metric} {score:.3f}, "
            self.console.print(
                f"{self.title}: step {step}/{self.steps}, loss {loss:.3f}, {figure}"
                f"{self.speed:.0f} seq/s, {int(left) // 60}:{int(left) % 60:02d} left",
                highlight=False,
                soft_wrap=True,
            )

    def say(self, message: str) -> None:
        self.console.print(message, highlight=False, soft_wrap=True)
