"""The perfect player of `selective-copy`: notes the symbols as they come and says them in order when asked."""

import torch
from torch import Tensor

from mapformers.players.player import Player, register_player
from mapformers.tasks.selective_copy import SelectiveCopy


class Copier(Player):
    """Sees only tokens; before the separator, and when it has said all, it answers "blank".

    It counts what it has said and does not read it, so it is as right when it runs freely.
    """

    task: SelectiveCopy

    def __call__(self, tokens: Tensor) -> Tensor:
        blank, separator = self.task.blank_id, self.task.separator_id
        answers = torch.full_like(tokens, blank)
        for row, sequence in enumerate(tokens.tolist()):
            if separator in sequence:
                asked = sequence.index(separator)
                noted = [token for token in sequence[:asked] if token != blank][: len(sequence) - asked]
                answers[row, asked : asked + len(noted)] = torch.tensor(noted, dtype=tokens.dtype)
        return self.certain(answers)


register_player("perfect", "selective-copy", Copier)
