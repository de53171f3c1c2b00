"""A player of `family-tree` to whom names are only something to recall, never a sign of who somebody is.

It is the logician without that evidence. So it knows what can be known from the relations alone: the best that a
position can be which is integrated along the relations, as it is in a layer whose tokens know nothing of each other.
"""

from mapformers.players.beliefs import Belief
from mapformers.players.logician import Logician
from mapformers.players.player import register_player


class RelationsOnly(Logician):
    """As the logician, but a name that was seen rules no belief out and changes no weight."""

    max_beliefs = 32  # no name thins them out: 8 are right on 0.004 less

    def _weigh(self, met_before: list[Belief], somebody_new: list[Belief], seen: int) -> list[Belief]:
        for belief in (beliefs := [*met_before, *somebody_new]):
            belief.name[belief.here] = seen
        return self._most_likely(beliefs)


register_player("relations-only", "family-tree", RelationsOnly)
