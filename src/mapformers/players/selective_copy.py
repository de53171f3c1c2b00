"""The perfect player of `selective-copy`: it remembers the symbols and gives them in order after the separator."""

import torch
from torch import Tensor

from mapformers.players.player import Player, register_player
from mapformers.tasks.selective_copy import SelectiveCopy


class Copier(Player):
    """Sees only tokens. Before the separator, and after the last symbol, it answers "blank".

    It counts its answers and does not read them, so it makes no mistake in a free run either.
    """

    task: SelectiveCopy

    def __call__(self, tokens: Tensor) -> Tensor:
        blank, separator = self.task.blank_id, self.task.separator_id
        answers = torch.full_like(tokens, blank)
        for row, sequence in enumerate(tokens.tolist()):
            if separator in sequence:
                begin = sequence.index(separator)
                symbols = [token for token in sequence[:begin] if token != blank][: len(sequence) - begin]
                answers[row, begin : begin + len(symbols)] = torch.tensor(symbols, dtype=tokens.dtype)
        return self.certain_logits(answers)


register_player("perfect", "selective-copy", Copier)
