"""Players of `family-tree` that see the tree. One knows the person at whom the walk starts, the other infers it."""

import numpy as np
import torch
from torch import Tensor

from mapformers.errors import UserError, require
from mapformers.players.player import Player, register_player
from mapformers.tasks.family import RELATIONS, grow, grow_one
from mapformers.tasks.family_tree import PEOPLE_GROWN_TOGETHER, FamilySettings
from mapformers.tasks.task import Batch


class TreeWalker(Player):
    """Sees the tree and the person at whom the walk starts. It grows the family itself and remembers all names."""

    settings: FamilySettings

    def __call__(self, tokens: Tensor) -> Tensor:
        raise UserError(
            "This player must see the tree: give it the batch, `player.answer(batch)`, as mf.evaluate does."
        )

    def answer(self, batch: Batch) -> Tensor:
        answers = torch.zeros_like(batch.tokens)
        starts = batch.info["start"].tolist()
        rows = max(1, int(PEOPLE_GROWN_TOGETHER / self.settings.rules().expected_people()))
        for begin in range(0, len(starts), rows):
            forest = grow(batch.info["tree"][begin : begin + rows].numpy(), self.settings.rules())
            for row in range(begin, min(begin + rows, len(starts))):
                relatives = forest.family(row - begin).relatives
                here, sequence, name_of = starts[row], batch.tokens[row].tolist(), dict[int, int]()
                for index in range(0, len(sequence), 2):
                    here = int(relatives[here, sequence[index]])
                    answers[row, index] = name_of.get(here, len(RELATIONS))
                    if index + 1 < len(sequence):
                        name_of[here] = sequence[index + 1]
        return self.certain_logits(answers)


class Locator(Player):
    """Sees the tree but not the start. It keeps every person who may have been the start, weighted by Bayes' rule.

    The weights are exact: each relation is drawn uniformly from those a person has, and each name from all names. With
    ``trees="fixed"`` a model can learn the tree, and no model can be expected to do better than this player.
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
        return self.certain_logits(answers)

    def _names(self, sequence: list[int], relatives: np.ndarray) -> list[int]:
        """The most likely name at every step, given that the person was met before."""
        possible = (relatives >= 0).sum(axis=1)
        paths = np.arange(len(relatives))[:, None]  # (starts, 1 + steps): the start, then the people met from there
        weight = np.ones(len(paths))
        name_at = np.zeros(1, dtype=np.int64)  # (1 + steps,): the name at each step
        answers = []
        for index in range(0, len(sequence), 2):
            here = paths[:, -1]
            weight = weight / possible[here]
            there = relatives[here, sequence[index]]
            paths, weight, there = paths[there >= 0], weight[there >= 0], there[there >= 0]
            before = paths[:, 1:] == there[:, None]
            again = before.any(axis=1)
            name = np.where(again, name_at[1:][before.argmax(axis=1)] if before.shape[1] else 0, 0)
            votes = np.bincount(name, weight * again, minlength=self.task.vocab_size)
            answers.append(int(votes.argmax()))
            if index + 1 < len(sequence):
                seen = sequence[index + 1]
                weight = np.where(again, weight * (name == seen), weight / self.settings.n_names)
                paths = np.concatenate((paths, there[:, None]), axis=1)[weight > 0]
                weight = weight[weight > 0] / weight.sum()
                name_at = np.append(name_at, seen)
        return answers


register_player("perfect", "family-tree", TreeWalker)
register_player("locator", "family-tree", Locator)
