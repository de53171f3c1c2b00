"""Peak memory of a training step as sequences grow: attention that keeps no L×L matrix grows as L."""

import dataclasses
from dataclasses import dataclass

from mapformers.benchmarks.measure import peak_memory
from mapformers.benchmarks.throughput import Size, training_step

LENGTHS = (1024, 2048, 4096, 8192)
ROWS = ("rope", "mapwm", "mapem")
SIZE = Size("memory", 1, 64, 1, 4, LENGTHS[0])


@dataclass(frozen=True)
class Growth:
    """MiB by length, and how many times more the longest takes than the shortest."""

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
