"""A belief: one way the family may be, in which it is decided who everyone met is. The logician keeps several."""

from collections.abc import Iterator

from mapformers.players.kinship import NOBODY, UNKNOWN, Contradiction, Kinship

# The probability that the person reached is one particular person met before. With max_children 3, 4 and 10 we measured
# 0.61, 0.50 and 0.23 for a sibling, 0.50 for a partner, and 0.05, 0.04 and 0.01 for anyone else. The accuracy hardly
# depends on these numbers.
PARTNER_CHANCE, STRANGER_CHANCE = 0.5, 0.02
MAX_CHANCE_MET = 0.98  # that it is anyone met before, if it can be somebody new


class Belief(Kinship):
    """One way the family may be. People with names are all different people."""

    def __init__(self, max_children: int):
        super().__init__()
        self.max_children = max_children
        self.here = 0
        self.weight = 1.0

    @classmethod
    def of(cls, known: Kinship, here: int, max_children: int) -> "Belief":
        """A belief in nothing but what is proved. The logician starts again from it when every belief was wrong."""
        belief = cls(max_children)
        belief.__dict__.update(known.copy().__dict__)
        belief.here = here
        return belief

    def met(self) -> Iterator[int]:
        """The people met so far."""
        return (p for p, name in enumerate(self.name) if name != UNKNOWN and self.same[p] == p)

    def continuations(self) -> tuple[list["Belief"], "Belief | None"]:
        """Who the person reached may be: one belief for each person met before, and one for somebody new."""
        again, total = [], 0.0
        for person in filter(self._could_be, self.met()):
            belief, chance = self.copy(), self._chance(person)
            if belief._assume_met(person):
                belief.weight *= chance
                again.append(belief)
                total += chance
        new = self.copy()
        may_be_new = new._assume_new()
        chance_met = min(total, MAX_CHANCE_MET) if may_be_new else 1.0
        for belief in again:
            belief.weight *= chance_met / total
        new.weight *= 1 - chance_met
        return again, new if may_be_new else None

    def _could_be(self, person: int) -> bool:
        """A quick test: the generation and the sex must fit."""
        sexes = {self.sex[person], self.sex[self.here]} - {UNKNOWN}
        return self.generation[person] == self.generation[self.here] and len(sexes) < 2

    def _chance(self, person: int) -> float:
        if self._same_couple(self.parents, person):
            return min(0.5, 2 / self.max_children)
        return PARTNER_CHANCE if self._same_couple(self.marriage, person) else STRANGER_CHANCE

    def _same_couple(self, couple_of: list[int], person: int) -> bool:
        """Whether a person has the same parents, or is in the same marriage, as the person reached."""
        theirs = self.find_couple(couple_of[person])
        return theirs != UNKNOWN and theirs == self.find_couple(couple_of[self.here])

    def can_follow(self, relation: int) -> bool:
        """Follow a relation; False if that is impossible."""
        try:
            self.here = self.follow(self.here, relation)
        except Contradiction:
            return False
        return True

    def _assume_met(self, person: int) -> bool:
        """Assume that the person reached is one who was met; False if that is impossible."""
        try:
            self.identify(person, self.here)
        except Contradiction:
            return False
        self.here = self.find(person)
        return self._is_consistent()

    def _assume_new(self) -> bool:
        """Assume that the person reached is somebody new; False if that is impossible.

        Then anyone in the same marriage is the spouse.
        """
        partners = [person for person in self.met() if self._same_couple(self.marriage, person)]
        siblings = [person for person in self.met() if self._same_couple(self.parents, person)]
        try:
            for person in partners:
                self.marry(person, self.here)
        except Contradiction:
            return False
        self.here = self.find(self.here)
        return len(siblings) < self.max_children and self._is_consistent()

    def _merge(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        if one != other and UNKNOWN not in (self.name[one], self.name[other]):
            raise Contradiction
        super()._merge(one, other)

    def _is_consistent(self) -> bool:
        """Whether this can be a family.

        Nobody has too many siblings or is their own sibling, siblings are not married, and the oldest child has no
        older sibling.
        """
        for person, root in enumerate(self.same):
            if person != root:
                continue
            length, next_one = 1, self.younger[person]
            while next_one != NOBODY:
                length, next_one = length + 1, self.younger[self.find(next_one)]
                if length > self.max_children:
                    return False
            if self.spouse[person] != NOBODY:
                spouse = self.find(self.spouse[person])
                parents = self.find_couple(self.parents[person])
                if spouse == person or (parents != UNKNOWN and parents == self.find_couple(self.parents[spouse])):
                    return False
        return all(
            child == NOBODY or couple != root or self.older[self.find(child)] == NOBODY
            for couple, (root, child) in enumerate(zip(self.same_couple, self.oldest))
        )
