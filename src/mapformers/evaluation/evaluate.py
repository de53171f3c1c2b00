"""`evaluate`: measure anything that maps tokens to logits."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mapformers.errors import require
from mapformers.modes import in_eval_mode
from mapformers.seeding import generator
from mapformers.stages import doing
from mapformers.tasks import Metric, Task
from mapformers.tasks.task import require_count

TOKENS_PER_BATCH = 16_384  # at a vocabulary of up to 64; fewer at larger ones, whose logits take as much memory


@torch.no_grad()
def evaluate(
    model: Callable[[Tensor], Any],
    task: Task[Any],
    split: str | Mapping[str, Any] = "iid",
    *,
    n_sequences: int = 512,
    seed: int = 0,
    batch_size: int | None = None,
) -> dict[str, Metric]:
    """The task's metrics on fresh sequences of a split; each is a float that knows its ``count``.

    ``model`` is any callable from tokens (B, L) to logits (B, L, vocab), or to an object with ``.logits``: ours, one
    of `transformers`, a plain function, one of `mapformers.players`. Two attributes are asked for if it has them:
    ``answer(batch)``, for what sees more than the tokens, and ``streams = True``, for a model that takes and returns a
    state and so can also be scored when it reads its own predictions (``task.score_freely``).

    The sequences depend on ``seed`` alone, not on ``batch_size``. If any logit is NaN, so are all metrics: a diverged
    model has no score.
    """
    require_count("n_sequences", n_sequences)
    require_count("batch_size", 1 if batch_size is None else batch_size)
    stream = generator(seed, "evaluate")
    device = _device_of(model)
    settings = task.split_settings(split)
    answer = getattr(model, "answer", None)
    if batch_size is None:
        length = task.sample(settings, 1, generator(seed, "length")).tokens.shape[1]
        batch_size = max(1, TOKENS_PER_BATCH * 64 // max(64, task.vocab_size) // length)
    scores: dict[str, list[Metric]] = {}
    with in_eval_mode(model), doing(split if isinstance(split, str) else "measuring", n_sequences) as stage:
        for sampled in task.evaluation_batches(settings, n_sequences, batch_size, stream):
            batch = sampled.to(device)
            output = batch.read_by(model) if answer is None else answer(batch)
            logits = check_logits(output, batch.tokens, task)
            found = task.score(logits, batch)
            if getattr(model, "streams", False):
                found |= task.score_freely(model, batch)
            diverged = bool(logits.isnan().any())  # NaN is the largest to argmax, which would score it as token 0
            for name, metric in found.items():
                metric = Metric(math.nan, metric.count) if diverged else metric
                scores.setdefault(name, []).append(metric)
            stage.advance(len(batch.tokens))
    return task.conclude({name: Metric.join(parts) for name, parts in scores.items()})


def _device_of(model: Callable[[Tensor], Any]) -> torch.device:
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if parameter is None else parameter.device


def check_logits(output: Any, tokens: Tensor, task: Task[Any]) -> Tensor:
    """The logits in what a model answered; refused where they do not fit the tokens and the task."""
    logits = getattr(output, "logits", output)
    expected = (*tokens.shape, task.vocab_size)
    fits = isinstance(logits, Tensor) and logits.dim() == 3 and tuple(logits.shape[:2]) == expected[:2]
    require(
        fits and logits.shape[-1] >= task.vocab_size,
        f"The model must answer tokens {tuple(tokens.shape)} with logits {expected}, "
        f"not {tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__}.",
    )
    return logits


def evaluate_splits(
    model: Callable[[Tensor], Any],
    task: Task[Any],
    splits: Sequence[str] | None = None,
    n_sequences: int = 512,
    seed: int = 0,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Every metric of every split (all unless named), with its count, as plain data."""
    with doing("measuring"):
        return {
            split: {
                name: metric.to_dict()
                for name, metric in evaluate(model, task, split, n_sequences=n_sequences, seed=seed).items()
            }
            for split in splits or list(task.splits)
        }
