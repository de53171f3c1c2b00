"""The mean and the spread of a metric over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation over seeds, with the worst and the best."""

    mean: float
    std: float
    low: float
    high: float
    n: int


def summarise(values: Sequence[float]) -> Summary:
    """Sample standard deviation (0 for a single seed)."""
    n = len(values)
    mean = sum(values) / n
    std = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else 0.0
    return Summary(mean, std, min(values), max(values), n)
