"""What the tests of `dyck` share: words and nestings listed one by one, a stack in plain Python, chi-square."""

import math
from functools import cache
from itertools import product

import torch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=generator(seed))


def sequence_of(batch, row):
    return [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]


def stacks_of(word, types):
    """The stack after each token; None if the word is not correctly nested."""
    stack, stacks = [], []
    for token in word:
        if token < types:
            stack = [*stack, token]
        elif not stack or stack[-1] != token - types:
            return None
        else:
            stack = stack[:-1]
        stacks.append(stack)
    return stacks


@cache
def words(length, depth, types):
    """Every word over the 2·types brackets that is correctly nested, closed, and exactly that deep; tries all words."""
    found = []
    for word in product(range(2 * types), repeat=length):
        stacks = stacks_of(word, types)
        if stacks and not stacks[-1] and max(map(len, stacks)) == depth:
            found.append(word)
    return found


@cache
def nestings(length, depth):
    """The same for one type of bracket, as depths after each step; tries both ways at each step."""
    walks = [()]
    for _ in range(length):
        walks = [(*walk, (walk[-1] if walk else 0) + step) for walk in walks for step in (1, -1)]
        walks = [walk for walk in walks if 0 <= walk[-1] <= depth]
    return [walk for walk in walks if walk[-1] == 0 and max(walk) == depth]


def assert_uniform(counts, cases):
    """Pearson's chi-square is at most four standard deviations from its mean, on either side."""
    n = counts.total()
    assert set(counts) <= set(cases)
    assert n >= 10 * len(cases), "too few samples to tell"
    expected, freedom = n / len(cases), len(cases) - 1
    statistic = sum((counts[case] - expected) ** 2 / expected for case in cases)
    assert abs(statistic - freedom) <= 4 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} at {freedom} degrees"


def assert_same_distribution(one, other):
    """Chi-square of two samples over the frequent cases; rare cases are pooled."""
    n, m = one.total(), other.total()
    often = [case for case in one | other if one[case] + other[case] >= 20]
    rows = [(one[case], other[case]) for case in often]
    rows.append((n - sum(a for a, _ in rows), m - sum(b for _, b in rows)))
    rows = [(a, b) for a, b in rows if a + b > 0]
    statistic = sum((a * math.sqrt(m / n) - b * math.sqrt(n / m)) ** 2 / (a + b) for a, b in rows)
    freedom = len(rows) - 1
    assert freedom >= 3
    assert statistic < freedom + 4 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} at {freedom} degrees"
