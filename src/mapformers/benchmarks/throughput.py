"""Training throughput and memory of every registered layer as a ratio to `rope`, and of others' models beside them."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from mapformers.benchmarks.measure import interleaved, matmul_peak, peak_memory, speed_ratio
from mapformers.benchmarks.peers import PEERS
from mapformers.benchmarks.size import Size
from mapformers.lm.presets import PRESETS
from mapformers.model import SIZES as DECODER_SETTINGS
from mapformers.model import build_model
from mapformers.modules.layer import LAYERS
from mapformers.runs.config import TrainConfig
from mapformers.stages import doing
from mapformers.training.optimizer import build_optimizer

SIZES = {
    "smoke": Size("smoke", 1, 32, 1, 4, 32, repeats=2, rows=("mapwm", "mapem")),
    "navigation": Size("navigation", 1, 64, 1, 128, 256),
    # The rows of the paper's table (A.9) and its neighbour: a step of every layer there is would take half an hour.
    "speed": Size("speed", 12, 768, 12, 4, 256, repeats=5, rows=("mapwm", "mapem", "mapwm-nc", "mapem-nc")),
    # The paper's language model as it is: GPT-2's vocabulary, 1024 tokens, rank 4, a tied head.
    "language": Size("language", 12, 768, 12, 1, 1024, 50_257, repeats=15, rows=("mapwm",), preset="paper"),
}


@dataclass(frozen=True)
class Timing:
    """A training step of one row: median seconds, what follows from them, and the median over rounds of the ratio."""

    row: str
    seconds: float
    tokens_per_second: float
    ratio_to_rope: float
    share_of_peak: float
    peak_mib: float | None


def rows() -> dict[str, tuple[str, dict[str, Any]]]:
    """What is timed: label -> (model, options), every registered layer in every form it names for benchmarks."""
    found = {}
    for name in LAYERS:
        for options in LAYERS[name].benchmarked:
            found[" ".join([name, *(f"{key}={value}" for key, value in options.items())])] = (name, dict(options))
    return found


def training_step(row: str, size: Size) -> Callable[[], float]:
    """A function that does one forward pass, backward pass and optimiser step, and returns the loss."""
    torch.manual_seed(0)
    model = PEERS[row].build(size) if row in PEERS else own_model(row, size)
    optimizer = build_optimizer(model, TrainConfig())
    tokens = torch.randint(0, size.vocab_size, (size.batch_size, size.length + 1))

    def step() -> float:
        output = model(tokens[:, :-1])
        logits = getattr(output, "logits", output)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def own_model(row: str, size: Size) -> nn.Module:
    name, options = rows()[row]
    fitting = {*DECODER_SETTINGS, *(field.name for field in dataclasses.fields(LAYERS[name].options))}
    of_preset = {key: value for key, value in PRESETS.get(size.preset or "", {}).items() if key in fitting}
    settings: dict[str, Any] = {**of_preset, "d_model": size.d_model, "n_heads": size.n_heads, **options}
    return build_model(name, vocab_size=size.vocab_size, n_layers=size.n_layers, **settings)


def work(model: nn.Module, size: Size) -> float:
    """Operations of a training step of plain causal attention: 6 for each weight and token, and q kᵀ, P v."""
    weights = sum(p.numel() for p in model.parameters()) - size.vocab_size * size.d_model  # looked up, not multiplied
    attention = size.length * size.d_model * size.n_layers  # half of the keys, on average
    return 6.0 * (weights + attention) * size.batch_size * size.length


def throughput(
    size: Size, repeats: int | None = None, memory: bool = True, peers: Sequence[str] = ("Llama",)
) -> list[Timing]:
    """Time each row alternately with `rope`, so that both meet the same load on the machine.

    Only two models are there at a time: memory that a third one takes and returns would slow both.

    The peak memory of each is measured afterwards, in a process of its own.
    """
    own = size.rows or [row for row in rows() if row != "rope"]
    labels = [*(peer for peer in peers if PEERS[peer].is_there()), *own]
    peak = matmul_peak()
    operations = work(own_model("rope", size), size)
    tokens = size.batch_size * size.length
    timings: dict[str, Timing] = {}
    for number, label in enumerate(labels, 1):
        with doing(f"{label} ({number} of {len(labels)})"):
            steps = {row: training_step(row, size) for row in ("rope", label)}
            seconds = interleaved(steps, repeats or size.repeats)
        for row, rounds in seconds.items():
            took, ratio = median(rounds), speed_ratio(rounds, seconds["rope"])
            timings.setdefault(row, Timing(row, took, tokens / took, ratio, operations / took / peak, None))
    if not memory:
        return list(timings.values())
    return [dataclasses.replace(t, peak_mib=peak_memory(training_step, t.row, size)) for t in timings.values()]
