"""A pool of families that are grown once and kept, because growing a family takes longer than walking in it.

A family depends only on its number and the rules, so a kept family equals one that is grown again.
"""

import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mapformers.tasks.family import FamilyRules, Forest, Ints, grow

POOL_SIZE = 2**16  # families in a pool
GROWN_ON_DEMAND = 2048  # families grown one request at a time; the next request grows all others
GROWN_TOGETHER = 1024  # families grown in one call, so that memory stays bounded
MAX_PEOPLE_IN_POOL = 12_000_000  # of 15 bytes each; rules that would need more have no pool


@dataclass(frozen=True)
class FamilyTables:
    """Arrays with one row per person. Family i has the ``people[i]`` rows from row ``first[i]`` on."""

    first: Ints  # (B,)
    people: Ints  # (B,)
    relatives: NDArray[np.int32] | NDArray[np.int16]  # (rows, 6), -1 where there is nobody
    possible: NDArray[np.uint8]  # (rows,): the relations that a person has, as bits
    female: NDArray[np.bool_]
    generation: NDArray[np.int32] | NDArray[np.int8]


def tables_of(forest: Forest) -> FamilyTables:
    """The tables of all families of a forest."""
    possible = np.packbits(forest.relatives >= 0, axis=1, bitorder="little")[:, 0]
    sizes = np.diff(forest.first)
    return FamilyTables(forest.first[:-1], sizes, forest.relatives, possible, forest.female, forest.generation)


def has_pool(rules: FamilyRules) -> bool:
    """Whether families of these rules are small enough for a pool."""
    return POOL_SIZE * rules.expected_people() <= MAX_PEOPLE_IN_POOL and rules.generations < 2**7


@lru_cache(maxsize=2)
def pool_of(rules: FamilyRules) -> "Pool":
    """The pool of these rules. The last two pools that were used stay in memory."""
    return Pool(rules)


class Pool:
    """The families numbered 0 to 2^16 − 1. Memory is reserved for all of them and used as they are grown."""

    def __init__(self, rules: FamilyRules):
        self.rules, self.n_families, self.n_people = rules, 0, 0  # grown so far
        capacity = int(1.25 * POOL_SIZE * rules.expected_people())
        self.full = False
        self._first = np.full(POOL_SIZE, -1)
        self._people = np.zeros(POOL_SIZE, dtype=np.int64)
        self._relatives = np.empty((capacity, 6), dtype=np.int16)
        self._possible = np.empty(capacity, dtype=np.uint8)
        self._female = np.empty(capacity, dtype=np.bool_)
        self._generation = np.empty(capacity, dtype=np.int8)
        self._lock = threading.Lock()

    def families(self, numbers: Ints) -> FamilyTables:
        """The families with these numbers, (B,); a number may come several times."""
        with self._lock:
            new = np.unique(numbers[self._first[numbers] < 0])
            fits = len(new) == 0 or (not self.full and self._grow(new))
        if not fits:
            return tables_of(grow(numbers, self.rules))
        tables = (self._relatives, self._possible, self._female, self._generation)
        return FamilyTables(self._first[numbers], self._people[numbers], *tables)

    def _grow(self, numbers: Ints) -> bool:
        """Grow these families, or all that are missing once many have been used. False if they do not fit."""
        if self.n_families >= GROWN_ON_DEMAND:
            numbers = np.flatnonzero(self._first < 0)
        groups = np.array_split(numbers, -(-len(numbers) // GROWN_TOGETHER))
        return all(self._keep(group, tables_of(grow(group, self.rules))) for group in groups)

    def _keep(self, numbers: Ints, grown: FamilyTables) -> bool:
        """Append families to the tables. False if there is no room, which has not been seen to happen."""
        begin, end = self.n_people, self.n_people + len(grown.female)
        if end > len(self._female) or grown.people.max() >= 2**15:
            self.full = True
            return False
        self._relatives[begin:end] = grown.relatives
        self._possible[begin:end] = grown.possible
        self._female[begin:end] = grown.female
        self._generation[begin:end] = grown.generation
        self._people[numbers] = grown.people
        self._first[numbers] = begin + grown.first
        self.n_people = end
        self.n_families += len(numbers)
        return True
