"""Players of `dyck`: a stack, a stack with exact probabilities, the last bracket only, and counts only."""

from typing import Any

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.players.player import CERTAIN_LOGIT, Player, register_player
from mapformers.tasks import Task
from mapformers.tasks.dyck_sampler import opening_chances, place_of


class StackKeeper(Player):
    """Keeps a stack. All openers and the closer of the top may follow, and all get the same logit."""

    def __call__(self, tokens: Tensor) -> Tensor:
        closes = closable(tokens, self.settings.types)
        return torch.where(torch.cat((torch.ones_like(closes), closes), dim=2), CERTAIN_LOGIT, -CERTAIN_LOGIT)


class Bayes(Player):
    """The exact probabilities of the next token, given the tokens, the length and the depth.

    No predictor has a smaller expected cross-entropy.
    """

    def __init__(self, task: Task[Any], settings: Any):
        super().__init__(task, settings)
        self.opening = opening_chances(settings.length, settings.depth)  # (L, places)

    def __call__(self, tokens: Tensor) -> Tensor:
        length, depth, types = self.settings.length, self.settings.depth, self.settings.types
        depths = torch.where(tokens < types, 1, -1).cumsum(dim=1)
        require(
            tokens.shape[1] == length - 1 and int(depths.min()) >= 0 and int(depths.max()) <= depth,
            f"This player knows sequences of length {length} and depth {depth} alone; build it for the split it plays.",
        )
        opening = self.opening[torch.arange(1, length), place_of(depths, depth)].unsqueeze(2)  # (B, L − 1, 1)
        closes = closable(tokens, types)
        return torch.cat(((opening / types).expand_as(closes), (1 - opening) * closes), dim=2).log()


class LastBracket(Player):
    """Sees only the last bracket (the table of C.2). After an opener its closer may follow; after a closer, none."""

    has_map = False

    def __call__(self, tokens: Tensor) -> Tensor:
        closes = tokens.unsqueeze(2) == torch.arange(self.settings.types)
        return torch.where(torch.cat((torch.ones_like(closes), closes), dim=2), CERTAIN_LOGIT, -CERTAIN_LOGIT)


class Counting(LastBracket):
    """Counts the open brackets of each type, but not their order. After a closer it guesses the commonest open type.

    The guess is less likely than the openers. So a wrong guess costs no precision, and F1 is high without a stack.
    """

    def __call__(self, tokens: Tensor) -> Tensor:
        logits, kinds = super().__call__(tokens), torch.arange(self.settings.types)
        seen = tokens.unsqueeze(2)
        still_open = ((seen == kinds).long() - (seen == len(kinds) + kinds).long()).cumsum(dim=1)  # (B, L, types)
        guess = (still_open.argmax(dim=2, keepdim=True) == kinds) & (still_open > 0) & (seen >= len(kinds))
        logits[..., len(kinds) :].masked_fill_(guess, 0.0)
        return logits


def closable(tokens: Tensor, types: int) -> Tensor:
    """Which type may be closed after each token, by an explicit stack: (B, L) -> (B, L, types) bool."""
    rows = []
    for sequence in tokens.tolist():
        stack: list[int] = []
        tops = []
        for token in sequence:
            if token < types:
                stack.append(token)
            elif stack:
                stack.pop()
            tops.append(stack[-1] if stack else -1)
        rows.append(tops)
    return torch.tensor(rows).unsqueeze(2) == torch.arange(types)


register_player("perfect", "dyck", StackKeeper)
register_player("bayes", "dyck", Bayes)
register_player("last-bracket", "dyck", LastBracket)
register_player("counting", "dyck", Counting)
