"""A pseudorandom order of 0 … n − 1 that is computed at any place without being stored.

A Feistel network permutes the numbers of an even number of bits: each round adds to one half a hash of the other, which
can be undone whatever the hash is. A result of n or more is sent through again until it is below n (cycle walking),
which keeps it a permutation of 0 … n − 1 (Black and Rogaway, 2002).
"""

import numpy as np
from numpy.typing import NDArray

from mapformers.errors import require

ROUNDS = 6
WORDS = NDArray[np.uint64]


class Shuffle:
    """The permutation of ``range(n)`` that belongs to a key.

    Examples:
        >>> sorted(Shuffle(5, key=1)(np.arange(5)).tolist())
        [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, key: int):
        require(1 <= n < 2**62, f"An order is of 1 to 2^62 things, not of {n}.")
        self.n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)  # at most four times as many numbers as are needed
        self._mask = np.uint64((1 << self._half) - 1)
        self._keys = _mix(np.uint64(key % 2**64) + _GOLDEN * np.arange(1, ROUNDS + 1, dtype=np.uint64))

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """What stands at each of these places."""
        inside = bool(np.all((places >= 0) & (places < self.n)))
        require(inside, f"The places of this order are 0 to {self.n - 1}.")
        found = self._permute(places.astype(np.uint64))
        while (beyond := found >= self.n).any():
            found[beyond] = self._permute(found[beyond])
        return found.astype(np.int64)

    def _permute(self, x: WORDS) -> WORDS:
        half = np.uint64(self._half)
        left, right = x >> half, x & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right + key) & self._mask)
        return (left << half) | right


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: WORDS) -> WORDS:
    """The output function of SplitMix64: every bit of the result depends on every bit of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
