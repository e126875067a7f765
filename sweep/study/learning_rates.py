"""The learning rates of a study: a list, or a logarithmic grid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from annotated_types import Interval
from pydantic import AfterValidator, Tag, model_validator

from lr_sweep.analysis.statistics.further_rates import three_digits
from lr_sweep.common.limits import LearningRate
from lr_sweep.common.text import rate_text
from lr_sweep.sweep.study.validation import Strict, mistake, or_list, some_distinct

SMALLEST = 1e-20
"""Far below any learning rate that changes a float32 weight; near the smallest float, 5e-324, steps would be equal."""


def _large_enough(rate: float) -> float:
    if rate < SMALLEST:
        raise ValueError(f"got {rate_text(rate)}, want at least {rate_text(SMALLEST)}: smaller ones change no weight")
    return rate


Rate = Annotated[LearningRate, AfterValidator(_large_enough)]
"""A learning rate of a study's runs."""


class LearningRateGrid(Strict):
    """Learning rates that are evenly spaced on a logarithmic scale, both ends included."""

    low: Rate
    """Smallest learning rate, at most 3 significant digits."""
    high: Rate
    """Largest learning rate, a whole number of grid steps above `low`."""
    per_decade: Annotated[int, Interval(ge=1, le=100)] = 2
    """Learning rates in each factor of ten; 2: 1e-6, 3.16e-6, 1e-5, ..."""

    @model_validator(mode="after")
    def _check_ends(self) -> LearningRateGrid:
        low, high = rate_text(self.low), rate_text(self.high)
        if self.low > self.high:
            raise mistake(f"{low} is above high = {high}", "low")
        if self.low != (rounded := three_digits(self.low)):
            raise mistake(f"{self.low!r} has more than 3 significant digits; {rate_text(rounded)} has not", "low")
        if self.values()[-1] != self.high:
            nearest = {self._value(math.floor(self._steps())), self._value(math.ceil(self._steps()))}
            fitting = " or ".join(map(rate_text, sorted(nearest)))
            raise mistake(f"{high} is no whole number of grid steps above low = {low}; {fitting} is", "high")
        return self

    def __len__(self) -> int:
        return round(self._steps()) + 1

    def values(self) -> tuple[float, ...]:
        """Return the learning rates in ascending order, rounded to 3 digits so that they are equal everywhere."""
        return tuple(self._value(n) for n in range(len(self)))

    def _steps(self) -> float:
        """Return the distance of the ends in grid steps."""
        return self.per_decade * (math.log10(self.high) - math.log10(self.low))

    def _value(self, num_steps: int) -> float:
        """Return the learning rate so many grid steps above `low`."""
        start = math.log10(self.low)
        # 3.16e-6 as `low` means half a decade above 1e-6: start there, or rounding errors would add up to 9.99e-6
        on_grid = round(start * self.per_decade) / self.per_decade
        if three_digits(10**on_grid) == self.low:
            start = on_grid
        return three_digits(10 ** (start + num_steps / self.per_decade))


def alike(rates: Iterable[float]) -> str:
    """Return what is wrong with learning rates of which two are written alike, in tables and by `--only`; else ''."""
    texts: dict[str, float] = {}
    for rate in rates:
        if (other := texts.setdefault(rate_text(rate), rate)) != rate:
            return f"{other!r} and {rate!r} are alike to six digits, {rate_text(rate)}: leave one out"
    return ""


def _distinct(rates: tuple[float, ...]) -> tuple[float, ...]:
    if wrong := alike(some_distinct(rates)):
        raise mistake(wrong)
    return rates


LearningRates = Annotated[
    Annotated[LearningRateGrid, Tag("(one)")] | Annotated[tuple[Rate, ...], AfterValidator(_distinct), Tag("(list)")],
    or_list((dict, LearningRateGrid), "a grid, {low: 1e-6, high: 1e-2, per_decade: 2}, or a list"),
]


def ascending(rates: LearningRateGrid | tuple[float, ...]) -> tuple[float, ...]:
    """Return the learning rates of either form in ascending order."""
    return rates.values() if isinstance(rates, LearningRateGrid) else tuple(sorted(rates))
