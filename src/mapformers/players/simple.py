"""Players without a map. They always give one answer, repeat an earlier observation, or answer at random."""

import zlib
from typing import Any

import torch
from torch import Tensor

from mapformers.players.player import Player
from mapformers.seeding import generator
from mapformers.tasks import Task

CALIBRATION_SEQUENCES = 512  # iid sequences from which the commonest answer and the best lag are taken


class Commonest(Player):
    """Always answers the token that is most often right."""

    has_map = False

    def __init__(self, task: Task[Any], settings: Any):
        super().__init__(task, settings)
        batch = task.sample("iid", CALIBRATION_SEQUENCES, generator(0, "commonest"))
        counts = torch.bincount(batch.targets[batch.score_mask], minlength=task.vocab_size)
        self.token = int(counts.argmax())

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.certain_logits(torch.full_like(tokens, self.token))


class LastValue(Player):
    """Repeats the last observation, or the observation ``lag`` observations ago; answers token 0 if there is none.

    An observation is any token that is not an action. If all tokens are actions, as brackets are, all count.
    """

    has_map = False

    def __init__(self, task: Task[Any], settings: Any, lag: int = 1):
        super().__init__(task, settings)
        self.lag = lag

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.certain_logits(_observation_before(*self._observations(tokens), self.lag))

    def _observations(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L) the observations of each row in order, at its front; (B, L) how many there are up to each token."""
        actions = self.task.action_ids if len(self.task.action_ids) < self.task.vocab_size else []
        observed = ~torch.isin(tokens, torch.tensor(actions, dtype=tokens.dtype))
        return tokens.gather(1, torch.argsort(~observed, dim=1, stable=True)), observed.cumsum(dim=1)


def _observation_before(in_order: Tensor, so_far: Tensor, lag: int) -> Tensor:
    index = so_far - lag
    return torch.where(index >= 0, in_order.gather(1, index.clamp(min=0)), 0)


class BestLag(LastValue):
    """Repeats the observation a fixed number of observations ago, the number that is best on iid sequences."""

    def __init__(self, task: Task[Any], settings: Any):
        super().__init__(task, settings)
        batch = task.sample("iid", CALIBRATION_SEQUENCES, generator(0, "best lag"))
        observations = self._observations(batch.tokens)
        right = [
            int((_observation_before(*observations, lag) == batch.targets)[batch.score_mask].sum())
            for lag in range(1, batch.tokens.shape[1] + 1)
        ]
        self.lag = 1 + right.index(max(right))


class AtRandom(Player):
    """Answers any token, uniformly at random. The answers are a function of the sequence, so they can be repeated."""

    has_map = False

    def __call__(self, tokens: Tensor) -> Tensor:
        streams = (generator(0, "at random", zlib.crc32(row.numpy().tobytes())) for row in tokens.cpu())
        drawn = [torch.randint(self.task.vocab_size, tokens.shape[1:], generator=stream) for stream in streams]
        return self.certain_logits(torch.stack(drawn).to(tokens.device))
