"""Cells of a recipe without processes of their own, where a test is not about processes."""

from mapformers.launch import cell
from mapformers.launch.work import Work


class Inline:
    """In the place of the process of a cell: its work is done at once, in this one."""

    stdin = None

    def __init__(self, work: Work):
        self.code = 0 if cell.run_work(work.to_dict()) is None else 1

    def poll(self) -> int:
        return self.code
