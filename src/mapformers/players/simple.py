"""Players without a map: what can be scored by answering the same, repeating what was seen, or at random."""

import zlib
from typing import Any

import torch
from torch import Tensor

from mapformers.players.player import Player
from mapformers.seeding import generator
from mapformers.tasks import Task

LOOKED_AT = 512  # sequences from which the commonest answer and the best lag are learned


class Commonest(Player):
    """Always the token that is most often the right answer."""

    def __init__(self, task: Task[Any], settings: Any):
        super().__init__(task, settings)
        batch = task.sample("iid", LOOKED_AT, generator(0, "commonest"))
        counts = torch.bincount(batch.targets[batch.score_mask], minlength=task.vocab_size)
        self.token = int(counts.argmax())

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.certain(torch.full_like(tokens, self.token))


class LastValue(Player):
    """The last thing seen that was not an action, or the one ``lag`` such things ago; 0 where there is none.

    Where all tokens act, as brackets do, they are all that can be seen.
    """

    def __init__(self, task: Task[Any], settings: Any, lag: int = 1):
        super().__init__(task, settings)
        self.lag = lag

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.certain(_seen_before(*self._what_was_seen(tokens), self.lag))

    def _what_was_seen(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L) what was seen, in order, at the front of each row; and how much of it up to each token."""
        actions = self.task.action_ids if len(self.task.action_ids) < self.task.vocab_size else []
        seen = ~torch.isin(tokens, torch.tensor(actions, dtype=tokens.dtype))
        return tokens.gather(1, torch.argsort(~seen, dim=1, stable=True)), seen.cumsum(dim=1)


def _seen_before(in_order: Tensor, so_far: Tensor, lag: int) -> Tensor:
    place = so_far - lag
    return torch.where(place >= 0, in_order.gather(1, place.clamp(min=0)), 0)


class BestLag(LastValue):
    """Repeats what was seen a fixed time ago, the time that is best on iid sequences."""

    def __init__(self, task: Task[Any], settings: Any):
        super().__init__(task, settings)
        batch = task.sample("iid", LOOKED_AT, generator(0, "best lag"))
        seen = self._what_was_seen(batch.tokens)
        right = [
            int((_seen_before(*seen, lag) == batch.targets)[batch.score_mask].sum())
            for lag in range(1, batch.tokens.shape[1] + 1)
        ]
        self.lag = 1 + right.index(max(right))


class AtRandom(Player):
    """Any token, all alike; drawn anew for every sequence, and the same for the same one."""

    def __call__(self, tokens: Tensor) -> Tensor:
        streams = (generator(0, "at random", zlib.crc32(row.numpy().tobytes())) for row in tokens.cpu())
        drawn = [torch.randint(self.task.vocab_size, tokens.shape[1:], generator=stream) for stream in streams]
        return self.certain(torch.stack(drawn).to(tokens.device))
