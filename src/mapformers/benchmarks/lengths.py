"""Every layer as sequences grow: training speed relative to `rope` and peak memory, at as many tokens a step."""

from mapformers.benchmarks.size import Size
from mapformers.benchmarks.throughput import Timing, throughput

LENGTHS = (256, 1024, 4096)
TOKENS = 16_384  # in a step


def by_length(lengths: tuple[int, ...] = LENGTHS, tokens: int = TOKENS, repeats: int = 7) -> dict[int, list[Timing]]:
    sizes = [Size("lengths", 1, 64, 1, max(1, tokens // length), length, repeats=repeats) for length in lengths]
    return {size.length: throughput(size, peers=("Llama", "mambapy")) for size in sizes}
