"""Options that a search chooses beside the learning rate, and the values that each may have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import AfterValidator, Tag, ValidationError, model_validator

from lr_sweep.analysis.statistics.further_rates import three_digits
from lr_sweep.common.errors import unknown
from lr_sweep.common.text import rate_text
from lr_sweep.sweep.study.cells import StudyCell, changed
from lr_sweep.sweep.study.protocols import check_protocols
from lr_sweep.sweep.study.validation import Mistakes, Strict, mistake, or_list, some_distinct
from lr_sweep.sweep.study.variants import check_option
from lr_sweep.trainables.parts import Variant
from lr_sweep.trainables.run import Protocol

NOT_SEARCHED = ("precision", "evaluate_every", "train_examples_evaluated", "test_evaluated", "attention")
"""Options of how a run is measured or computed: a search would compare what is not alike."""
MAX_COMBINATIONS = 500
"""Of a space's values; each is checked."""
MAX_CHECKS = 20_000
"""Of combinations with a study's tasks and variants."""

Options = Mapping[str, Any]
"""Values of some options by name."""
NO_OPTIONS: Options = MappingProxyType({})
"""All options are the study's."""


class Range(Strict):
    """Numbers from `low` to `high`."""

    low: float
    """Smallest value, at most 3 significant digits."""
    high: float
    """Largest value, at most 3 significant digits."""
    scale: Literal["log", "linear"] = "log"
    """Scale on which values are spread evenly."""

    @model_validator(mode="after")
    def _check_ends(self) -> Range:
        for name in ("low", "high"):
            if (value := getattr(self, name)) != (rounded := three_digits(value) if value else 0.0):
                raise mistake(f"{value!r} has more than 3 significant digits; {rate_text(rounded)} has not", name)
        if self.low >= self.high:
            raise mistake(f"got {self.high:g}, want more than low = {self.low:g}", "high")
        if self.scale == "log" and self.low <= 0:
            raise mistake(f"got {self.low:g}, want more than 0 on a log scale, or scale: linear", "low")
        return self

    def at(self, position: float) -> float:
        """Return the value at a position of the range, 0 to 1, rounded to 3 digits."""
        if self.scale == "log":
            value = math.exp(math.log(self.low) + position * math.log(self.high / self.low))
        else:
            value = self.low + position * (self.high - self.low)
        return self.rounded(value)

    def rounded(self, value: float) -> float:
        """Return a value of 3 significant digits within the range."""
        return min(self.high, max(self.low, three_digits(value) if value else 0.0))


Values = Annotated[tuple[str | bool | int | float | None, ...], Len(2, 20), AfterValidator(some_distinct)]
"""A list of values without an order."""
Axis = Annotated[
    Annotated[Range, Tag("(one)")] | Annotated[Values, Tag("(list)")],
    or_list((dict, Range), "a range, {low: 1e-3, high: 1e-1, scale: log}, or a list of values"),
]
Space = dict[str, Axis]
"""What a search chooses beside the learning rate, by the option's name."""


def value_at(axis: Range | Sequence[Any], position: float) -> Any:
    """Return the value of an axis at a position, 0 to 1."""
    if isinstance(axis, Range):
        return axis.at(position)
    return axis[min(int(position * len(axis)), len(axis) - 1)]


def check_space(
    space: Mapping[str, Range | Sequence[Any]],
    cells: Sequence[StudyCell],
    tasks: Mapping[str, Any],
    variants: Mapping[str, Variant],
    own: Collection[str],
) -> None:
    """Raise what is wrong with the space of a study's search.

    Args:
        space: of the search.
        cells: of the study.
        tasks: of `StudyTask`, by name.
        variants: by name.
        own: options that some variants or cells set themselves.
    """
    mistakes, options = Mistakes(), vars(Protocol())
    for name, axis in space.items():
        with mistakes.below("search", "space", name):
            _check_axis(name, axis, options, own)
    mistakes.raise_all()
    problems = dict.fromkeys(_combined(space, cells, tasks, variants))
    for problem in list(problems)[:5]:
        mistakes.add(problem, "search", "space")
    mistakes.raise_all()


def _check_axis(name: str, axis: Range | Sequence[Any], options: Mapping[str, Any], own: Collection[str]) -> None:
    if name not in options:
        raise ValueError(unknown("option", name, options))
    if name in NOT_SEARCHED:
        raise ValueError("is how runs are measured or computed, and the same in all runs of a cell; leave it out")
    if name in own:
        raise ValueError("some variants or cells set it themselves; leave it out there, or here")
    for value in _ends(axis):
        try:
            check_option(name, value)
        except ValueError as error:
            hint = "; for whole numbers want a list of values" if isinstance(axis, Range) else ""
            raise ValueError(f"{error}{hint}") from error


def _ends(axis: Range | Sequence[Any]) -> Sequence[Any]:
    return (axis.low, axis.high) if isinstance(axis, Range) else axis


def _combined(
    space: Mapping[str, Range | Sequence[Any]],
    cells: Sequence[StudyCell],
    tasks: Mapping[str, Any],
    variants: Mapping[str, Variant],
) -> Iterator[str]:
    """Yield what is wrong with the combinations of the axes' values, or ends; raise ValidationError for too many."""
    ends = [_ends(axis) for axis in space.values()]
    if (number := math.prod(map(len, ends))) > MAX_COMBINATIONS:
        raise mistake(f"these are {number} combinations, want at most {MAX_COMBINATIONS}", "search", "space")
    cells = list(dict.fromkeys(cell._replace(model="", learning_rates=()) for cell in cells))  # it is all the same
    if number * len(cells) > MAX_CHECKS:
        counts = f"these are {number} combinations of values x {len(cells)} of tasks and variants"
        raise mistake(f"{counts} to check, want at most {MAX_CHECKS}; give fewer values", "search", "space")
    for values in product(*ends):
        options = dict(zip(space, values, strict=True))
        with_options = [cell._replace(protocol=changed(cell.protocol, options)) for cell in cells]
        try:
            check_protocols(with_options, tasks, variants)
        except ValidationError as error:
            yield from (detail["msg"] for detail in error.errors())
