"""The loop that runs cells, where another command takes one of them at the same moment."""

from types import SimpleNamespace

from mapformers.launch.queue import Queue, run_queue


class Cell:
    """What the loop asks of a cell."""

    cell = SimpleNamespace(title="MapWM, 1D")

    def __init__(self, executor: "Contested"):
        self.executor = executor

    def is_finished(self) -> bool:
        return self.executor.finished

    def failure(self) -> str:
        return "another process is training there"


class Contested:
    """An executor whose process for the cell finds the folder locked by another command, which then finishes it."""

    def __init__(self) -> None:
        self.started, self.locked, self.finished = 0, False, False
        self.work = Cell(self)
        self._ended: list = []

    def free_slots(self) -> int:
        return 1

    def is_free(self, work) -> bool:
        return not self.locked

    def start(self, works) -> None:
        for work in works:
            self.started += 1
            self.locked = True
            self._ended.append((work, None))

    def ended(self):
        while self._ended:
            yield self._ended.pop()

    def shut_down(self) -> str:
        return "Stopped."


def test_a_cell_that_another_command_took_at_the_same_moment_is_waited_for():
    executor, said = Contested(), []
    queue = Queue(waiting=[executor.work])

    def other_command_ends() -> None:
        if queue.waiting:
            executor.locked, executor.finished = False, True

    run_queue(queue, executor, lambda work: "0.5", said.append, other_command_ends)
    assert said == ["(1/1) MapWM, 1D: 0.5"]
    assert executor.started == 1 and queue.done == 1 and queue.failed == {}
