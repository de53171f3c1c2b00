"""What a walk among relatives proves: congruence closure over the axioms of kinship.

People and couples are numbers, made when they are first needed. If two numbers prove to be the same person, they are
merged (union-find), and so are their relatives in turn. A couple is the ``parents`` of its children and the
``marriage`` of its two partners. The axioms are:

- the mother and the father of a person are the wife and the husband of one couple, so they are spouses;
- siblings have the same parents; "older" and "younger" undo each other, and "spouse" undoes itself;
- a couple has one oldest child, so both partners have the same one, and that couple is its parents;
- mothers are women, fathers are men, spouses differ in sex; a couple has one wife and one husband.

A relation that was not followed proves nothing, because it may exist all the same.
"""

from typing import Self

from mapformers.tasks.family import FATHER, MOTHER, OLDER, OLDEST, SPOUSE

NOBODY = UNKNOWN = -1
MALE, FEMALE = 0, 1
GENERATIONS_DOWN = (-1, -1, 0, 0, 0, 1)  # by relation


class Contradiction(Exception):
    """No family can be like this."""


class Kinship:
    """The people known so far. The walk starts at person 0."""

    def __init__(self) -> None:
        self.same: list[int] = []  # union-find of people; the attributes below are read at the root
        self.generation: list[int] = []  # relative to that of the start
        self.sex: list[int] = []
        self.name: list[int] = []  # UNKNOWN until the person is met
        self.parents: list[int] = []  # a couple
        self.marriage: list[int] = []  # a couple
        self.spouse: list[int] = []
        self.older: list[int] = []
        self.younger: list[int] = []
        self.same_couple: list[int] = []  # union-find of couples
        self.wife: list[int] = []
        self.husband: list[int] = []
        self.oldest: list[int] = []  # the oldest child
        self._equal: list[tuple[int, int]] = []  # people still to be merged
        self._new_person(0)

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = {name: value.copy() if type(value) is list else value for name, value in self.__dict__.items()}
        return twin

    def find(self, person: int) -> int:
        """The number that stands for a person and for all merged with them."""
        same = self.same
        while same[person] != person:
            person = same[person]
        return person

    def find_couple(self, couple: int) -> int:
        """The number that stands for a couple and for all merged with it."""
        same = self.same_couple
        while couple >= 0 and same[couple] != couple:
            couple = same[couple]
        return couple

    def follow(self, person: int, relation: int) -> int:
        """The person to whom a relation leads. If nothing is known of that person, a new one is made."""
        person = self.find(person)
        generation = self.generation[person] + GENERATIONS_DOWN[relation]
        if relation in (MOTHER, FATHER):
            partner, other = (self.wife, self.husband) if relation == MOTHER else (self.husband, self.wife)
            couple = self._parents_of(person)
            if partner[couple] == NOBODY:
                partner[couple] = self._new_person(generation, FEMALE if relation == MOTHER else MALE, marriage=couple)
                if other[couple] != NOBODY:
                    self._link_spouses(partner[couple], other[couple])
            found = partner[couple]
        elif relation == SPOUSE:
            if self.spouse[person] == NOBODY:
                new = self._new_person(generation, marriage=self._marriage_of(person))
                self._link_spouses(person, new)
                if self.sex[person] != UNKNOWN:
                    self._set_sex(new, 1 - self.sex[person])
            found = self.spouse[person]
        elif relation == OLDEST:
            couple = self._marriage_of(person)
            if self.oldest[couple] == NOBODY:
                self.oldest[couple] = self._new_person(generation, parents=couple)
            found = self.oldest[couple]
        else:
            there, back = (self.older, self.younger) if relation == OLDER else (self.younger, self.older)
            if there[person] == NOBODY:
                there[person] = self._new_person(generation, parents=self._parents_of(person))
                back[there[person]] = person
            found = there[person]
        self._merge_all()
        return self.find(found)

    def identify(self, one: int, other: int) -> None:
        """Assume that two people are the same, and conclude what follows."""
        self._equal.append((one, other))
        self._merge_all()

    def marry(self, one: int, other: int) -> None:
        """Assume that two people are married, and conclude what follows."""
        self._link_spouses(one, other)
        for person, partner in ((one, other), (other, one)):
            if self.sex[self.find(person)] != UNKNOWN:
                self._set_sex(partner, 1 - self.sex[self.find(person)])
        self._merge_all()

    def _new_person(self, generation: int, sex: int = UNKNOWN, parents: int = UNKNOWN, marriage: int = UNKNOWN) -> int:
        self.same.append(len(self.same))
        self.generation.append(generation)
        self.sex.append(sex)
        self.parents.append(parents)
        self.marriage.append(marriage)
        for unknown in (self.name, self.spouse, self.older, self.younger):
            unknown.append(NOBODY)
        return self.same[-1]

    def _new_couple(self) -> int:
        self.same_couple.append(len(self.same_couple))
        for unknown in (self.wife, self.husband, self.oldest):
            unknown.append(NOBODY)
        return self.same_couple[-1]

    def _parents_of(self, person: int) -> int:
        if self.parents[person] == UNKNOWN:
            self.parents[person] = self._new_couple()
        return self.find_couple(self.parents[person])

    def _marriage_of(self, person: int) -> int:
        if self.marriage[person] == UNKNOWN:
            self.marriage[person] = self._new_couple()
            if self.sex[person] != UNKNOWN:
                self._become_partner(person)
        return self.find_couple(self.marriage[person])

    def _become_partner(self, person: int) -> None:
        """Record a person of known sex as the wife or the husband of the marriage."""
        couple = self.find_couple(self.marriage[person])
        mine, others = (self.wife, self.husband) if self.sex[person] == FEMALE else (self.husband, self.wife)
        if mine[couple] == NOBODY:
            mine[couple] = person
        else:
            self._equal.append((mine[couple], person))
        if others[couple] != NOBODY:
            self._link_spouses(person, others[couple])

    def _link_spouses(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        for person, partner in ((one, other), (other, one)):
            if self.spouse[person] == NOBODY:
                self.spouse[person] = partner
            else:
                self._equal.append((self.spouse[person], partner))

    def _set_sex(self, person: int, sex: int) -> None:
        person = self.find(person)
        if self.sex[person] == sex:
            return
        if self.sex[person] != UNKNOWN:
            raise Contradiction
        self.sex[person] = sex
        if self.marriage[person] != UNKNOWN:
            self._become_partner(person)
        if self.spouse[person] != NOBODY:
            self._set_sex(self.spouse[person], 1 - sex)

    def _merge_all(self) -> None:
        while self._equal:
            self._merge(*self._equal.pop())

    def _merge(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        if one == other:
            return
        names = {self.name[one], self.name[other]} - {UNKNOWN}
        if self.generation[one] != self.generation[other] or len(names) > 1:
            raise Contradiction
        self.same[other] = one
        self.name[one] = max(self.name[one], self.name[other])
        for relative in (self.spouse, self.older, self.younger):
            if relative[one] == NOBODY:
                relative[one] = relative[other]
            elif relative[other] != NOBODY:
                self._equal.append((relative[one], relative[other]))
        for couple in (self.parents, self.marriage):
            if couple[one] == UNKNOWN:
                couple[one] = couple[other]
            elif couple[other] != UNKNOWN:
                self._merge_couples(couple[one], couple[other])
        sexes = {self.sex[one], self.sex[other]} - {UNKNOWN}
        for sex in sexes:
            self._set_sex(one, sex)
            if self.marriage[one] != UNKNOWN:
                self._become_partner(one)
            if self.spouse[one] != NOBODY:
                self._set_sex(self.spouse[one], 1 - sex)

    def _merge_couples(self, one: int, other: int) -> None:
        one, other = self.find_couple(one), self.find_couple(other)
        if one == other:
            return
        self.same_couple[other] = one
        for member in (self.wife, self.husband, self.oldest):
            if member[one] == NOBODY:
                member[one] = member[other]
            elif member[other] != NOBODY:
                self._equal.append((member[one], member[other]))
        if NOBODY not in (self.wife[one], self.husband[one]):
            self._link_spouses(self.wife[one], self.husband[one])
