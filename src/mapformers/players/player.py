"""The base class of players, and their registry. A player is a rule-based baseline that is evaluated like a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mapformers.tasks import Batch, Task

CERTAIN_LOGIT = 100.0  # the softmax gives such an answer all the probability


class Player(ABC):
    """Maps tokens (B, L) to logits (B, L, vocab), as a model does. It is built for the settings of one split.

    ``has_map``: whether it keeps track of where it is (in a world, in a tree, in a stack).
    """

    has_map = True

    def __init__(self, task: Task[Any], settings: Any):
        self.task, self.settings = task, settings

    @abstractmethod
    def __call__(self, tokens: Tensor) -> Tensor:
        """The logits, from the tokens alone."""

    def answer(self, batch: Batch) -> Tensor:
        """The logits that `mf.evaluate` scores. A player that sees more than the tokens reads ``batch.info`` here."""
        return self(batch.tokens)

    def certain_logits(self, answers: Tensor) -> Tensor:
        """The logits of one certain answer per position: (B, L) -> (B, L, vocab)."""
        return torch.zeros(*answers.shape, self.task.vocab_size).scatter_(2, answers.unsqueeze(2), CERTAIN_LOGIT)


Factory = Callable[[Task[Any], Any], Player]
_BY_TASK: dict[str, dict[str, Factory]] = {}


def register_player(name: str, task: str, build: Factory) -> None:
    """Make a player of one task known by name."""
    _BY_TASK.setdefault(task, {})[name] = build


def players_of(task: str) -> dict[str, Factory]:
    """name -> player, for the players made for one task."""
    return _BY_TASK.get(task, {})
