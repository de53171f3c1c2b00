"""What follows from having walked among relatives: congruence closure over the axioms of kinship.

Persons and couples are numbers made when first needed; those found to be the same are merged (union-find), and what
holds of equals is made equal in turn. A couple is what its children have for a home and its two partners for a bond:

- the mother and the father of a person are wife and husband of the home, so they are each other's spouse;
- siblings have the same home; "older" and "younger" undo each other, and so does "spouse" itself;
- the oldest child belongs to the bond, so both partners have the same one, and its home is that bond;
- mothers are women, fathers are men, spouses differ in sex; a bond has one wife and one husband.

Nothing is ever concluded from a relation not being taken: it may be there all the same.
"""

from typing import Self

from mapformers.tasks.family import FATHER, MOTHER, OLDER, OLDEST, SPOUSE

NOBODY = UNKNOWN = -1
MALE, FEMALE = 0, 1
AGE = (-1, -1, 0, 0, 0, 1)  # how many generations each relation leads down


class Contradiction(Exception):
    """No family is like this."""


class Kinship:
    """The people known so far. Person 0 is the one a walk starts with."""

    def __init__(self) -> None:
        self.same: list[int] = []  # union-find of persons; the attributes below are read at the root
        self.generation: list[int] = []  # counted from the start
        self.sex: list[int] = []
        self.name: list[int] = []  # UNKNOWN until met
        self.home: list[int] = []  # the couple of the parents
        self.bond: list[int] = []  # the couple one is in
        self.spouse: list[int] = []
        self.older: list[int] = []
        self.younger: list[int] = []
        self.same_couple: list[int] = []  # union-find of couples
        self.wife: list[int] = []
        self.husband: list[int] = []
        self.oldest: list[int] = []  # child
        self._equal: list[tuple[int, int]] = []  # persons still to be merged
        self._person(0)

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = {name: value.copy() if type(value) is list else value for name, value in self.__dict__.items()}
        return twin

    def find(self, person: int) -> int:
        same = self.same
        while same[person] != person:
            person = same[person]
        return person

    def find_couple(self, couple: int) -> int:
        same = self.same_couple
        while couple >= 0 and same[couple] != couple:
            couple = same[couple]
        return couple

    def follow(self, person: int, relation: int) -> int:
        """Whom a relation leads to; someone new if nothing is known of them."""
        person = self.find(person)
        generation = self.generation[person] + AGE[relation]
        if relation in (MOTHER, FATHER):
            partner, other = (self.wife, self.husband) if relation == MOTHER else (self.husband, self.wife)
            couple = self._home_of(person)
            if partner[couple] == NOBODY:
                partner[couple] = self._person(generation, FEMALE if relation == MOTHER else MALE, bond=couple)
                if other[couple] != NOBODY:
                    self._marry(partner[couple], other[couple])
            found = partner[couple]
        elif relation == SPOUSE:
            if self.spouse[person] == NOBODY:
                new = self._person(generation, bond=self._bond_of(person))
                self._marry(person, new)
                if self.sex[person] != UNKNOWN:
                    self._is(new, 1 - self.sex[person])
            found = self.spouse[person]
        elif relation == OLDEST:
            couple = self._bond_of(person)
            if self.oldest[couple] == NOBODY:
                self.oldest[couple] = self._person(generation, home=couple)
            found = self.oldest[couple]
        else:
            there, back = (self.older, self.younger) if relation == OLDER else (self.younger, self.older)
            if there[person] == NOBODY:
                there[person] = self._person(generation, home=self._home_of(person))
                back[there[person]] = person
            found = there[person]
        self._close()
        return self.find(found)

    def identify(self, one: int, other: int) -> None:
        """Take two persons to be the same, with all that follows."""
        self._equal.append((one, other))
        self._close()

    def wed(self, one: int, other: int) -> None:
        """Take two persons to be married, with all that follows."""
        self._marry(one, other)
        for person, partner in ((one, other), (other, one)):
            if self.sex[self.find(person)] != UNKNOWN:
                self._is(partner, 1 - self.sex[self.find(person)])
        self._close()

    def _person(self, generation: int, sex: int = UNKNOWN, home: int = UNKNOWN, bond: int = UNKNOWN) -> int:
        self.same.append(len(self.same))
        self.generation.append(generation)
        self.sex.append(sex)
        self.home.append(home)
        self.bond.append(bond)
        for unknown in (self.name, self.spouse, self.older, self.younger):
            unknown.append(NOBODY)
        return self.same[-1]

    def _couple(self) -> int:
        self.same_couple.append(len(self.same_couple))
        for unknown in (self.wife, self.husband, self.oldest):
            unknown.append(NOBODY)
        return self.same_couple[-1]

    def _home_of(self, person: int) -> int:
        if self.home[person] == UNKNOWN:
            self.home[person] = self._couple()
        return self.find_couple(self.home[person])

    def _bond_of(self, person: int) -> int:
        if self.bond[person] == UNKNOWN:
            self.bond[person] = self._couple()
            if self.sex[person] != UNKNOWN:
                self._take_place(person)
        return self.find_couple(self.bond[person])

    def _take_place(self, person: int) -> None:
        """Someone of known sex is the wife or the husband of the bond."""
        couple = self.find_couple(self.bond[person])
        mine, others = (self.wife, self.husband) if self.sex[person] == FEMALE else (self.husband, self.wife)
        if mine[couple] == NOBODY:
            mine[couple] = person
        else:
            self._equal.append((mine[couple], person))
        if others[couple] != NOBODY:
            self._marry(person, others[couple])

    def _marry(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        for person, partner in ((one, other), (other, one)):
            if self.spouse[person] == NOBODY:
                self.spouse[person] = partner
            else:
                self._equal.append((self.spouse[person], partner))

    def _is(self, person: int, sex: int) -> None:
        person = self.find(person)
        if self.sex[person] == sex:
            return
        if self.sex[person] != UNKNOWN:
            raise Contradiction
        self.sex[person] = sex
        if self.bond[person] != UNKNOWN:
            self._take_place(person)
        if self.spouse[person] != NOBODY:
            self._is(self.spouse[person], 1 - sex)

    def _close(self) -> None:
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
        for couple in (self.home, self.bond):
            if couple[one] == UNKNOWN:
                couple[one] = couple[other]
            elif couple[other] != UNKNOWN:
                self._merge_couples(couple[one], couple[other])
        sexes = {self.sex[one], self.sex[other]} - {UNKNOWN}
        for sex in sexes:
            self._is(one, sex)
            if self.bond[one] != UNKNOWN:
                self._take_place(one)
            if self.spouse[one] != NOBODY:
                self._is(self.spouse[one], 1 - sex)

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
            self._marry(self.wife[one], self.husband[one])
