"""The learning rates of a study: a list, a grid, or a search in rounds; and the rule that stops some of them early."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from annotated_types import Interval, Len
from pydantic import AfterValidator, BeforeValidator, Field, Tag, ValidationInfo, model_validator

from lr_sweep.analysis.statistics.rates.further_rates import three_digits
from lr_sweep.common.limits import LearningRate
from lr_sweep.common.text import rate_text

from .validation import Strict, by_type, mistake, some_distinct

Options = Mapping[str, Any]
NO_OPTIONS: Options = MappingProxyType({})
"""All options are the study's."""
NUM_FIRST = 4
"""Rates that `tpe` and `gp` try before they look at values: the quasi-random ones, the same in every cell."""
ADAPTIVE = ("tpe", "gp")
ADAPTIVE_AT_ONCE = 2


def _of_three_digits(value: float) -> float:
    if value != (rounded := three_digits(value) if value else 0.0):
        raise ValueError(
            f"{value!r} has more than 3 significant digits; {rate_text(rounded)} has not"
        )
    return value


ThreeDigits = AfterValidator(_of_three_digits)


class LearningRateGrid(Strict):
    """Learning rates that are evenly spaced on a logarithmic scale, both ends included."""

    low: Annotated[LearningRate, ThreeDigits]
    """Smallest, at most 3 significant digits."""
    high: LearningRate
    """Largest, whole grid steps above `low`."""
    per_decade: Annotated[int, Interval(ge=1, le=100)] = 2
    """Learning rates in each factor of ten; 2: 1e-6, 3.16e-6, ..."""

    @model_validator(mode="after")
    def _check_ends(self) -> LearningRateGrid:
        if self.low > self.high:
            raise mistake(f"{rate_text(self.low)} is above high = {rate_text(self.high)}", "low")
        if self.values()[-1] != self.high:
            low, high, steps = rate_text(self.low), rate_text(self.high), self._steps()
            nearest = {self._value(math.floor(steps)), self._value(math.ceil(steps))}
            fitting = " or ".join(map(rate_text, sorted(nearest)))
            raise mistake(
                f"{high} is no whole number of grid steps above low = {low}; {fitting} is", "high"
            )
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


LearningRates = Annotated[
    Annotated[LearningRateGrid, Tag("(dict)")]
    | Annotated[tuple[LearningRate, ...], AfterValidator(some_distinct), Tag("(tuple)")],
    by_type("a grid, {low: 1e-6, high: 1e-2, per_decade: 2}, or a list"),
]


class Range(Strict):
    """Numbers from `low` to `high`, spread evenly on a log scale; from 0 or less, on a linear one."""

    low: Annotated[float, ThreeDigits]
    """Smallest, at most 3 significant digits."""
    high: Annotated[float, ThreeDigits]
    """Largest, at most 3 significant digits."""

    @model_validator(mode="before")
    @classmethod
    def _without_scale(cls, value: Any) -> Any:
        """Leave out an earlier version's `scale`, where it is the one that `low` has now."""
        if not isinstance(value, Mapping):
            return value
        low = value.get("low")
        scale = "linear" if isinstance(low, float | int) and low <= 0 else "log"
        return {name: given for name, given in value.items() if (name, given) != ("scale", scale)}

    @model_validator(mode="after")
    def _check_ends(self) -> Range:
        if self.low >= self.high:
            raise mistake(f"got {self.high:g}, want more than low = {self.low:g}", "high")
        return self

    @property
    def is_log(self) -> bool:
        """Return whether values are spread evenly on a log scale."""
        return self.low > 0

    def at(self, position: float) -> float:
        """Return the value at a position of the range, 0 to 1, rounded to 3 digits."""
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low + position * (high - low))
        else:
            value = self.low + position * (self.high - self.low)
        return self.rounded(value)

    def rounded(self, value: float) -> float:
        """Return a value of 3 significant digits within the range."""
        return min(self.high, max(self.low, three_digits(value) if value else 0.0))


Values = Annotated[
    tuple[str | bool | int | float | None, ...], Len(2, 20), AfterValidator(some_distinct)
]
Axis = Annotated[
    Annotated[Range, Tag("(dict)")] | Annotated[Values, Tag("(tuple)")],
    by_type("a range, {low: 1e-3, high: 1e-1}, or a list of values"),
]
Space = dict[str, Axis]
"""What a search chooses beside the learning rate, by the option's name."""


