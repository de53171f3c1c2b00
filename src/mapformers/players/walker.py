"""The perfect player of `navigation`: it follows the actions on a map of its own and remembers what each cell holds."""

import torch
from torch import Tensor

from mapformers.players.player import Player, register_player
from mapformers.tasks.walk import WalkTask


class Walker(Player):
    """Sees only tokens and knows the rules of the world. At a new place it answers "empty" or, without one, token 0."""

    task: WalkTask[object]

    def __call__(self, tokens: Tensor) -> Tensor:
        unknown = self.task.empty_id or 0
        answers = torch.full_like(tokens, unknown)
        for row, sequence in enumerate(tokens.tolist()):
            actions, seen = sequence[0::2], sequence[1::2]
            remembered: dict[object, int] = {}
            for time, place in enumerate(self.task.trace(actions, self.settings)):
                answers[row, 2 * time] = remembered.get(place, unknown)
                if time < len(seen):
                    remembered[place] = seen[time]
        return self.certain_logits(answers)


register_player("perfect", "navigation", Walker)
