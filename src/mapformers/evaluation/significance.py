"""Whether two groups of values differ: Welch's test over seeds, a paired test over what both were measured on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mapformers.errors import require
from mapformers.evaluation.aggregate import summarise

LEVEL = 0.95  # of intervals
TINY = 1e-300
Each = TypeVar("Each")


@dataclass(frozen=True)
class Difference:
    """A difference of means with its interval; all of it NaN where a value was not finite.

    ``low``, ``high``  the 95 % interval.
    ``p``              two-sided: how likely a difference as large would be if there were none.
    ``n``              how many values each side has, or how many pairs there are.
    """

    mean: float
    low: float
    high: float
    p: float
    n: tuple[int, ...]

    def as_ratio(self) -> "Difference":
        """A difference of logarithms as a relative one: −0.02 is 2 % less."""
        return Difference(relative(self.mean), relative(self.low), relative(self.high), self.p, self.n)

    def to_dict(self) -> dict[str, float | list[int]]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "p": self.p, "n": list(self.n)}


def relative(difference: float) -> float:
    """A difference of logarithms as a relative one: infinite where it is too large for a number."""
    try:
        return math.expm1(difference)
    except OverflowError:
        return math.inf


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Mean of the first minus mean of the second, two independent groups of unequal variance (Welch 1947)."""
    require(min(len(first), len(second)) >= 2, "Welch's test needs at least two figures on each side.")
    one, other = summarise(first), summarise(second)
    errors = [group.std**2 / group.n for group in (one, other)]
    squares = sum(error**2 / (group.n - 1) for error, group in zip(errors, (one, other)))
    free = sum(errors) ** 2 / squares if squares else one.n + other.n - 2.0
    return _difference(one.mean - other.mean, math.sqrt(sum(errors)), free, (one.n, other.n))


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Mean of first minus second, pair by pair: both were measured on the same things."""
    require(len(first) == len(second), f"Pairs need as many figures on both sides, not {len(first)} and {len(second)}.")
    require(len(first) >= 2, "A paired test needs at least two pairs.")
    found = summarise([a - b for a, b in zip(first, second)])
    return _difference(found.mean, found.std / math.sqrt(found.n), found.n - 1, (found.n,))


def _difference(mean: float, error: float, free: float, n: tuple[int, ...]) -> Difference:
    if not math.isfinite(mean + error):
        return Difference(math.nan, math.nan, math.nan, math.nan, n)
    if error == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, n)
    reach = error * t_quantile(LEVEL, free)
    return Difference(mean, mean - reach, mean + reach, t_tails(mean / error, free), n)


def t_tails(t: float, free: float) -> float:
    """The probability that Student's t with so many degrees of freedom is as far from 0 as ``t``, on either side."""
    return incomplete_beta(free / (free + t * t), free / 2, 0.5)


def t_quantile(inside: float, free: float) -> float:
    """Between −t and t of this value lies the share ``inside`` of Student's distribution."""
    low, high = 0.0, 1.0
    while t_tails(high, free) > 1 - inside:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tails(middle, free) > 1 - inside else (low, middle)
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), regularised: by its continued fraction, or by that of 1 − I_{1−x}(b, a) where that is the fast one."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    # Lentz: f = c₀d₀ · c₁d₁ · …, with the odd and even terms of the fraction in turn
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / _not_zero(1 + term * d), _not_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY


def in_both(first: Mapping[int, Each], second: Mapping[int, Each]) -> tuple[list[Each], list[Each]]:
    """What two sides have of the seeds that both of them have, in one order: pairs."""
    seeds = sorted(first.keys() & second.keys())
    return [first[seed] for seed in seeds], [second[seed] for seed in seeds]


def mean_losses(runs: Sequence[Sequence[float]]) -> list[float]:
    """The mean over runs, window by window or document by document: what a paired test compares."""
    return [sum(column) / len(column) for column in zip(*runs)]


def p_text(p: float) -> str:
    if math.isnan(p):
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"