def _value_at(axis: Range | Sequence[Any], position: float) -> Any:
    if isinstance(axis, Range):
        return axis.at(position)
    return axis[min(int(position * len(axis)), len(axis) - 1)]


class Point(NamedTuple):
    """What a search proposes."""

    learning_rate: float
    options: Options = NO_OPTIONS
    """Values of the options in the search's space."""


class Search(Strict):
    """Learning rates of each cell, chosen in rounds from a range, log-uniformly at first."""

    sampler: Literal["tpe", "gp", "quasi-random", "random"] = "tpe"
    """`tpe` and `gp` are Optuna's samplers; `quasi-random` is a scrambled Sobol sequence."""
    low: Annotated[LearningRate, ThreeDigits]
    """Smallest, at most 3 significant digits."""
    high: Annotated[LearningRate, ThreeDigits]
    """Largest, at most 3 significant digits; at least twice `low`."""
    rates: Annotated[int, Interval(ge=2, le=100)]
    """Learning rates of each cell, in all."""
    space: Space = Field(default_factory=dict)
    """Options chosen with each rate: a range or a list of values."""

    gone: ClassVar = {"at_once": None, "seed": 0}

    @model_validator(mode="after")
    def _check_range(self) -> Search:
        if self.high < 2 * self.low:
            raise mistake(
                f"got {rate_text(self.high)}, want at least twice low = {rate_text(self.low)}",
                "high",
            )
        if self.sampler in ADAPTIVE and self.rates <= NUM_FIRST:
            raise mistake(
                f"got {self.rates}, want more than {NUM_FIRST}: the first {NUM_FIRST} of {self.sampler} are "
                f"quasi-random; or choose sampler: quasi-random",
                "rates",
            )
        return self

    @property
    def round_size(self) -> int:
        """Return how many learning rates of a cell a round proposes at most."""
        return ADAPTIVE_AT_ONCE if self.sampler in ADAPTIVE else self.rates

    def facts(self) -> dict[str, Any]:
        """Return what reports read of it, as JSON values."""
        facts: dict[str, Any] = self.model_dump(include={"sampler", "low", "high", "rates"})
        return facts | ({"space": list(self.space)} if self.space else {})

    def text(self) -> str:
        """Return `tpe, 8 learning rates from 1e-5 to 1e-1, 2 at once`."""
        chosen_too = f", with {', '.join(self.space)}" if self.space else ""
        return (
            f"{self.sampler}, {self.rates} learning rates from {rate_text(self.low)} to {rate_text(self.high)}, "
            f"{min(self.round_size, self.rates)} at once{chosen_too}"
        )

    def point_at(self, positions: Sequence[float]) -> Point:
        """Return the point at positions of the range and of the space's axes, each 0 to 1."""
        options = zip(self.space.items(), positions[1:], strict=True)
        chosen = {name: _value_at(axis, position) for (name, axis), position in options}
        return Point(self.range.at(positions[0]), chosen)

    @property
    def range(self) -> Range:
        """The range of the learning rate."""
        return Range(low=self.low, high=self.high)

    def untried(self, rate: float, tried: Collection[float]) -> float:
        """Return the rate, rounded to 3 digits within the range; if that was tried, the nearest one that was not."""
        below = above = self.range.rounded(rate)
        while below in tried and above in tried:
            below = max(self.low, _neighbour(below, -1))
            above = min(self.high, _neighbour(above, 1))
        return above if below in tried else below


def _neighbour(rate: float, direction: int) -> float:
    """Return the next number of 3 significant digits."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 2)
    return three_digits(rate + direction * unit)


def _rates_or_search(value: Any, info: ValidationInfo) -> Any:
    if "search" not in info.data:  # it has a mistake of its own
        return value
    searched = info.data["search"] is not None
    if value is None and not searched:
        raise ValueError(
            "missing; write `learning_rates: {low: 1e-4, high: 1e-1}`, a list, or a `search`"
        )
    if value is not None and searched:
        raise ValueError("the study has a `search`, too; leave one of them out")
    return value


RatesOrSearch = Annotated[LearningRates | None, BeforeValidator(_rates_or_search)]
"""A grid or a list; None where the study has a `search`. For a field after `search`."""
