"""The base class of walks: sequences a₁ o₁ a₂ o₂ …, where each action a leads to a place and o is what is found there.

The question is what will be found when the walk comes back to a place. The world is never built: the content of a place
is drawn at the first visit, which gives the same distribution.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mapformers.tasks.task import Batch, Metric, Settings, Task


class WalkTask(Task[Settings]):
    """Tokens: the actions, then what can be found. The model learns from all targets.

    ``accuracy`` is scored on revisits to places that are not empty, because "empty" is the best answer of a player
    without a map. ``accuracy_objects`` counts the same revisits with "empty" left out of the argmax: does the model
    know the object, even where "empty" has a higher logit? ``accuracy_all_revisits`` also counts revisits to empty
    places.
    """

    empty_id: int | None = None
    """The token of an empty place; None if no place can be empty."""

    @abstractmethod
    def trace(self, actions: Sequence[int], settings: Settings) -> list[Any]:
        """The place to which each action leads, by the rules of the world alone.

        A place is any hashable value; two values are equal when they are the same place.
        """

    def walk_batch(self, actions: Tensor, places: Tensor, contents: Tensor, **info: Tensor) -> Batch:
        """The batch of B walks of T steps.

        ``actions``   (B, T) tokens of the actions.
        ``places``    (B, T) the number of the place to which each action leads.
        ``contents``  (B, T) what that place holds if this is its first visit.
        """
        first = first_visits(places)
        observations = contents.gather(1, first)
        sequence = torch.stack((actions, observations), dim=2).flatten(1)  # (B, 2T): a₁ o₁ a₂ o₂ …
        targets = sequence[:, 1:]
        revisit = torch.zeros_like(targets, dtype=torch.bool)
        revisit[:, 0::2] = first < torch.arange(actions.shape[1])  # o_t is the target at a_t, an even index
        return Batch(
            tokens=sequence[:, :-1],
            targets=targets,
            loss_mask=torch.ones_like(revisit),
            score_mask=revisit if self.empty_id is None else revisit & (targets != self.empty_id),
            info={**info, "first_visit": first, "revisit": revisit},
        )

    def training(self, scale: str) -> dict[str, Any]:
        """The settings of navigation. The paper gives them for navigation alone; the other walks use the same.

        # paper: 700 k sequences, batch 128, lr 3e-4, no warm-up named; here at `cpu`: see docs/fidelity.md
        """
        scales: dict[str, dict[str, Any]] = {
            "smoke": {
                "sequences": 320,
                "batch_size": 16,
                "warmup_steps": 5,
                "zero_mean_steps": 5,
                "eval_every": 10,
                "eval_sequences": 16,
                "final_sequences": 16,
            },
            "cpu": {"sequences": 40_000, "batch_size": 32, "zero_mean_steps": 250},
            "paper": {"sequences": 700_000, "batch_size": 128, "lr": 3e-4, "warmup_steps": 0},
        }
        return scales[scale]

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        right = logits.argmax(dim=-1) == batch.targets
        scores = {"accuracy": Metric.fraction(right, batch.score_mask)}
        if self.empty_id is not None:
            scores["accuracy_objects"] = self._score_objects(logits, batch, self.empty_id)
            scores["accuracy_all_revisits"] = Metric.fraction(right, batch.info["revisit"].to(right.device))
        return scores

    def _score_objects(self, logits: Tensor, batch: Batch, empty_id: int) -> Metric:
        """The fraction of scored targets with the highest logit among all tokens but "empty"."""
        scored = batch.score_mask
        empty = torch.arange(logits.shape[-1], device=logits.device) == empty_id
        answers = logits.detach()[scored].masked_fill(empty, float("-inf")).argmax(dim=-1)
        return Metric.fraction(answers == batch.targets[scored], torch.ones_like(answers, dtype=torch.bool))


def contents(draws: Tensor, p_empty: float, empty_id: int, n_objects: int) -> Tensor:
    """What places hold, from one uniform random number each.

    A place is empty with probability ``p_empty``. Otherwise it holds one of the ``n_objects`` tokens that follow
    ``empty_id``, uniformly at random.
    """
    filled = (draws - p_empty) / max(1 - p_empty, 1e-12)
    objects = empty_id + 1 + choice(filled.clamp(min=0), n_objects)
    return torch.where(draws < p_empty, empty_id, objects)


def first_visits(places: Tensor) -> Tensor:
    """For every step, the step at which its place was first visited: (B, T) -> (B, T)."""
    ordered, order = places.sort(dim=1, stable=True)
    begins_group = torch.ones_like(ordered, dtype=torch.bool)
    begins_group[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    index = torch.arange(places.shape[1])
    group_start = torch.where(begins_group, index, 0).cummax(dim=1).values  # index in the sorted row
    return torch.empty_like(order).scatter_(1, order, order.gather(1, group_start))


def choice(uniform: Tensor, n: int | Tensor) -> Tensor:
    """Whole numbers from 0 to n − 1, uniformly at random, from uniform random numbers in [0, 1)."""
    largest = n - 1 if isinstance(n, Tensor) else torch.tensor(n - 1)
    return (uniform * n).long().minimum(largest)


def object_names(n: int) -> list[str]:
    """The names of n objects: A, B, C, … or, if there are more than 26, o0, o1, o2, …"""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [letters[i] if n <= len(letters) else f"o{i}" for i in range(n)]
