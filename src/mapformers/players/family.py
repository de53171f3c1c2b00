"""Players of family trees that may see the tree: one knows with whom a walk begins, the other has to find out."""

import numpy as np
import torch
from torch import Tensor

from mapformers.errors import UserError, require
from mapformers.players.player import Player, register_player
from mapformers.tasks.family import RELATIONS, grow, grow_one
from mapformers.tasks.family_tree import PEOPLE_AT_ONCE, FamilySettings
from mapformers.tasks.task import Batch


class Seer(Player):
    """Sees the tree and the person a walk starts with, grows the family itself, and remembers who is called what."""

    settings: FamilySettings

    def __call__(self, tokens: Tensor) -> Tensor:
        raise UserError(
            "This player must see the tree: give it the batch, `player.answer(batch)`, as mf.evaluate does."
        )

    def answer(self, batch: Batch) -> Tensor:
        answers = torch.zeros_like(batch.tokens)
        starts = batch.info["start"].tolist()
        rows = max(1, int(PEOPLE_AT_ONCE / self.settings.rules().expected_people()))
        for begin in range(0, len(starts), rows):
            forest = grow(batch.info["tree"][begin : begin + rows].numpy(), self.settings.rules())
            for row in range(begin, min(begin + rows, len(starts))):
                relatives = forest.family(row - begin).relatives
                here, sequence, called = starts[row], batch.tokens[row].tolist(), dict[int, int]()
                for place in range(0, len(sequence), 2):
                    here = int(relatives[here, sequence[place]])
                    answers[row, place] = called.get(here, len(RELATIONS))
                    if place + 1 < len(sequence):
                        called[here] = sequence[place + 1]
        return self.certain(answers)


class Locator(Player):
    """Knows the tree, but not with whom a walk begins: keeps everyone it may have been, weighed by Bayes' rule.

    With ``trees="fixed"`` the tree can be learned, and no model can be expected to do better than this. It is exact:
    each relation is taken among those a person has, and somebody new has any name.
    """

    settings: FamilySettings

    def __call__(self, tokens: Tensor) -> Tensor:
        require(
            self.settings.trees == "fixed",
            "Fresh trees must be seen: give it the batch, `player.answer(batch)`, as mf.evaluate does.",
        )
        return self._locate(tokens, [self.settings.tree_seed] * len(tokens))

    def answer(self, batch: Batch) -> Tensor:
        return self._locate(batch.tokens, batch.info["tree"].tolist())

    def _locate(self, tokens: Tensor, trees: list[int]) -> Tensor:
        answers = torch.zeros_like(tokens)
        for row, (sequence, tree) in enumerate(zip(tokens.tolist(), trees)):
            relatives = grow_one(tree, self.settings.rules()).relatives
            answers[row, 0::2] = torch.tensor(self._names(sequence, relatives))
        return self.certain(answers)

    def _names(self, sequence: list[int], relatives: np.ndarray) -> list[int]:
        """The likeliest name at every step, if it is someone met before."""
        possible = (relatives >= 0).sum(axis=1)
        paths = np.arange(len(relatives))[:, None]  # (beginnings, 1 + steps): whom one would have met, after the first
        weight = np.ones(len(paths))
        called = np.zeros(1, dtype=np.int64)
        answers = []
        for place in range(0, len(sequence), 2):
            here = paths[:, -1]
            weight = weight / possible[here]
            there = relatives[here, sequence[place]]
            paths, weight, there = paths[there >= 0], weight[there >= 0], there[there >= 0]
            before = paths[:, 1:] == there[:, None]
            again = before.any(axis=1)
            name = np.where(again, called[1:][before.argmax(axis=1)] if before.shape[1] else 0, 0)
            votes = np.bincount(name, weight * again, minlength=self.task.vocab_size)
            answers.append(int(votes.argmax()))
            if place + 1 < len(sequence):
                seen = sequence[place + 1]
                weight = np.where(again, weight * (name == seen), weight / self.settings.n_names)
                paths = np.concatenate((paths, there[:, None]), axis=1)[weight > 0]
                weight = weight[weight > 0] / weight.sum()
                called = np.append(called, seen)
        return answers


register_player("perfect", "family-tree", Seer)
register_player("locator", "family-tree", Locator)
