"""Intervals and tests for held-out results."""

import bisect
import math
import random
from collections.abc import Sequence


def bootstrap_interval(
    values: Sequence[float], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean (Efron 1979); (nan, nan) for no values.

    Where all values are 0, or all are 1, resampling shows no spread: there it is the exact interval of a share (Clopper
    and Pearson 1934).
    """
    if not values:
        return math.nan, math.nan
    if set(values) in ({0.0}, {1.0}):
        far = ((1 - level) / 2) ** (1 / len(values))
        return (0.0, 1 - far) if values[0] == 0 else (far, 1.0)
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
        disagree: chance of an outcome that the teams are not both right or both wrong.

    Returns:
        A difference of rates, 0 to 1; None if even the largest possible one, `disagree`, is not found so often.
    """
    spread = 5 * math.sqrt(size * disagree * (1 - disagree))
    low, high = max(0, int(size * disagree - spread)), min(size, int(size * disagree + spread) + 1)
    cases = [
        (count, _binomial(size, count, disagree), _least_significant(count, level)) for count in range(low, high + 1)
    ]

    def found(difference: float) -> float:
        share = min(1.0, 0.5 + difference / (2 * disagree))  # of the discordant pairs, those that one team wins
        return sum(
            chance * sum(_binomial(count, wins, share) for wins in range(least, count + 1))
            for count, chance, least in cases
            if least is not None
        )

    steps = range(1, math.floor(size * disagree) + 1)
    place = bisect.bisect_left(steps, power, key=lambda step: found(step / size))
    return steps[place] / size if place < len(steps) else None


def _binomial(trials: int, successes: int, chance: float) -> float:
    """Probability of so many successes; its terms are too small or large for plain multiplication."""
    if chance >= 1:
        return float(successes == trials)
    ways = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
    return math.exp(ways + successes * math.log(chance) + (trials - successes) * math.log1p(-chance))


def _least_significant(discordant: int, level: float) -> int | None:
    """The fewest wins among so many discordant pairs at which the test's p value is below the level."""
    tail, least = 0.0, None
    for wins in range(discordant, discordant // 2, -1):
        tail += _binomial(discordant, wins, 0.5)
        if 2 * tail >= level:
            break
        least = wins
    return least
