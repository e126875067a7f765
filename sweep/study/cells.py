"""The cells of a study where it is no full grid: which there are, and what is their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, Field

from lr_sweep.common.errors import unknown
from lr_sweep.sweep.study.search import LearningRates
from lr_sweep.sweep.study.validation import Mistakes, Strict, mistake, read_record, some_distinct

MAX_CELLS = 5000
"""Largest number of tasks x models x variants, counted before they are written out; checking so many takes seconds."""
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
    protocol: dict[str, Any] = Field(default_factory=dict)
    """Options that differ from the study's; not `precision`."""

    def have(self, **names: str) -> bool:
        """Return whether some of them have these, for instance `have(models="gpt2", variants="frozen-random")`."""
        return all((listed := getattr(self, axis)) is None or name in listed for axis, name in names.items())


def changed(protocol: P, own: Mapping[str, Any]) -> P:
    """Return a protocol with some cells' or a variant's own options; raise `ValidationError` for wrong ones."""
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
    """The step budget."""


def by_names(entries: Sequence[Cells], axes: Mapping[str, Collection[str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the index of an entry and the names of one of its cells, entry by entry."""
    for index, cells in enumerate(entries):
        for names in product(*(getattr(cells, axis) or valid for axis, valid in axes.items())):
            yield index, names


def check_cells(entries: Sequence[Cells], axes: Mapping[str, Mapping[str, Any]], protocol: Any) -> None:
    """Raise all mistakes in a study's `cells`: wrong names and options, cells that are there twice or never.

    `axes`: the study's `AXES` by name; `protocol`: the study's.
    """
    with Mistakes() as mistakes:
        for index, cells in enumerate(entries):
            for axis, valid in axes.items():
                for place, name in enumerate(getattr(cells, axis) or ()):
                    if name not in valid:
                        mistakes.add(unknown(axis[:-1], name, valid), "cells", index, axis, place)
            with mistakes.below("cells", index, "protocol", keys=vars(protocol)):
                _check_budgets(cells, axes["tasks"], changed(protocol, cells.protocol).evaluate_every)
    _check_each_once(entries, axes)


def _check_budgets(cells: Cells, tasks: Mapping[str, Any], every: int) -> None:
    for name, task in tasks.items():
        if cells.have(tasks=name) and task.num_steps % every:
            raise mistake(f"tasks.{name}.num_steps = {task.num_steps} is no multiple of {every}", "evaluate_every")


def _check_each_once(entries: Sequence[Cells], axes: Mapping[str, Mapping[str, Any]]) -> None:
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
                    mistakes.add("is in none of the `cells`; add it there, or leave it out here", axis, name)
