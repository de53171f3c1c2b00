"""How time and memory are measured: turn by turn, each peak in a process of its own."""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

MIB = 2**20


def interleaved(steps: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each function in every round; they take turns, so that a slow moment hits all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(repeats):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def speed_ratio(seconds: Sequence[float], of_other: Sequence[float]) -> float:
    """How many times as fast as the other: the median over rounds, in each of which both met the same moment."""
    return statistics.median(other / own for own, other in zip(seconds, of_other, strict=True))


def matmul_peak(repeats: int = 20, size: int = 1024) -> float:
    """The most operations per second this machine gave a large float32 matrix product."""
    a = torch.randn(size, size)
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        a @ a
        took.append(time.perf_counter() - began)
    return 2 * size**3 / min(took)


def peak_memory(build: Callable[..., Callable[[], object]], *args: Any, **options: Any) -> float:
    """MiB that building and running a function twice takes beyond the idle process; in a new process each time."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_peak, torch.get_num_threads(), build, args, options).result()


def _peak(threads: int, build: Callable[..., Callable[[], object]], args: Any, options: Any) -> float:
    torch.set_num_threads(threads)
    warm = torch.randn(64, 64, requires_grad=True)
    (warm @ warm).sum().backward()  # the libraries' own workspaces
    before = _forget_peak()
    step = build(*args, **options)
    for _ in range(2):
        step()
    return (_highest() - before) / MIB


def _forget_peak() -> int:
    """Bytes in use now; where the system allows it, the highest mark starts anew from here."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _highest()


def _highest() -> int:
    """Most bytes of memory in use since the mark was last reset."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
