"""The variants of a study: known ones, its own, and those that its `axes` make of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError, ValidationInfo

from lr_sweep.common.errors import unknown
from lr_sweep.common.limits import Steps
from lr_sweep.sweep.study.cells import MAX_CELLS, changed
from lr_sweep.sweep.study.validation import (
    NAME,
    STRICT,
    Mistakes,
    each_entry,
    one_of,
    read_record,
    reworded,
    shown,
    some_distinct,
)
from lr_sweep.trainables.parts import VARIANTS, Variant
from lr_sweep.trainables.run import Protocol

BUDGET = "num_steps"
STEPS = TypeAdapter(Steps, config=STRICT)


@dataclass(frozen=True, kw_only=True)
class StudyVariant(Variant):
    """A variant of the study's own."""

    protocol: dict[str, Any] = field(default_factory=dict)
    """Options that differ from the study's (not `precision`), and from its tasks' `num_steps`."""


def own_protocol(variant: Any) -> dict[str, Any]:
    """Return the options of the protocol that are a variant's own."""
    own = variant.protocol if isinstance(variant, StudyVariant) else {}
    return {name: value for name, value in own.items() if name != BUDGET}


def own_budget(variant: Any) -> int | None:
    """Return a variant's own step budget; None: it has the task's."""
    return variant.protocol.get(BUDGET) if isinstance(variant, StudyVariant) else None


def variants_of(value: Any, info: ValidationInfo) -> dict[str, Variant]:
    """Build the variants by name, of a list of known names or of a mapping; each with every value of the axes."""
    protocol = info.data.get("protocol", Protocol())
    if isinstance(value, tuple):
        variants = {name: VARIANTS[name] for name in _NAMES.validate_python(value)}
    elif isinstance(value, Mapping) and value:
        variants = each_entry(value, lambda name, entry: _variant(name, entry, protocol))
    else:
        raise ValueError(f"got {shown(value)}, want a list of names, or a mapping of names to variants")
    axes = info.data.get("axes")
    return _combined(variants, axes) if axes else variants


def _combined(variants: Mapping[str, Variant], axes: Mapping[str, Sequence[Any]]) -> dict[str, Variant]:
    """Return each variant with each combination of the axes' values, under names such as `frozen-random-sgd`."""
    factors = [len(variants), *map(len, axes.values())]
    if (number := math.prod(factors)) > MAX_CELLS:
        raise ValueError(
            f"{' x '.join(map(str, factors))} (variants, {', '.join(axes)}) are {number} variants, want at most "
            f"{MAX_CELLS}; give fewer values, or a `search` with a `space`"
        )
    found: dict[str, Variant] = {}
    for (name, variant), values in product(variants.items(), product(*axes.values())):
        options = dict(zip(axes, values, strict=True))
        own = variant.protocol if isinstance(variant, StudyVariant) else {}
        found[NAME.validate_python(_name(name, options))] = StudyVariant(
            initialisation=variant.initialisation, trained=variant.trained, protocol={**own, **options}
        )
    return found


def _variant(name: str, value: Any, protocol: Protocol) -> Variant:
    """Build a variant from its entry in a study, which is empty for a known name."""
    known = VARIANTS.get(name)
    if known and value in (None, {}):
        return known
    if value is None:
        raise ValueError(unknown("variant", name, VARIANTS) + "; or give its initialisation and trained parts")
    NAME.validate_python(name)
    own = _own(read_record(StudyVariant, value), protocol)
    if known and own != known:
        raise ValueError(f"{name!r} is a known variant; leave its entry empty, or choose another name")
    return own


def _own(given: StudyVariant, protocol: Protocol) -> Variant:
    if not given.protocol:
        return Variant(initialisation=given.initialisation, trained=given.trained)
    with reworded([*vars(protocol), BUDGET], "protocol"):
        changed(protocol, own_protocol(given))
        if BUDGET in given.protocol:
            check_option(BUDGET, given.protocol[BUDGET])
    return given


def checked_axes(axes: Any) -> dict[str, tuple[Any, ...]]:
    """Return the axes of a study, values of the protocol's options by their names; raise all mistakes in them."""
    if not isinstance(axes, Mapping):
        raise ValueError(f"got {shown(axes)}, want a mapping of the protocol's options to lists of values")
    options = [*vars(Protocol()), BUDGET]
    with Mistakes() as mistakes:
        for option, values in axes.items():
            with mistakes.below(option):
                if option not in options:
                    raise ValueError(unknown("option", option, options))
                if not isinstance(values, tuple):
                    raise ValueError(f"got {shown(values)}, want a list of values")
                if all(value is None or isinstance(value, str | int | float) for value in values):
                    some_distinct(values)
                for index, value in enumerate(values):
                    with mistakes.below(option, index):
                        check_option(option, value)
    return dict(axes)


def check_option(option: str, value: Any) -> None:
    """Raise ValueError if an option of the protocol, or the step budget, cannot have a value."""
    if option == BUDGET:
        STEPS.validate_python(value)
        return
    try:
        changed(Protocol(), {option: value})
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error


def _name(variant: str, options: Mapping[str, Any]) -> str:
    """Return `frozen-random-sgd` or `frozen-random-batch-size-32`."""
    texts = [value if isinstance(value, str) else f"{option}-{value}" for option, value in options.items()]
    return "-".join([variant, *(text.lower().replace("_", "-").replace(".", "p") for text in texts)])


_NAMES = TypeAdapter(
    Annotated[tuple[Annotated[str, one_of("variant", VARIANTS)], ...], AfterValidator(some_distinct)],
    config=STRICT,
)
