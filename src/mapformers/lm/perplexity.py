"""Perplexity of a run: on every window of its validation text, and over training (paper, B.5 and fig. 3c)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mapformers.errors import require
from mapformers.evaluation import check_logits
from mapformers.lm.text import Text
from mapformers.modes import in_eval_mode
from mapformers.runs.run import Run
from mapformers.seeding import generator
from mapformers.stages import doing

LAST = 5  # evaluations whose mean is reported, "to reduce noise in the final validation perplexity" (B.5)
LOGITS_AT_ONCE = 2**20


@dataclass(frozen=True)
class WindowLosses:
    """Nats per target of each window of a text, and how many targets count there. The windows depend on the text alone,
    so those of two models are pairs."""

    nats: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def perplexity(self) -> float:
        """e^loss of all targets together, as `evaluate` has it."""
        return exp(sum(loss * count for loss, count in zip(self.nats, self.counts)) / sum(self.counts))


@dataclass(frozen=True)
class Point:
    """``tokens``: that the run had trained on when its validation perplexity was measured."""

    tokens: int
    perplexity: float


@torch.no_grad()
def window_losses(model: Callable[..., Any], task: Text, split: str = "val", n_windows: int = 512) -> WindowLosses:
    """The loss of each of the windows on which `mapformers.evaluate` measures that many sequences of a split."""
    settings = task.split_settings(split)
    size = max(1, LOGITS_AT_ONCE // (task.vocab_size * settings.context))
    nats, counts = [], []
    with in_eval_mode(model), doing(f"windows of {split}", min(n_windows, task.n_windows(settings))) as stage:
        for batch in task.evaluation_batches(settings, n_windows, size, generator(0, "evaluate")):
            logits = check_logits(batch.read_by(model), batch.tokens, task)
            for row, targets, mask in zip(logits, batch.targets, batch.score_mask):
                nats.append(float(token_losses(row, targets)[mask].double().mean()))
                counts.append(int(mask.sum()))
            stage.advance(len(batch.tokens))
    return WindowLosses(tuple(nats), tuple(counts))


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """−log p of each target, (L,), from logits (L, V)."""
    return cross_entropy(logits.float(), targets, reduction="none")


def over_training(run: Run) -> list[Point]:
    """The validation perplexity after so many tokens, as often as the run measured it.

    One that was not finite, which a file of metrics has as null, is infinite here: no mean may leave it out.
    """
    per_step = run.config.train.batch_size * run.config.task_settings.context
    lines = [line for line in run.metrics if "split" in line and "perplexity" in line]
    found = [(line["step"] * per_step, line["perplexity"]) for line in lines]
    return [Point(tokens, math.inf if perplexity is None else perplexity) for tokens, perplexity in found]


def mean_of_last(points: Sequence[Point], n: int = LAST) -> float:
    """The mean of the last ``n`` validation perplexities of a run, or of all if it has fewer."""
    require(len(points) > 0, "The run has measured no validation perplexity; train it with a smaller --eval-every.")
    last = [point.perplexity for point in points[-n:]]
    return sum(last) / len(last)


def exp(loss: float) -> float:
    """e^loss, infinite where a float holds no more."""
    return math.exp(loss) if not loss > 700 else math.inf
