"""Peak memory of a training step: as sequences grow, where attention that keeps no L×L matrix grows as L, and as
batches grow, for the model that ran out of memory in the paper (A.9)."""

import dataclasses
from dataclasses import dataclass

from mapformers.benchmarks.measure import peak_memory
from mapformers.benchmarks.size import Size
from mapformers.benchmarks.throughput import SIZES, training_step

LENGTHS = (1024, 2048, 4096, 8192)
ROWS = ("rope", "mapwm", "mapem")
SIZE = Size("memory", 1, 64, 1, 4, LENGTHS[0])
BATCHES = (1, 2, 4, 8)
LARGE_ROWS = ("rope", "mapem", "mapem-nc")


@dataclass(frozen=True)
class Growth:
    """MiB by length or batch, and how many times more the largest takes than the smallest."""

    row: str
    mib: dict[int, float]
    growth: float


def memory(lengths: tuple[int, ...] = LENGTHS, batch_size: int = SIZE.batch_size) -> list[Growth]:
    grown = []
    for row in ROWS:
        sizes = {n: dataclasses.replace(SIZE, length=n, batch_size=batch_size) for n in lengths}
        mib = {n: peak_memory(training_step, row, size) for n, size in sizes.items()}
        grown.append(Growth(row, mib, mib[lengths[-1]] / mib[lengths[0]]))
    return grown


def memory_by_batch(size: Size = SIZES["speed"], batches: tuple[int, ...] = BATCHES) -> list[Growth]:
    grown = []
    for row in LARGE_ROWS:
        sizes = {n: dataclasses.replace(size, batch_size=n) for n in batches}
        mib = {n: peak_memory(training_step, row, each) for n, each in sizes.items()}
        grown.append(Growth(row, mib, mib[batches[-1]] / mib[batches[0]]))
    return grown
