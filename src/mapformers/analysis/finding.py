"""What an analysis hands over: numbers to keep, arrays to draw, and a sentence on how to read the figure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.model import Decoder
from mapformers.modules.observables import Observed
from mapformers.runs.run import Run
from mapformers.seeding import generator
from mapformers.tasks import Batch, Task


@dataclass(frozen=True)
class Finding:
    """One figure: ``name`` of its files and of its drawing, ``title``, and ``reading``, a sentence on how to read it.

    ``numbers`` go to analysis.json, so they are plain data; ``data`` is what is drawn, so it may hold arrays.
    """

    name: str
    title: str
    reading: str
    numbers: Mapping[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """A figure that this run cannot have, and why, in a sentence."""

    name: str
    title: str
    why: str


Outcome = Finding | Missing


class Subject:
    """A run to look into: its model as trained and as it began, and what both show of single tokens.

    ``layer`` is the first layer that moves on a map, or None; figures of movements and positions are of that layer.
    """

    def __init__(self, run: Run, seed: int = 0):
        require(isinstance(run.model, Decoder), "The run trained a model of your own, which has no named observables.")
        assert isinstance(run.model, Decoder)
        self.run, self.seed = run, seed
        self.model: Decoder = run.model
        self.task: Task[Any] = run.task

    @cached_property
    def untrained(self) -> Decoder:
        """The model before its first step: a function of the run's seed."""
        return self.run.config.build_model()

    @cached_property
    def alone(self) -> Observed:
        """Every token of the vocabulary read alone: batch index is token."""
        return self.model.observe(self.vocabulary)

    @cached_property
    def alone_untrained(self) -> Observed:
        return self.untrained.observe(self.vocabulary)

    @property
    def vocabulary(self) -> Tensor:
        return torch.arange(self.task.vocab_size).unsqueeze(1)

    @cached_property
    def layer(self) -> int | None:
        """The first layer whose tokens move."""
        return next((index for index, notes in enumerate(self.alone) if "delta_in" in notes), None)

    @cached_property
    def attending(self) -> int | None:
        """The layer whose attention is looked at: the one that moves, or else the first that attends."""
        if self.layer is not None and "attention" in self.alone[self.layer]:
            return self.layer
        return next((index for index, notes in enumerate(self.alone) if "attention" in notes), None)

    @property
    def kind(self) -> str:
        """The name of the layer that is looked at."""
        return self.run.config.model_name

    @property
    def actions(self) -> list[int]:
        return list(self.task.action_ids)

    @property
    def others(self) -> list[int]:
        """The tokens that do not act: observations."""
        return [token for token in range(self.task.vocab_size) if token not in set(self.task.action_ids)]

    def sample(self, split: str | Mapping[str, Any], n: int, what: str) -> Batch:
        """Sequences that no run was trained on: the stream of random numbers has a name of its own."""
        return self.task.sample(split, n, generator(self.seed, f"analyze {what}"))

    @property
    def no_movement(self) -> str:
        return f"{self.kind} has no movement Δ: its position does not depend on what the tokens are."


def plain(tensor: Tensor, digits: int = 6) -> Any:
    """A tensor as nested lists of rounded numbers, for JSON."""
    return torch.round(tensor.detach().double(), decimals=digits).tolist()
