"""Random streams by name: every batch and every initialisation is a function of a seed and of what it is for."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from mapformers.errors import require


def seed_of(seed: int, purpose: str, index: int = 0) -> int:
    """A 32-bit seed that differs for every (seed, purpose, index)."""
    require(seed >= 0, f"seed must not be negative, but is {seed}.")
    words = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), index]).generate_state(1)
    return int(words[0])


def generator(seed: int, purpose: str, index: int = 0) -> torch.Generator:
    """A CPU generator of its own for one purpose, e.g. step 120 of training: no state has to be carried."""
    return torch.Generator().manual_seed(seed_of(seed, purpose, index))


@contextmanager
def initialisation(seed: int) -> Iterator[None]:
    """Inside the ``with`` block, new parameters depend on ``seed`` alone; the global stream is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initialisation"))
        yield
