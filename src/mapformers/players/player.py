"""What a player is: it answers by a rule, without learning, and is measured like any model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mapformers.tasks import Batch, Task

SURE = 100.0  # logit of a certain answer: softmax gives it all


class Player(ABC):
    """Maps tokens (B, L) to logits (B, L, vocab), as a model does."""

    def __init__(self, task: Task[Any], settings: Any):
        self.task, self.settings = task, settings

    @abstractmethod
    def __call__(self, tokens: Tensor) -> Tensor:
        """The answer from tokens alone."""

    def answer(self, batch: Batch) -> Tensor:
        """What is measured. A player that sees more than the tokens reads it from ``batch.info`` here."""
        return self(batch.tokens)

    def certain(self, answers: Tensor) -> Tensor:
        """Logits of one certain answer per position, (B, L) -> (B, L, vocab)."""
        return torch.zeros(*answers.shape, self.task.vocab_size).scatter_(2, answers.unsqueeze(2), SURE)


Factory = Callable[[Task[Any], Any], Player]
_BY_TASK: dict[str, dict[str, Factory]] = {}


def register_player(name: str, task: str, build: Factory) -> None:
    """Make a player known among those of a task."""
    _BY_TASK.setdefault(task, {})[name] = build


def players_of(task: Task[Any]) -> dict[str, Factory]:
    """The players made for one task, by name."""
    return _BY_TASK.get(task.name, {})
