"""`--only`: a part of a study's runs, named by the values of some of their axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.text import rate_text

if TYPE_CHECKING:
    from .runs import WantedRun

AXES = ("task", "model", "variant", "learning_rate", "seed", "run")

Only = Mapping[str, frozenset[str]]
"""Wanted values by axis, as text; an axis that is not there may have any value."""
ALL_RUNS: Only = {}


def parse_only(text: str) -> Only:
    """Read `variant=frozen-pretrained,learning_rate=1e-3`; values of one axis are alternatives; raises UserError."""
    wanted: dict[str, frozenset[str]] = {}
    for part in text.split(","):
        axis, equals, value = (piece.strip() for piece in part.partition("="))
        if axis not in AXES or not equals or not value:
            raise UserError(f"--only: got {part!r}, want AXIS=VALUE; axes: {', '.join(AXES)}")
        wanted[axis] = wanted.get(axis, frozenset()) | {
            _rate(value) if axis == "learning_rate" else value
        }
    return wanted


def only_text(only: Only) -> str:
    """Return the text that `parse_only` reads."""
    return ",".join(f"{axis}={value}" for axis, values in only.items() for value in sorted(values))


def select(runs: Sequence[WantedRun], only: Only) -> list[WantedRun]:
    """Return the runs that have the wanted values; raises UserError if no run has one, or no run has them together."""
    rows = [_values(run) for run in runs]
    mistakes = []
    for axis, wanted in only.items():
        valid = list(dict.fromkeys(row[axis] for row in rows))
        wrong = sorted(wanted - set(valid))
        mistakes += [unknown(axis.replace("_", " "), value, valid, valid) for value in wrong]
    chosen = [
        run
        for run, row in zip(runs, rows, strict=True)
        if all(row[axis] in wanted for axis, wanted in only.items())
    ]
    if mistakes or not chosen:
        raise UserError(
            f"--only {only_text(only)}: {'; '.join(mistakes) or 'no run of the study has all of these'}"
        )
    return chosen


def _values(run: WantedRun) -> dict[str, str]:
    rate, seed = rate_text(run.run.learning_rate), str(run.run.seed)
    return {
        "task": run.run.task,
        "model": run.model,
        "variant": run.variant,
        "learning_rate": rate,
        "seed": seed,
        "run": run.run_id,
    }


def _rate(value: str) -> str:
    try:
        rate = float(value)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise UserError(f"--only: got learning_rate={value}, want a number above 0")
    return rate_text(rate)
