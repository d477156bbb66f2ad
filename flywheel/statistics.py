"""Intervals and tests for held-out results."""

import math
import random
from collections.abc import Sequence


def bootstrap_interval(
    values: Sequence[float], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean (Efron 1979); (nan, nan) for no values."""
    if not values:
        return math.nan, math.nan
    generator = random.Random(seed)
    size = len(values)
    means = sorted(sum(generator.choices(values, k=size)) / size for _ in range(resamples))
    tail = (1 - level) / 2
    return means[int(tail * resamples)], means[min(resamples - 1, int((1 - tail) * resamples))]


def mcnemar_exact(first: Sequence[bool], second: Sequence[bool]) -> tuple[int, int, float]:
    """Exact two-sided McNemar test on paired outcomes (McNemar 1947; the binomial form).

    Returns:
        How often only the first was right, how often only the second, and the p value.
    """
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    discordant = only_first + only_second
    if not discordant:
        return 0, 0, 1.0
    tail = sum(math.comb(discordant, k) for k in range(min(only_first, only_second) + 1))
    return only_first, only_second, min(1.0, 2 * tail / 2**discordant)
