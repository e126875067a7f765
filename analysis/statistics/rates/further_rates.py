"""Learning rates that a sweep should try next, beyond its ends and between its steps, and those that it may stop."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from statistics import median

NUM_BEYOND = 2
"""Learning rates to add beyond an end: with one, the new best could be at the edge again."""
LEAST_OTHERS = 3
"""The median rule stops nothing while fewer other learning rates were at the rung."""


def three_digits(rate: float) -> float:
    """Round to 3 significant digits. The grids of studies do the same, so equal learning rates are equal floats."""
    return float(f"{rate:.3g}")


def geometric_mean(low: float, high: float) -> float:
    """Return the middle of two learning rates on the logarithmic scale, to 3 significant digits."""
    return three_digits(math.sqrt(low * high))


def neighbours(tried: Collection[float], rate: float) -> list[float]:
    """Return the learning rates next to one of those that were tried: two, or one at an end."""
    rates = sorted(tried)
    at = rates.index(rate)
    below = rates[max(at - 1, 0) : at]
    above = rates[at + 1 : at + 2]
    return below + above


def beyond(tried: Collection[float], end: str) -> list[float]:
    """Continue a sweep of at least two learning rates beyond one of its ends, `low` or `high`, step by step.

    The grid's own digits continue where they fit: after 1e-3, 3e-3, 1e-2 comes 3e-2, and not 3.33e-2.
    """
    rates = sorted(tried, reverse=end == "low")
    for _ in range(NUM_BEYOND):
        rates.append(_next(rates))
    return rates[-NUM_BEYOND:]


def around(rate: float) -> tuple[float, ...]:
    """Return two half-decade steps to each side of the only learning rate that was tried."""
    factors = [10 ** (steps / 2) for steps in (-2, -1, 1, 2)]
    return tuple(three_digits(rate * factor) for factor in factors)


def _next(rates: list[float]) -> float:
    """Return the next rate: a decade from an earlier one where the grid repeats itself, else by the last step."""
    step = rates[-1] / rates[-2]
    target = rates[-1] * step
    decade = 10.0 if step > 1 else 0.1
    ahead = [three_digits(rate * decade) for rate in rates]
    repeats = not set(ahead).isdisjoint(map(three_digits, rates))
    nearest = min(ahead, key=lambda rate: abs(math.log(rate / target)))
    distance = abs(math.log(nearest / target))
    if repeats and distance < abs(math.log(step)) / 2:
        return nearest
    return three_digits(target)


def kept_rates(best: Mapping[float, float], running_means: Mapping[float, float]) -> set[float]:
    """Return the learning rates at a rung that median stopping lets continue.

    It keeps a rate whose best value is at least the median of the others' running means (Golovin et al. 2017, "Google
    Vizier", section 3.2.2).

    Args:
        best: the best value so far by learning rate; more is better, -inf: not finite.
        running_means: means of all values so far, of the same rates.
    """
    kept = set()
    for rate in best:
        others = [mean for other, mean in running_means.items() if other != rate]
        if len(others) < LEAST_OTHERS or best[rate] >= median(others):
            kept.add(rate)
    return kept
