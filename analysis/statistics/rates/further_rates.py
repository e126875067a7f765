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


def geometric_mean(one: float, other: float) -> float:
    """Return the middle of two learning rates on the logarithmic scale, to 3 significant digits."""
    return three_digits(math.sqrt(one * other))


def neighbours(tried: Collection[float], rate: float) -> list[float]:
    """Return the learning rates next to one of those that were tried: two, or one at an end."""
    rates = sorted(tried)
    at = rates.index(rate)
    return [*rates[max(at - 1, 0) : at], *rates[at + 1 : at + 2]]


def beyond(tried: Collection[float], end: str) -> list[float]:
    """Continue a sweep of at least two learning rates beyond one of its ends, `low` or `high`, step by step.

    The grid's own digits continue where they fit: after 1e-3, 3e-3, 1e-2 comes 3e-2, and not 3.33e-2.
    """
    rates = sorted(tried, reverse=end == "low")
    for _ in range(NUM_BEYOND):
        rates.append(_next(rates))
    return rates[-NUM_BEYOND:]


def between(tried: Collection[float], rate: float) -> tuple[float, ...]:
    """Halve the steps beside a learning rate, on the logarithmic scale."""
    return tuple(geometric_mean(rate, other) for other in neighbours(tried, rate))


def around(rate: float) -> tuple[float, ...]:
    """Return two half-decade steps to each side of the only learning rate that was tried."""
    return tuple(three_digits(rate * 10 ** (steps / 2)) for steps in (-2, -1, 1, 2))


def _next(rates: list[float]) -> float:
    step = rates[-1] / rates[-2]
    target = rates[-1] * step
    digits = {float(f"{rate:.2e}".split("e")[0]) for rate in rates}
    exponent = math.floor(math.log10(target))
    known = [digit * 10.0**power for digit in digits for power in range(exponent - 1, exponent + 2)]
    nearest = min(known, key=lambda rate: abs(math.log(rate / target)))
    # Otherwise the grid does not go by decades, and its last step is taken again.
    by_decades = (
        len(digits) < len(rates) and abs(math.log(nearest / target)) < abs(math.log(step)) / 2
    )
    return three_digits(nearest if by_decades else target)


def kept_rates(best: Mapping[float, float], running_means: Mapping[float, float]) -> set[float]:
    """Return the learning rates at a rung that median stopping lets continue.

    It keeps a rate whose best value is at least the median of the others' running means (Golovin et al. 2017, "Google
    Vizier", section 3.2.2).

    Args:
        best: the best value so far by learning rate; more is better, -inf: not finite.
        running_means: means of all values so far, of the same rates.
    """
    others = {
        rate: [mean for other, mean in running_means.items() if other != rate] for rate in best
    }
    return {
        rate
        for rate in best
        if len(others[rate]) < LEAST_OTHERS or best[rate] >= median(others[rate])
    }
