"""The cells of a study: its variants, known ones and its own; and which cells are there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationInfo

from lr_sweep.common.errors import unknown
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.common.limits import Steps
from lr_sweep.trainables.parts import VARIANTS, Variant
from lr_sweep.trainables.run import Protocol

from .search import LearningRateGrid, LearningRates
from .validation import (
    NAME,
    STRICT,
    Mistakes,
    Strict,
    by_name,
    each_entry,
    mistake,
    read_record,
    some_distinct,
)

P = TypeVar("P")
AXES = ("tasks", "models", "variants")
"""Fields of a study that name what its cells are made of."""

Names = Annotated[tuple[str, ...], AfterValidator(some_distinct)]


class Cells(Strict):
    """Some of a study's cells: all tasks x models x variants that it names."""

    tasks: Names | None = None
    """Names in the study's `tasks`; null: all."""
    models: Names | None = None
    """Names in the study's `models`; null: all."""
    variants: Names | None = None
    """Names in the study's `variants`; null: all."""
    learning_rates: LearningRates | None = None
    """A grid or a list for these cells; null: the study's."""

    gone: ClassVar[ReadFields] = {"protocol": {}}

    def have(self, **names: str) -> bool:
        """Return whether some of them have these, for instance `have(models="gpt2", variants="frozen-random")`."""
        return all(
            (listed := getattr(self, axis)) is None or name in listed
            for axis, name in names.items()
        )


def changed(protocol: P, own: ReadFields) -> P:
    """Return a protocol with other options, such as a variant's; raise `ValidationError` for wrong ones."""
    if "precision" in own:
        raise mistake("holds for a whole study; set it in the study's protocol", "precision")
    return read_record(type(protocol), {**vars(protocol), **own}) if own else protocol


class StudyCell(NamedTuple):
    """A task, model and variant of a study, and how its runs are trained."""

    task: str
    model: str
    variant: str
    learning_rates: tuple[float, ...]
    """In ascending order."""
    protocol: Any
    num_steps: int


def ascending(rates: LearningRateGrid | tuple[float, ...]) -> tuple[float, ...]:
    """Return the learning rates of either form in ascending order."""
    return rates.values() if isinstance(rates, LearningRateGrid) else tuple(sorted(rates))


def by_names(
    entries: Sequence[Cells], axes: Mapping[str, Collection[str]]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the index of an entry and the names of one of its cells, entry by entry."""
    for index, cells in enumerate(entries):
        for names in product(*(getattr(cells, axis) or valid for axis, valid in axes.items())):
            yield index, names


def check_cells(entries: Sequence[Cells], axes: Mapping[str, ReadFields]) -> None:
    """Raise all mistakes in a study's `cells`: wrong names, cells that are there twice or never.

    `axes`: the study's `AXES` by name.
    """
    with Mistakes() as mistakes:
        for index, cells in enumerate(entries):
            for axis, valid in axes.items():
                for place, name in enumerate(getattr(cells, axis) or ()):
                    if name not in valid:
                        mistakes.add(unknown(axis[:-1], name, valid), "cells", index, axis, place)
    _check_each_once(entries, axes)


def _check_each_once(entries: Sequence[Cells], axes: Mapping[str, ReadFields]) -> None:
    used = set[tuple[str, str]]()
    first: dict[tuple[str, ...], int] = {}
    with Mistakes() as mistakes:
        for index, names in by_names(entries, axes):
            if (before := first.setdefault(names, index)) != index:
                mistakes.add(f"{', '.join(names)}: is in cells[{before}], too", "cells", index)
            used |= set(zip(axes, names, strict=True))
        for axis, valid in axes.items():
            for name in valid:
                if (axis, name) not in used:
                    mistakes.add(
                        "is in none of the `cells`; add it there, or leave it out here", axis, name
                    )


BUDGET = "num_steps"
STEPS = TypeAdapter(Steps, config=STRICT)


@dataclass(frozen=True, kw_only=True)
class StudyVariant(Variant):
    """A variant of the study's own."""

    protocol: Fields = field(default_factory=dict)
    """Options that differ from the study's (not `precision`), and from its tasks' `num_steps`."""


def own_options(variant: Any) -> tuple[Fields, int | None]:
    """Return the options of the protocol that are a variant's own, and its step budget; None: the task's."""
    own = dict(variant.protocol) if isinstance(variant, StudyVariant) else {}
    num_steps = own.pop(BUDGET, None)
    return own, num_steps


def variants_of(value: Any, info: ValidationInfo) -> dict[str, Variant]:
    """Build the variants by name, of a list of known names or of a mapping."""
    protocol = info.data.get("protocol", Protocol())
    variants: dict[str, Variant] = each_entry(
        by_name(value, "variants"), lambda name, entry: _variant(name, entry, protocol)
    )
    return variants


def _variant(name: str, value: Any, protocol: Protocol) -> Variant:
    """Build a variant from its entry in a study, which is empty for a known name."""
    known = VARIANTS.get(name)
    if known and value in (None, {}):
        return known
    if value is None:
        raise ValueError(
            unknown("variant", name, VARIANTS) + "; or give its initialisation and trained parts"
        )
    NAME.validate_python(name)
    own = _own(read_record(StudyVariant, value), protocol)
    if known and own != known:
        raise ValueError(
            f"{name!r} is a known variant; leave its entry empty, or choose another name"
        )
    return own


def _own(given: StudyVariant, protocol: Protocol) -> Variant:
    if not given.protocol:
        return Variant(initialisation=given.initialisation, trained=given.trained)
    own, num_steps = own_options(given)
    with Mistakes() as mistakes:
        with mistakes.below("protocol", keys=[*vars(protocol), BUDGET]):
            changed(protocol, own)
        with mistakes.below("protocol", BUDGET):
            STEPS.validate_python(1 if num_steps is None else num_steps)
    return given
