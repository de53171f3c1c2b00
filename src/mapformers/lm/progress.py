"""Visible progress of a preparation: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from mapformers.lm.tokenizer import pieces
from mapformers.progress import StageDisplay
from mapformers.stages import Stage, innermost, listed, watched_by

LINE_EVERY = 15.0  # seconds between plain lines


class WordsColumn(ProgressColumn):
    """Words that are asked for whenever the bar is drawn."""

    def __init__(self, words: Callable[[], str]):
        super().__init__()
        self.words = words

    def render(self, task: Task) -> Text:
        return Text(self.words())


class PrepareProgress:
    """Documents done, tokens made and megabytes of text per second; before, the stages of what has to be read first."""

    def __init__(self, title: str, console: Console):
        self.title, self.console = title, console
        self.documents = self.tokens = self.text_bytes = 0
        self.total: int | None = None
        self.started = self.last_line = time.monotonic()
        self.bar: Progress | None = None
        self.stages: list[Stage] = []
        self.stack = ExitStack()
        if console.is_terminal:
            figures = TextColumn("{task.fields[figures]}")
            columns = (SpinnerColumn(), WordsColumn(self.words), BarColumn(), MofNCompleteColumn())
            self.bar = Progress(*columns, figures, TimeRemainingColumn(), console=console)
            self.row = self.bar.add_task(title, total=None, figures="")

    def __enter__(self) -> "PrepareProgress":
        if self.bar is not None:
            self.stack.enter_context(self.bar)
        watcher = StageDisplay(self.console) if self.bar is None else partial(listed, self.stages)
        self.stack.enter_context(watched_by(watcher))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

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

    def words(self) -> str:
        """What is being done."""
        return innermost(self.stages, self.title)

    def counted(self, texts: Iterable[str], stage: Stage) -> Iterator[str]:
        """The texts that a BPE is made from, in pieces; how many characters they have; and what comes after them."""
        for text in texts:
            for piece in pieces(text):
                yield piece
                stage.advance(len(piece))
        self.say(f"{stage.done:,} characters are read; the merges of the BPE follow.")
        stage.title, stage.done = "making the merges of the BPE", 0

    def figures(self) -> str:
        megabytes = self.text_bytes / 1e6
        speed = megabytes / max(1e-9, time.monotonic() - self.started)
        return f"{self.tokens:,} tokens, {megabytes:,.1f} MB, {speed:.1f} MB/s"

    def say(self, message: str) -> None:
        self.console.print(message, highlight=False, soft_wrap=True, markup=False)
