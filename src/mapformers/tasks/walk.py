"""What walks have in common: a₁ o₁ a₂ o₂ …, an action and what is found where it leads; what is there on coming back?

The world is never built: what a place holds is drawn when it is first visited, which is the same distribution.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mapformers.tasks.task import Batch, Metric, Task, World
from mapformers.training.config import TrainConfig


class WalkTask(Task[World]):
    """Tokens: the actions, then what can be found. All targets are learned from.

    Scored are revisits to places that are not empty, since "empty" is the answer of a player without a map;
    ``accuracy_all_revisits`` counts the empty ones too.
    """

    empty_id: int | None = None
    """The token of an empty place, where places can be empty."""

    @abstractmethod
    def trace(self, actions: Sequence[int], settings: World) -> list[Any]:
        """Where each action leads, by the rules of the world alone: any hashable name of a place, equal when it is
        the same place."""

    def walk_batch(self, actions: Tensor, places: Tensor, contents: Tensor, **info: Tensor) -> Batch:
        """The batch of walks (B, T): ``places`` numbers where each action led, ``contents`` is what a place would
        hold if it were first seen at that time."""
        first = first_visits(places)
        observations = contents.gather(1, first)
        sequence = torch.stack((actions, observations), dim=2).flatten(1)  # (B, 2T): a₁ o₁ a₂ o₂ …
        targets = sequence[:, 1:]
        revisit = torch.zeros_like(targets, dtype=torch.bool)
        revisit[:, 0::2] = first < torch.arange(actions.shape[1])  # o_t is the target at a_t, the even places
        return Batch(
            tokens=sequence[:, :-1],
            targets=targets,
            loss_mask=torch.ones_like(revisit),
            score_mask=revisit if self.empty_id is None else revisit & (targets != self.empty_id),
            info={**info, "first_visit": first, "revisit": revisit},
        )

    def training(self, scale: str) -> TrainConfig:
        """Navigation's, of which the paper gives them; of other walks it says nothing.

        # paper: 700 k sequences, batch 128, lr 3e-4, no warm-up named; here at `cpu`: see docs/fidelity.md
        """
        return {
            "smoke": TrainConfig(
                sequences=320,
                batch_size=16,
                warmup_steps=5,
                driftless_steps=5,
                eval_every=10,
                eval_sequences=16,
                final_sequences=16,
            ),
            "cpu": TrainConfig(sequences=40_000, batch_size=32, driftless_steps=250),
            "paper": TrainConfig(sequences=700_000, batch_size=128, lr=3e-4, warmup_steps=0),
        }[scale]

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        right = logits.argmax(dim=-1) == batch.targets
        scores = {"accuracy": Metric.share(right, batch.score_mask)}
        if self.empty_id is not None:
            scores["accuracy_all_revisits"] = Metric.share(right, batch.info["revisit"].to(right.device))
        return scores


def contents(draws: Tensor, p_empty: float, empty_id: int, n_objects: int) -> Tensor:
    """Empty with probability ``p_empty``, otherwise one of the objects that follow ``empty_id``, by one uniform
    number each."""
    filled = (draws - p_empty) / max(1 - p_empty, 1e-12)
    objects = empty_id + 1 + choice(filled.clamp(min=0), n_objects)
    return torch.where(draws < p_empty, empty_id, objects)


def first_visits(places: Tensor) -> Tensor:
    """For every time the first time the same place was visited, (B, T) -> (B, T); itself if never before."""
    ordered, order = places.sort(dim=1, stable=True)
    opens = torch.ones_like(ordered, dtype=torch.bool)
    opens[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ranks = torch.arange(places.shape[1])
    opener = torch.where(opens, ranks, 0).cummax(dim=1).values  # where in the sorted row the group begins
    return torch.empty_like(order).scatter_(1, order, order.gather(1, opener))


def choice(uniform: Tensor, n: int | Tensor) -> Tensor:
    """A whole number below n from a uniform one in [0, 1)."""
    most = n - 1 if isinstance(n, Tensor) else torch.tensor(n - 1)
    return (uniform * n).long().minimum(most)


def object_names(n: int) -> list[str]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [letters[i] if n <= len(letters) else f"o{i}" for i in range(n)]
