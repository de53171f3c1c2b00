"""A belief: one way a family may be, in which all who were met are someone for good. The logician keeps several."""

from collections.abc import Iterator

from mapformers.players.kinship import NOBODY, UNKNOWN, Contradiction, Kinship

# How likely somebody is one of those met who could be it. Measured with max_children 3, 4 and 10, siblings are it at
# 0.61, 0.50 and 0.23, partners at 0.50, others at 0.05, 0.04 and 0.01; accuracy hardly depends on these numbers.
PARTNER, STRANGER = 0.5, 0.02
MOST = 0.98  # likely, at most, that it is any of those met, where it may be someone new


class Belief(Kinship):
    """A way things may be: people who have a name are all different persons."""

    def __init__(self, max_children: int):
        super().__init__()
        self.max_children = max_children
        self.here = 0
        self.weight = 1.0

    @classmethod
    def of(cls, known: Kinship, here: int, max_children: int) -> "Belief":
        """What is known, taken for all there is: where to begin again when the truth was dropped."""
        belief = cls(max_children)
        belief.__dict__.update(known.copy().__dict__)
        belief.here = here
        return belief

    def met(self) -> Iterator[int]:
        return (p for p, name in enumerate(self.name) if name != UNKNOWN and self.same[p] == p)

    def continuations(self) -> tuple[list["Belief"], "Belief | None"]:
        """Whom the person reached, who has no name yet, may be: each of those met before, and someone new."""
        again, total = [], 0.0
        for person in filter(self._could_be, self.met()):
            belief, chance = self.copy(), self._chance(person)
            if belief._is_met(person):
                belief.weight *= chance
                again.append(belief)
                total += chance
        new = self.copy()
        may_be_new = new._is_new()
        share = min(total, MOST) if may_be_new else 1.0
        for belief in again:
            belief.weight *= share / total
        new.weight *= 1 - share
        return again, new if may_be_new else None

    def _could_be(self, person: int) -> bool:
        """What is cheap to see: generation and sex."""
        sexes = {self.sex[person], self.sex[self.here]} - {UNKNOWN}
        return self.generation[person] == self.generation[self.here] and len(sexes) < 2

    def _chance(self, person: int) -> float:
        if self._shares(self.home, person):
            return min(0.5, 2 / self.max_children)
        return PARTNER if self._shares(self.bond, person) else STRANGER

    def _shares(self, couple: list[int], person: int) -> bool:
        """Whether someone has the same home, or bond, as the person reached."""
        theirs = self.find_couple(couple[person])
        return theirs != UNKNOWN and theirs == self.find_couple(couple[self.here])

    def leads(self, relation: int) -> bool:
        """Follow a relation; whether that can be."""
        try:
            self.here = self.follow(self.here, relation)
        except Contradiction:
            return False
        return True

    def _is_met(self, person: int) -> bool:
        """Take the person reached to be one who was met; whether that can be."""
        try:
            self.identify(person, self.here)
        except Contradiction:
            return False
        self.here = self.find(person)
        return self._sound()

    def _is_new(self) -> bool:
        """Take the person reached to be none of those met, so two in one bond are its two partners; whether that can
        be."""
        partners = [person for person in self.met() if self._shares(self.bond, person)]
        siblings = [person for person in self.met() if self._shares(self.home, person)]
        try:
            for person in partners:
                self.wed(person, self.here)
        except Contradiction:
            return False
        self.here = self.find(self.here)
        return len(siblings) < self.max_children and self._sound()

    def _merge(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        if one != other and UNKNOWN not in (self.name[one], self.name[other]):
            raise Contradiction
        super()._merge(one, other)

    def _sound(self) -> bool:
        """No one has too many siblings in a row or is their own, siblings are not married, no one is older than the
        oldest."""
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
                home = self.find_couple(self.home[person])
                if spouse == person or (home != UNKNOWN and home == self.find_couple(self.home[spouse])):
                    return False
        return all(
            child == NOBODY or couple != root or self.older[self.find(child)] == NOBODY
            for couple, (root, child) in enumerate(zip(self.same_couple, self.oldest))
        )
