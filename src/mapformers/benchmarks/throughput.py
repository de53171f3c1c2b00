"""Training throughput of every registered mixer, as a ratio to `rope` in the same run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mapformers.mixers import LAYERS
from mapformers.model import build_model
from mapformers.training.config import TrainConfig
from mapformers.training.optimizer import build_optimizer


@dataclass(frozen=True)
class Size:
    """A model and batch to time."""

    name: str
    n_layers: int
    d_model: int
    n_heads: int
    batch_size: int
    length: int
    vocab_size: int = 21


SIZES = {
    "smoke": Size("smoke", 1, 32, 1, 4, 32),
    "navigation": Size("navigation", 1, 64, 1, 128, 256),
    "speed": Size("speed", 12, 768, 12, 2, 256),
}


@dataclass(frozen=True)
class Timing:
    """Median seconds of a training step, and tokens per second."""

    label: str
    seconds: float
    tokens_per_second: float
    ratio: float


def training_step(name: str, size: Size, **options: Any) -> Callable[[], None]:
    """A function that does one forward, backward and optimiser step."""
    torch.manual_seed(0)
    model = build_model(
        name,
        vocab_size=size.vocab_size,
        n_layers=size.n_layers,
        d_model=size.d_model,
        n_heads=size.n_heads,
        **options,
    )
    optimizer = build_optimizer(model, TrainConfig())
    tokens = torch.randint(0, size.vocab_size, (size.batch_size, size.length + 1))

    def step() -> None:
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def throughput(size: Size, repeats: int = 10) -> list[Timing]:
    """Time all mixers turn by turn, so that a slow minute of the machine hits all alike; medians."""
    steps = {name: training_step(name, size) for name in LAYERS}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(repeats):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - began)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    tokens = size.batch_size * size.length
    return [Timing(name, took, tokens / took, median["rope"] / took) for name, took in median.items()]
