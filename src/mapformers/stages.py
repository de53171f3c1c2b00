"""Long work says what it is doing. Whoever watches decides how that is shown; if nobody does, nothing happens."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(eq=False)
class Stage:
    """A piece of work under way; ``total``: how many parts it has, where that is known."""

    title: str
    total: int | None = None
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def advance(self, parts: int = 1) -> None:
        self.done += parts

    def __str__(self) -> str:
        if self.total is None:
            return f"{self.title} {self.done:,}" if self.done else self.title
        return f"{self.title} {self.done}/{self.total}"


Watcher = Callable[[Stage], AbstractContextManager[None]]
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def doing(title: str, total: int | None = None) -> Iterator[Stage]:
    """Work that may take long. A watcher looks at the stage when it likes, so ``advance`` costs next to nothing.

    Examples:
        >>> with doing("measuring", total=2) as stage:
        ...     stage.advance()
        ...     print(stage)
        measuring 1/2
    """
    stage, watcher = Stage(title, total), _watcher.get()
    with nullcontext() if watcher is None else watcher(stage):
        yield stage


@contextmanager
def listed(stages: list[Stage], stage: Stage) -> Iterator[None]:
    """As a watcher, `partial(listed, stages)`: a stage is the last of the list while it is under way."""
    stages.append(stage)
    try:
        yield
    finally:
        stages.remove(stage)


def innermost(stages: list[Stage], otherwise: str) -> str:
    """What is being done; a list that another thread may empty at any moment is read once."""
    return next((str(stage) for stage in reversed(list(stages))), otherwise)


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """Inside the ``with`` block, ``watcher`` is told of every stage, and no other is."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
