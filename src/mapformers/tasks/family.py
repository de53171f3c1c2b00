"""Growing families: people, couples, children, and the six relations between them (paper, D.3).

Generation 0 is ``couples`` founding couples. Every couple, except those of the last generation, has 1 to
``max_children`` children. Their number and their sexes are drawn uniformly at random. Each child marries somebody from
outside, who has no parents, with probability ``p_out``. The other children of a generation marry among themselves, in
rounds. In a round the men and the women stand in two rows in random order, and the two who face each other marry unless
they are siblings. Rounds end when no man and woman are left who may marry. People who are left stay single.

Many families are grown at once. All random choices in a family are hashes of its number. So a family does not depend on
the others grown with it, and a family of more generations begins with the people of the shorter one of that number.
"""

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mapformers.errors import require

RELATIONS = ("mother", "father", "spouse", "older sibling", "younger sibling", "oldest child")
MOTHER, FATHER, SPOUSE, OLDER, YOUNGER, OLDEST = range(6)
MAX_PEOPLE_IN_FAMILY = 5_000_000  # a larger family needs too much memory

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# What a hash decides. Rounds of marriages count on from _FIRST_ROUND.
_CHILDREN, _SEX, _OUTSIDE, _FIRST_ROUND = range(4)


@dataclass(frozen=True)
class FamilyRules:
    """The distribution of families."""

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
            self.expected_people() <= MAX_PEOPLE_IN_FAMILY,
            f"Such families would have about {self.expected_people():.0e} people, and {MAX_PEOPLE_IN_FAMILY:.0e} is "
            "the limit: lower generations, max_children or couples.",
        )

    def expected_people(self) -> float:
        """About how many people a family has. It is a little too high, since it assumes that everybody marries."""
        children = (1 + self.max_children) / 2
        couples, people = float(self.couples), 2.0 * self.couples
        for _ in range(self.generations):
            people += couples * children * (1 + self.p_out)
            couples *= children * (1 + self.p_out) / 2
            if people > 1e15 or couples < 1e-9:  # far too many already, or almost nobody to come
                break
        return people


@dataclass(frozen=True)
class Forest:
    """Several families in arrays with one row per person. Family i has rows ``first[i]`` to ``first[i + 1] - 1``.

    People are numbered within their family, generation by generation. ``relatives`` holds these numbers, and -1 where
    there is nobody.
    """

    first: Ints  # (B + 1,)
    relatives: NDArray[np.int32]  # (people, 6), in the order of RELATIONS
    female: Bools  # (people,)
    generation: NDArray[np.int32]  # (people,)

    def __len__(self) -> int:
        return len(self.first) - 1

    def family(self, index: int) -> "Forest":
        """One family alone."""
        here = slice(self.first[index], self.first[index + 1])
        size = np.array([0, self.first[index + 1] - self.first[index]])
        return Forest(size, self.relatives[here], self.female[here], self.generation[here])


def grow(numbers: Ints, rules: FamilyRules) -> Forest:
    """The families with these numbers, (B,)."""
    return _Growth(numbers, rules).grow()


@lru_cache(maxsize=8)
def grow_one(number: int, rules: FamilyRules) -> Forest:
    """One family, cached: that of ``trees="fixed"``, or one that is shown."""
    return grow(np.array([number], dtype=np.int64), rules)


