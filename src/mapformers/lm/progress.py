"""Visible progress of a preparation: a bar on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

LINE_EVERY = 15.0  # seconds between plain lines


class PrepareProgress:
    """Documents done, tokens made and megabytes of text per second."""

    def __init__(self, title: str, console: Console):
        self.title, self.console = title, console
        self.documents = self.tokens = self.text_bytes = 0
        self.total: int | None = None
        self.started = self.last_line = time.monotonic()
        self.bar: Progress | None = None
        if console.is_terminal:
            figures = TextColumn("{task.fields[figures]}")
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self.bar = Progress(*columns, figures, TimeRemainingColumn(), console=console)
            self.row = self.bar.add_task(title, total=None, figures="")

    def __enter__(self) -> "PrepareProgress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def begin(self, done: int, total: int | None) -> None:
        """Documents are turned into tokens from now on; ``done`` of them were by an earlier process."""
        self.documents, self.total = done, total
        self.started = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.row, completed=done, total=total)

    def update(self, tokens: int, text_bytes: int) -> None:
        """One more document."""
        self.documents += 1
        self.tokens += tokens
        self.text_bytes += text_bytes
        if self.bar is not None:
            self.bar.update(self.row, completed=self.documents, figures=self.figures())
        elif time.monotonic() - self.last_line >= LINE_EVERY:
            self.last_line = time.monotonic()
            of_all = f" of {self.total:,}" if self.total else ""
            self.say(f"{self.title}: {self.documents:,}{of_all} documents, {self.figures()}")

    def figures(self) -> str:
        megabytes = self.text_bytes / 1e6
        speed = megabytes / max(1e-9, time.monotonic() - self.started)
        return f"{self.tokens:,} tokens, {megabytes:,.1f} MB, {speed:.1f} MB/s"

    def say(self, message: str) -> None:
        self.console.print(message, highlight=False, soft_wrap=True, markup=False)
