"""How fast every task is sampled, against how fast the demo's model learns from it; both on one thread."""

from dataclasses import dataclass
from statistics import median

import torch

from mapformers.benchmarks.measure import interleaved
from mapformers.benchmarks.size import Size
from mapformers.benchmarks.throughput import training_step
from mapformers.seeding import generator
from mapformers.tasks import TASKS, build_task

BATCH = 128
WARM = 20  # batches before the clock starts: by then a pool of families is grown


@dataclass(frozen=True)
class SamplingSpeed:
    task: str
    length: int
    sampled_per_second: float  # tokens
    trained_per_second: float
    ratio: float


def tasks(repeats: int = 10, batch_size: int = BATCH) -> list[SamplingSpeed]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_sampling(name, repeats, batch_size) for name in TASKS if not TASKS[name].build.needs]
    finally:
        torch.set_num_threads(threads)


def _sampling(name: str, repeats: int, batch_size: int) -> SamplingSpeed:
    task = build_task(name)
    stream = generator(0, "bench tasks")
    length = task.sample("iid", 1, stream).tokens.shape[1]
    for _ in range(WARM):
        task.sample("iid", batch_size, stream)
    size = Size(name, 1, 64, 1, batch_size, length, task.vocab_size)
    steps = {"sample": lambda: task.sample("iid", batch_size, stream), "train": training_step("mapwm", size)}
    seconds = interleaved(steps, repeats)
    speed = {what: batch_size * length / median(rounds) for what, rounds in seconds.items()}
    return SamplingSpeed(name, length, speed["sample"], speed["train"], speed["sample"] / speed["train"])