class _Growth:
    """Grows all families one generation at a time. The arrays of a generation are sorted by family, then by person."""

    def __init__(self, numbers: Ints, rules: FamilyRules):
        self.rules, self.n = rules, len(numbers)
        self.seeds = numbers.astype(np.uint64)
        self.size = np.zeros(self.n, dtype=np.int64)  # people so far
        self.members: list[tuple[int, Ints, Ints, Bools]] = []  # generation, family, person, female
        self.relations: list[tuple[int, Ints, Ints, Ints]] = []  # relation, family, of whom, to whom it leads

    def grow(self) -> Forest:
        family = np.repeat(np.arange(self.n), self.rules.couples)
        wives = self._add_people(0, family, np.ones(len(family), dtype=bool))
        husbands = self._add_people(0, family, np.zeros(len(family), dtype=bool))
        self._marry(family, wives, husbands)
        for generation in range(1, self.rules.generations + 1):
            family, wives, husbands = self._next(generation, family, wives, husbands)
            if len(family) == 0:  # all families have died out
                break
        return self._assemble()

    def _next(self, generation: int, family: Ints, wives: Ints, husbands: Ints) -> tuple[Ints, Ints, Ints]:
        """Add the next generation, the children of these couples; return its couples."""
        number = 1 + self._choice(family, _CHILDREN, wives, self.rules.max_children)
        parents = np.repeat(np.arange(len(family)), number)  # for each child, the index of the couple
        born = np.arange(len(parents)) - np.repeat(number.cumsum() - number, number)  # 0 for the oldest
        child_family = family[parents]  # for each child, its family
        children = self._add_people(generation, child_family, None)
        female = self.members[-1][-1]
        self._relate(MOTHER, child_family, children, wives[parents])
        self._relate(FATHER, child_family, children, husbands[parents])
        oldest = born == 0
        for couple in (wives, husbands):
            self._relate(OLDEST, family, couple, children[oldest])
        later = ~oldest
        self._relate(OLDER, child_family[later], children[later], children[later] - 1)
        self._relate(YOUNGER, child_family[later], children[later] - 1, children[later])

        out = self._uniform(child_family, _OUTSIDE, children) < self.rules.p_out
        newcomers = self._add_people(generation, child_family[out], ~female[out])
        brides = np.where(female[out], children[out], newcomers)
        grooms = np.where(female[out], newcomers, children[out])
        women, men = self._match(child_family, children, parents, female, np.flatnonzero(~out))
        family = np.concatenate((child_family[out], child_family[women]))
        wives = np.concatenate((brides, children[women]))
        husbands = np.concatenate((grooms, children[men]))
        order = np.lexsort((wives, family))
        family, wives, husbands = family[order], wives[order], husbands[order]
        self._marry(family, wives, husbands)
        return family, wives, husbands

    def _match(
        self, child_family: Ints, children: Ints, parents: Ints, female: Bools, waiting: Ints
    ) -> tuple[Ints, Ints]:
        """Who marries whom among the children with indices ``waiting``: the indices of wives and of husbands."""
        wives, husbands = [waiting[:0]], [waiting[:0]]
        free = np.ones(len(child_family), dtype=bool)
        for round_number in itertools.count(_FIRST_ROUND):
            if len(waiting) == 0:
                break
            n_women, n_men = self._marriageable(child_family[waiting], parents[waiting], female[waiting])
            waiting = waiting[n_women[child_family[waiting]] > 0]
            draw = self._hash(child_family[waiting], round_number, children[waiting])
            shuffled = waiting[np.lexsort((draw, child_family[waiting]))]
            women, men = shuffled[female[shuffled]], shuffled[~female[shuffled]]
            women = women[_rank(child_family[women], n_women) < n_men[child_family[women]]]
            men = men[_rank(child_family[men], n_men) < n_women[child_family[men]]]
            marry = parents[women] != parents[men]
            wives.append(women[marry])
            husbands.append(men[marry])
            free[wives[-1]] = free[husbands[-1]] = False
            waiting = waiting[free[waiting]]
        return np.concatenate(wives), np.concatenate(husbands)

    def _marriageable(self, child_family: Ints, parents: Ints, female: Bools) -> tuple[Ints, Ints]:
        """How many women and men are left in each family; 0 if no two of them may marry.

        A marriage needs both sexes and children of two different couples.
        """
        left = np.bincount(child_family, minlength=self.n)
        women = np.bincount(child_family[female], minlength=self.n)
        end = left.cumsum()
        last = len(child_family) - 1
        oldest, youngest = parents[(end - left).clip(max=last)], parents[(end - 1).clip(min=0)]  # parents are sorted
        able = (women > 0) & (women < left) & (oldest != youngest)
        return women * able, (left - women) * able

    def _add_people(self, generation: int, family: Ints, female: Bools | None) -> Ints:
        """Add people, sorted by family, and return their numbers. Their sex is drawn unless it is given."""
        new = np.bincount(family, minlength=self.n)
        persons = self.size[family] + _rank(family, new)
        self.size += new
        if female is None:
            female = self._uniform(family, _SEX, persons) < 0.5
        self.members.append((generation, family, persons, female))
        return persons

    def _marry(self, family: Ints, wives: Ints, husbands: Ints) -> None:
        self._relate(SPOUSE, family, wives, husbands)
        self._relate(SPOUSE, family, husbands, wives)

    def _relate(self, relation: int, family: Ints, of: Ints, to: Ints) -> None:
        self.relations.append((relation, family, of, to))

    def _assemble(self) -> Forest:
        """The arrays of all families. Their rows are known only when every family has its size."""
        first = np.concatenate((np.zeros(1, dtype=np.int64), self.size.cumsum()))
        relatives = np.full((first[-1], 6), -1, dtype=np.int32)
        for relation, family, of, to in self.relations:
            relatives[first[family] + of, relation] = to
        female = np.empty(first[-1], dtype=bool)
        generation = np.empty(first[-1], dtype=np.int32)
        for when, family, persons, sex in self.members:
            female[first[family] + persons] = sex
            generation[first[family] + persons] = when
        return Forest(first, relatives, female, generation)

    def _hash(self, family: Ints, purpose: int, persons: Ints) -> NDArray[np.uint64]:
        """A 64-bit number for each (number of the family, purpose, person): SplitMix64's mixing, applied twice."""
        key = _mix(self.seeds + np.uint64((purpose + 1) * _GOLDEN % 2**64))[family]
        return _mix(key + persons.astype(np.uint64) * np.uint64(_GOLDEN))

    def _uniform(self, family: Ints, purpose: int, persons: Ints) -> NDArray[np.float64]:
        return (self._hash(family, purpose, persons) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _choice(self, family: Ints, purpose: int, persons: Ints, n: int) -> Ints:
        return (self._uniform(family, purpose, persons) * n).astype(np.int64)


_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio; odd


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014), a bijection of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _rank(family: Ints, sizes: Ints) -> Ints:
    """The index of each person within its family; families are sorted."""
    return np.arange(len(family)) - (sizes.cumsum() - sizes)[family]


def people_table(max_people: float = float("inf")) -> str:
    """How many people families have, as a Markdown table. Rules that expect more than ``max_people`` are left out.

    python -c "from mapformers.tasks.family import people_table; print(people_table())"
    """
    lines = [
        "| max_children | generations | families | people, mean | 5 % | median | 95 % | most | reach the last one |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for max_children, generations in itertools.product((3, 4, 10), (5, 10)):
        rules = FamilyRules(generations=generations, max_children=max_children)
        if rules.expected_people() <= max_people:
            n = int(np.clip(2e6 / rules.expected_people(), 3, 1000))
            families = [grow(np.array([number]), rules) for number in range(n)]
            people = np.array([len(family.female) for family in families])
            reached = np.mean([family.generation[-1] == generations for family in families])
            low, middle, high = np.percentile(people, (5, 50, 95))
            figures = (people.mean(), low, middle, high, people.max())
            cells = [max_children, generations, n, *(f"{figure:.0f}" for figure in figures), f"{reached:.2f}"]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
