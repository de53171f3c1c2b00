"""On how many threads a command computes (--threads)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mapformers.errors import require


@contextmanager
def use_threads(number: int | None) -> Iterator[None]:
    """Inside the ``with`` block torch computes on so many threads; None: on as many as it chooses, one per core."""
    if number is None:
        yield
        return
    most = max(2, os.cpu_count() or 1)
    require(number >= 1, f"--threads must be at least 1, not {number}.")
    require(number <= most, f"--threads must be at most {most} on this machine, not {number}.")
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
