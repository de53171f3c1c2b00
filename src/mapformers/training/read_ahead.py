"""Batches made in a thread, one step ahead of the model that learns from them.

The batches of a step are a function of its number, so it does not matter when and in which thread they are made: a run
that is resumed, or that reads nothing ahead, gets the same ones.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from mapformers.tasks import Batch

MakeBatches = Callable[[int], list[Batch]]


class ReadAhead:
    """``make(step)`` as it is asked for, with that of the next step under way meanwhile.

    ``last``: no batches are made for this step and later ones.
    """

    def __init__(self, make: MakeBatches, last: int):
        self.make, self.last = make, last
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._next: tuple[int, Future[list[Batch]]] | None = None

    def __call__(self, step: int) -> list[Batch]:
        """The batches of a step; an error in making them is raised here, whichever thread it happened in."""
        ready = self._next
        self._next = None
        batches = ready[1].result() if ready is not None and ready[0] == step else self.make(step)
        if step + 1 < self.last:
            self._next = step + 1, self._thread.submit(self.make, step + 1)
        return batches
