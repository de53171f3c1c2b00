"""Growing families: people, couples and children, and the six relations by which one walks among them (paper, D.3).

Generation 0 is ``couples`` founding couples. Every couple of a generation but the last has 1 to ``max_children``
children, boys and girls alike. Each child marries someone newly come, without parents, with probability ``p_out``. The
others of a generation meet: men and women in random order, side by side, and who meet marry unless they are siblings;
those left meet again, until no man and woman are left who may marry. These stay single.

Many families are grown at once. All that chance decides in a family is a hash of its number, so that a family is the
same wherever and with whomever it is grown, and a deeper one begins as the shallower one with its number does.
"""

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mapformers.errors import require

RELATIONS = ("mother", "father", "spouse", "older sibling", "younger sibling", "oldest child")
MOTHER, FATHER, SPOUSE, OLDER, YOUNGER, OLDEST = range(6)
MOST_PEOPLE = 5_000_000  # of one family; beyond it memory is the limit

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# What a hash is for; meetings count on from _MEET, one for each round.
_CHILDREN, _SEX, _OUT, _MEET = range(4)


@dataclass(frozen=True)
class FamilyRules:
    """What a family is drawn from."""

    generations: int = 5
    couples: int = 3
    max_children: int = 4
    p_out: float = 0.3

    def __post_init__(self) -> None:
        require(self.couples >= 1, f"A family needs a founding couple: couples must be at least 1, not {self.couples}.")
        for name in ("generations", "max_children"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require(self.generations <= 10_000, f"generations must be at most 10000, not {self.generations}.")
        require(0 <= self.p_out <= 1, f"p_out is a probability between 0 and 1, not {self.p_out}.")
        require(
            self.expected_people() <= MOST_PEOPLE,
            f"Such families would have about {self.expected_people():.0e} people and at most {MOST_PEOPLE:.0e} are "
            "grown: lower generations, max_children or couples.",
        )

    def expected_people(self) -> float:
        """About how many people a family has; a little high, as if nobody who looks for a spouse stayed single."""
        children = (1 + self.max_children) / 2
        couples, people = float(self.couples), 2.0 * self.couples
        for _ in range(self.generations):
            people += couples * children * (1 + self.p_out)
            couples *= children * (1 + self.p_out) / 2
            if people > 1e15 or couples < 1e-9:  # far too many already, or no more to come
                break
        return people


@dataclass(frozen=True)
class Forest:
    """Families one after another: those of family i are ``people[first[i] : first[i + 1]]`` of every array.

    A person's number counts within the family, generation by generation; ``relatives`` has such numbers, -1 where
    there is nobody.
    """

    first: Ints  # (B + 1,)
    relatives: NDArray[np.int32]  # (people, 6), in the order of RELATIONS
    female: Bools  # (people,)
    generation: NDArray[np.int32]  # (people,)

    def __len__(self) -> int:
        return len(self.first) - 1

    def family(self, index: int) -> "Forest":
        """One family by itself."""
        here = slice(self.first[index], self.first[index + 1])
        size = np.array([0, self.first[index + 1] - self.first[index]])
        return Forest(size, self.relatives[here], self.female[here], self.generation[here])


def grow(numbers: Ints, rules: FamilyRules) -> Forest:
    """The families with these numbers, (B,)."""
    return _Growth(numbers, rules).forest()


@lru_cache(maxsize=8)
def grow_one(number: int, rules: FamilyRules) -> Forest:
    """One family, remembered: the only one of ``trees="fixed"``, or one to be looked at."""
    return grow(np.array([number], dtype=np.int64), rules)


class _Growth:
    """All families by one generation at a time; the arrays of a generation are sorted by family, then by person."""

    def __init__(self, numbers: Ints, rules: FamilyRules):
        self.rules, self.n = rules, len(numbers)
        self.seeds = numbers.astype(np.uint64)
        self.size = np.zeros(self.n, dtype=np.int64)  # people so far
        self.members: list[tuple[int, Ints, Ints, Bools]] = []  # generation, family, person, female
        self.facts: list[tuple[int, Ints, Ints, Ints]] = []  # relation, family, of whom, who

    def forest(self) -> Forest:
        family = np.repeat(np.arange(self.n), self.rules.couples)
        wives = self._welcome(0, family, np.ones(len(family), dtype=bool))
        husbands = self._welcome(0, family, np.zeros(len(family), dtype=bool))
        self._wed(family, wives, husbands)
        for generation in range(1, self.rules.generations + 1):
            family, wives, husbands = self._next(generation, family, wives, husbands)
            if len(family) == 0:  # all have died out
                break
        return self._gather()

    def _next(self, generation: int, family: Ints, wives: Ints, husbands: Ints) -> tuple[Ints, Ints, Ints]:
        """The couples of the next generation, from those of the last."""
        number = 1 + self._choice(family, _CHILDREN, wives, self.rules.max_children)
        parents = np.repeat(np.arange(len(family)), number)  # of each child, by the couple
        born = np.arange(len(parents)) - np.repeat(number.cumsum() - number, number)  # 0 for the oldest
        home = family[parents]
        children = self._welcome(generation, home, None)
        female = self.members[-1][-1]
        self._state(MOTHER, home, children, wives[parents])
        self._state(FATHER, home, children, husbands[parents])
        oldest = born == 0
        for couple in (wives, husbands):
            self._state(OLDEST, family, couple, children[oldest])
        later = ~oldest
        self._state(OLDER, home[later], children[later], children[later] - 1)
        self._state(YOUNGER, home[later], children[later] - 1, children[later])

        out = self._uniform(home, _OUT, children) < self.rules.p_out
        newcomers = self._welcome(generation, home[out], ~female[out])
        brides = np.where(female[out], children[out], newcomers)
        grooms = np.where(female[out], newcomers, children[out])
        women, men = self._meet(home, children, parents, female, np.flatnonzero(~out))
        family = np.concatenate((home[out], home[women]))
        wives = np.concatenate((brides, children[women]))
        husbands = np.concatenate((grooms, children[men]))
        order = np.lexsort((wives, family))
        family, wives, husbands = family[order], wives[order], husbands[order]
        self._wed(family, wives, husbands)
        return family, wives, husbands

    def _meet(self, home: Ints, children: Ints, parents: Ints, female: Bools, waiting: Ints) -> tuple[Ints, Ints]:
        """Who marries whom among the children with places ``waiting``: places of wives and of husbands."""
        wives, husbands = [waiting[:0]], [waiting[:0]]
        free = np.ones(len(home), dtype=bool)
        for meeting in itertools.count(_MEET):
            if len(waiting) == 0:
                break
            n_women, n_men = self._marriageable(home[waiting], parents[waiting], female[waiting])
            waiting = waiting[n_women[home[waiting]] > 0]
            draw = self._hash(home[waiting], meeting, children[waiting])
            mixed = waiting[np.lexsort((draw, home[waiting]))]
            women, men = mixed[female[mixed]], mixed[~female[mixed]]
            women = women[_rank(home[women], n_women) < n_men[home[women]]]
            men = men[_rank(home[men], n_men) < n_women[home[men]]]
            marry = parents[women] != parents[men]
            wives.append(women[marry])
            husbands.append(men[marry])
            free[wives[-1]] = free[husbands[-1]] = False
            waiting = waiting[free[waiting]]
        return np.concatenate(wives), np.concatenate(husbands)

    def _marriageable(self, home: Ints, parents: Ints, female: Bools) -> tuple[Ints, Ints]:
        """Women and men left in each family, none if no two may marry: that takes both sexes and two sibships."""
        left = np.bincount(home, minlength=self.n)
        women = np.bincount(home[female], minlength=self.n)
        end = left.cumsum()
        last = len(home) - 1
        oldest, youngest = parents[(end - left).clip(max=last)], parents[(end - 1).clip(min=0)]  # parents are sorted
        able = (women > 0) & (women < left) & (oldest != youngest)
        return women * able, (left - women) * able

    def _welcome(self, generation: int, family: Ints, female: Bools | None) -> Ints:
        """Number new people, sorted by family, and note their sex (drawn, unless it is given)."""
        new = np.bincount(family, minlength=self.n)
        persons = self.size[family] + _rank(family, new)
        self.size += new
        if female is None:
            female = self._uniform(family, _SEX, persons) < 0.5
        self.members.append((generation, family, persons, female))
        return persons

    def _wed(self, family: Ints, wives: Ints, husbands: Ints) -> None:
        self._state(SPOUSE, family, wives, husbands)
        self._state(SPOUSE, family, husbands, wives)

    def _state(self, relation: int, family: Ints, of: Ints, who: Ints) -> None:
        self.facts.append((relation, family, of, who))

    def _gather(self) -> Forest:
        """Everyone's place is known once all families are grown."""
        first = np.concatenate((np.zeros(1, dtype=np.int64), self.size.cumsum()))
        relatives = np.full((first[-1], 6), -1, dtype=np.int32)
        for relation, family, of, who in self.facts:
            relatives[first[family] + of, relation] = who
        female = np.empty(first[-1], dtype=bool)
        generation = np.empty(first[-1], dtype=np.int32)
        for when, family, persons, sex in self.members:
            female[first[family] + persons] = sex
            generation[first[family] + persons] = when
        return Forest(first, relatives, female, generation)

    def _hash(self, family: Ints, purpose: int, persons: Ints) -> NDArray[np.uint64]:
        """A 64-bit number for each (family's number, purpose, person): the mixing of SplitMix64, twice."""
        key = _mix(self.seeds + np.uint64((purpose + 1) * _GOLDEN % 2**64))[family]
        return _mix(key + persons.astype(np.uint64) * np.uint64(_GOLDEN))

    def _uniform(self, family: Ints, purpose: int, persons: Ints) -> NDArray[np.float64]:
        return (self._hash(family, purpose, persons) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _choice(self, family: Ints, purpose: int, persons: Ints, n: int) -> Ints:
        return (self._uniform(family, purpose, persons) * n).astype(np.int64)


_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, odd


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014), a bijection of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _rank(family: Ints, sizes: Ints) -> Ints:
    """The place of each within its family, where families come sorted."""
    return np.arange(len(family)) - (sizes.cumsum() - sizes)[family]


def people_table(most_people: float = float("inf")) -> str:
    """How many people a family has, in Markdown; ``most_people`` leaves out rules that make larger ones.

    python -c "from mapformers.tasks.family import people_table; print(people_table())"
    """
    lines = [
        "| max_children | generations | families | people, mean | 5 % | median | 95 % | most | reach the last one |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for max_children, generations in itertools.product((3, 4, 10), (5, 10)):
        rules = FamilyRules(generations=generations, max_children=max_children)
        if rules.expected_people() <= most_people:
            n = int(np.clip(2e6 / rules.expected_people(), 3, 1000))
            families = [grow(np.array([number]), rules) for number in range(n)]
            people = np.array([len(family.female) for family in families])
            reached = np.mean([family.generation[-1] == generations for family in families])
            low, middle, high = np.percentile(people, (5, 50, 95))
            figures = (people.mean(), low, middle, high, people.max())
            cells = [max_children, generations, n, *(f"{figure:.0f}" for figure in figures), f"{reached:.2f}"]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
