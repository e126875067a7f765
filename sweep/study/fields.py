"""Types of fields that studies of both kinds have: built-in training, and a function of the user's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, Tag, ValidationInfo

from lr_sweep.sweep.study.validation import NameRule, Seed, or_list, some_distinct

MAX_RUNS = 100_000
"""Largest number of runs of a study; a plan of so many takes ten seconds."""
MAX_CELLS = 5000
"""Largest number of tasks x models x variants, counted before they are written out; checking so many takes seconds."""
MAX_SEEDS = 1000
"""More are taken for a mistake: `seeds: 2021` means 2021 seeds, `seeds: [2021]` one."""


def _file_name(study: str, info: ValidationInfo) -> str:
    if info.context and study != (stem := info.context["stem"]):
        raise ValueError(f"{study!r} is not the file's name; call the file {study}.yaml or the study {stem}")
    return study


def _one_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("want one line of text")
    return text


StudyName = Annotated[str, NameRule, AfterValidator(_file_name)]
"""The name of a study, which is that of its file."""
Title = Annotated[str, AfterValidator(_one_line), Field(default_factory=lambda given: given.get("study", ""))]
"""One line; default: the study's name."""
Seeds = Annotated[
    Annotated[int, Field(ge=1, le=MAX_SEEDS), Tag("(one)")]
    | Annotated[tuple[Annotated[int, Seed], ...], AfterValidator(some_distinct), Tag("(list)")],
    or_list((int,), "a whole number n, for seeds 0 to n - 1, or a list of seeds"),
]
"""A number n, for 0 to n - 1, or a list."""


def listed(seeds: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return seeds of either form in the study's order."""
    return tuple(range(seeds)) if isinstance(seeds, int) else seeds


def multiple_of(every: int) -> AfterValidator:
    """Return a check that a step budget is a multiple of the steps between evaluations."""

    def check(num_steps: int) -> int:
        if rest := num_steps % every:
            nearest = f"{num_steps - rest} or {num_steps - rest + every}" if num_steps > every else str(every)
            raise ValueError(f"{num_steps} is not a multiple of protocol.evaluate_every = {every}; {nearest} is")
        return num_steps

    return AfterValidator(check)
