"""Players without a map: what can be scored by answering the same, repeating what was seen, or at random."""

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
    """The last thing seen that was not an action, or the one ``lag`` such things ago; 0 where there is none."""

    def __init__(self, task: Task[Any], settings: Any, lag: int = 1):
        super().__init__(task, settings)
        self.lag = lag

    def __call__(self, tokens: Tensor) -> Tensor:
        seen = ~torch.isin(tokens, torch.tensor(self.task.action_ids, dtype=tokens.dtype))
        seen_first = torch.argsort(~seen, dim=1, stable=True)
        place = seen.cumsum(dim=1) - self.lag  # among what was seen
        found = tokens.gather(1, seen_first.gather(1, place.clamp(min=0)))
        return self.certain(torch.where(place >= 0, found, 0))


class BestLag(LastValue):
    """Repeats what was seen a fixed time ago, the time that is best on iid sequences."""

    def __init__(self, task: Task[Any], settings: Any):
        super().__init__(task, settings)
        batch = task.sample("iid", LOOKED_AT, generator(0, "best lag"))
        right = []
        for lag in range(1, min(64, batch.tokens.shape[1]) + 1):
            self.lag = lag
            answers = self(batch.tokens).argmax(dim=-1)
            right.append(int((answers == batch.targets)[batch.score_mask].sum()))
        self.lag = 1 + right.index(max(right))


class AtRandom(Player):
    """Any token, all alike."""

    def __call__(self, tokens: Tensor) -> Tensor:
        drawn = torch.randint(self.task.vocab_size, tokens.shape, generator=generator(0, "at random"))
        return self.certain(drawn)
