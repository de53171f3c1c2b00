"""A pool of families that are grown once and kept: growing a family takes longer than walking in it.

A family depends on its number and the rules alone, so what is kept is what would be grown again.
"""

import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mapformers.tasks.family import FamilyRules, Forest, Ints, grow

POOL = 2**16  # families of one set of rules
AT_FIRST = 2048  # families grown as they are asked for: who looks at a few sequences does not wait for the others
LOT = 1024  # families grown at a time after that
MOST_POOLED = 12_000_000  # people of a pool, each of 15 bytes; rules that make more of them have no pool


@dataclass(frozen=True)
class Homes:
    """Where some families live: theirs are the ``people[i]`` rows from ``first[i]`` on of every array."""

    first: Ints  # (B,)
    people: Ints  # (B,)
    relatives: NDArray[np.int32] | NDArray[np.int16]  # (rows, 6), -1 where there is nobody
    possible: NDArray[np.uint8]  # (rows,): which relations there are, as bits
    female: NDArray[np.bool_]
    generation: NDArray[np.int32] | NDArray[np.int8]


def homes_of(forest: Forest) -> Homes:
    """All the families of a forest, one after another."""
    possible = np.packbits(forest.relatives >= 0, axis=1, bitorder="little")[:, 0]
    return Homes(forest.first[:-1], np.diff(forest.first), forest.relatives, possible, forest.female, forest.generation)


def has_pool(rules: FamilyRules) -> bool:
    """Whether the families of a pool are small enough to be kept."""
    return POOL * rules.expected_people() <= MOST_POOLED and rules.generations < 2**7


@lru_cache(maxsize=2)
def pool(rules: FamilyRules) -> "Pool":
    """The pool of these rules; the last two that were asked for are kept."""
    return Pool(rules)


class Pool:
    """The families numbered 0 to 2^16 − 1. Memory is reserved for all and taken as they are grown."""

    def __init__(self, rules: FamilyRules):
        self.rules, self.kept, self.taken = rules, 0, 0  # families and people there are so far
        room = int(1.25 * POOL * rules.expected_people())
        self.full = False
        self._first = np.full(POOL, -1)
        self._people = np.zeros(POOL, dtype=np.int64)
        self._relatives = np.empty((room, 6), dtype=np.int16)
        self._possible = np.empty(room, dtype=np.uint8)
        self._female = np.empty(room, dtype=np.bool_)
        self._generation = np.empty(room, dtype=np.int8)
        self._lock = threading.Lock()

    def homes(self, numbers: Ints) -> Homes:
        """The families with these numbers, (B,); a number may come several times."""
        with self._lock:
            new = np.unique(numbers[self._first[numbers] < 0])
            fits = len(new) == 0 or (not self.full and self._grow(new))
        if not fits:
            return homes_of(grow(numbers, self.rules))
        tables = (self._relatives, self._possible, self._female, self._generation)
        return Homes(self._first[numbers], self._people[numbers], *tables)

    def _grow(self, numbers: Ints) -> bool:
        """Grow what is asked for, and all that is left once many were asked for; whether all of them could be kept."""
        if self.kept >= AT_FIRST:
            numbers = np.flatnonzero(self._first < 0)
        lots = np.array_split(numbers, -(-len(numbers) // LOT))
        return all(self._keep(lot, homes_of(grow(lot, self.rules))) for lot in lots)

    def _keep(self, numbers: Ints, grown: Homes) -> bool:
        """Note families at the end of the tables; False if there is no room, which never was seen."""
        begin, end = self.taken, self.taken + len(grown.female)
        if end > len(self._female) or grown.people.max() >= 2**15:
            self.full = True
            return False
        self._relatives[begin:end] = grown.relatives
        self._possible[begin:end] = grown.possible
        self._female[begin:end] = grown.female
        self._generation[begin:end] = grown.generation
        self._people[numbers] = grown.people
        self._first[numbers] = begin + grown.first
        self.taken = end
        self.kept += len(numbers)
        return True
