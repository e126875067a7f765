"""A run's curve for the terminal."""

from __future__ import annotations

import math

import pandas as pd

from analysis.record import read_curves
from analysis.selection import best_steps
from sweep.results import Results
from sweep.text import aligned

EVALUATIONS_SHOWN = 20
"""At most; the first, the best and the last are among them."""
BAR_WIDTH = 24
"""Letters of a bar for an accuracy of 1."""
EIGHTHS = " ▏▎▍▌▋▊▉"
"""Blocks that fill so many eighths of a letter."""


def curve_lines(results: Results, run_id: str) -> list[str]:
    """Return a table of evaluations with a bar for each validation accuracy; `best` marks what would be selected.

    Raises:
        RecordError: the curve is damaged.
    """
    curve = read_curves(results.root, [run_id])
    if curve.empty:
        return ["no evaluations yet"]
    best = _best(curve)
    rows = [("step", "train loss", "test accuracy", "validation accuracy", "", "")]
    for place in shown_places(len(curve), best):
        at = curve.iloc[place]
        validation = at["validation_accuracy"]
        mark = "best" if place == best else ""
        numbers = (f"{at['step']}", f"{at['train_loss']:.4f}", f"{at['test_accuracy']:.2%}", f"{validation:.2%}")
        rows.append((*numbers, bar(validation), mark))
    hidden = len(curve) - (len(rows) - 1)
    return aligned(rows, right=range(4)) + ([f"{hidden} evaluations between these are not shown"] if hidden else [])


def _best(curve: pd.DataFrame) -> int | None:
    """Return the place of the evaluation that the report would select; None: none has a validation accuracy."""
    best = best_steps(curve[["run_id", "step", "validation_accuracy"]])
    return None if best.empty else int((curve["step"] == best["best_step"][0]).to_numpy().argmax())


def shown_places(number: int, best: int | None) -> list[int]:
    """Choose evenly among so many evaluations, at most `EVALUATIONS_SHOWN`; the first, best and last are among them."""
    even = min(number, EVALUATIONS_SHOWN - 1)
    places = {round(index * (number - 1) / max(1, even - 1)) for index in range(even)}
    return sorted(places | ({best} if best is not None else set()))


def bar(fraction: float) -> str:
    """Return a bar as long as a fraction of `BAR_WIDTH` letters, to an eighth of a letter; nothing for NaN."""
    if math.isnan(fraction):
        return ""
    whole, eighths = divmod(round(fraction * BAR_WIDTH * 8), 8)
    return ("█" * whole + EIGHTHS[eighths]).rstrip()
