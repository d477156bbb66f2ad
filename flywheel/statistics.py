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


def detectable_difference(size: int, disagree: float = 0.25, level: float = 0.05, power: float = 0.8) -> float | None:
    """The smallest difference between two teams that the exact McNemar test finds with the given power.

    Args:
        size: paired outcomes.
        disagree: share of them in which the teams are not both right or both wrong.

    Returns:
        A difference of rates, 0 to 1; None if even the largest possible one, `disagree`, is not found so often.
    """
    discordant = round(size * disagree)
    least = _least_significant(discordant, level)
    if least is None:
        return None
    for step in range(1, discordant + 1):
        share = 0.5 + step / (2 * discordant)  # of the discordant pairs, those that one team wins
        found = sum(
            math.comb(discordant, wins) * share**wins * (1 - share) ** (discordant - wins)
            for wins in range(least, discordant + 1)
        )
        if found >= power:
            return step / size
    return None


def _least_significant(discordant: int, level: float) -> int | None:
    """The fewest wins among so many discordant pairs at which the test's p value is below the level."""
    for wins in range(discordant // 2 + 1, discordant + 1):
        tail = sum(math.comb(discordant, k) for k in range(wins, discordant + 1))
        if min(1.0, 2 * tail / 2**discordant) < level:
            return wins
    return None
