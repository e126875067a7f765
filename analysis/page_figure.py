"""What the page's interactive figure shows, as JSON for `page.js`; every number also as the tables write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.aggregate import Summary
from analysis.figures import LU2021_LEARNING_RATE, near_lu2021, variant_styles
from analysis.paper import published_best
from analysis.selection import CELL
from analysis.tables import lost_text, mean_sem_text, percent_text
from analysis.text import rate_text

LOST = ("diverged", "failed", "missing")
DIGITS = 4
"""Of percentages: far below what a screen shows."""


def chart_data(summary: Summary) -> dict[str, Any]:
    """Lay out test accuracy against learning rate: panels (task and model) of lines (variants) of points.

    Returns:
        Only what JSON has: no NaN. Accuracies are in percent.
    """
    cells = {tuple(cell[key] for key in CELL): cell for cell in summary.cells.to_dict("records")}
    lines = dict(list(summary.learning_rates.groupby(CELL, sort=False)))
    panels = []
    for model, of_model in summary.cells.groupby("model", sort=False):
        styles, published = variant_styles(list(of_model["variant"].unique())), published_best(of_model)
        for task, of_task in of_model.groupby("task", sort=False):
            keys = [(task, model, variant) for variant in of_task["variant"]]
            found = [_line(cells[key], lines[key], styles, published) for key in keys]
            rates = pd.concat([lines[key] for key in keys])
            panels.append({"task": task, "model": model, "fixed": _fixed_rate(rates), "lines": found})
    return {"panels": panels}


def _line(
    cell: Mapping[Any, Any],
    rates: pd.DataFrame,
    styles: Mapping[str, tuple[str, str]],
    published: Mapping[tuple[str, str], float],
) -> dict[str, Any]:
    colour, marker = styles[cell["variant"]]
    best = published.get((cell["task"], cell["variant"]))
    return {
        "variant": cell["variant"],
        "colour": colour,
        "marker": marker,
        "published": best,
        "published_text": None if best is None else percent_text(best / 100),
        "points": [_point(row, row["learning_rate"] == cell["learning_rate"]) for row in rates.to_dict("records")],
    }


def _point(row: Mapping[Any, Any], chosen: bool) -> dict[str, Any]:
    return {
        "rate": row["learning_rate"],
        "rate_text": rate_text(row["learning_rate"]),
        "mean": _percent(row["test_mean"]),
        "sem": _percent(row["test_sem"]),
        "text": mean_sem_text(row) if row["num_values"] else lost_text(row),
        "seeds": f"{row['num_values']} of {row['num_wanted']}",
        "lost": ", ".join(f"{row[status]} {status}" for status in LOST),
        "kind": _kind(row),
        "chosen": chosen,
    }


def _kind(row: Mapping[Any, Any]) -> str:
    """Say how a point is drawn: `full`, `partial` (not all seeds), `diverged` (all of them), `none` (no value)."""
    if row["diverged"] == row["num_wanted"]:
        return "diverged"  # also where some have a value, from before they diverged: as in the still figures
    if not row["num_values"]:
        return "none"
    return "full" if row["num_values"] == row["num_wanted"] else "partial"


def _percent(fraction: float) -> float | None:
    return None if pd.isna(fraction) else round(100 * fraction, DIGITS)


def _fixed_rate(rates: pd.DataFrame) -> dict[str, Any] | None:
    """Give the one learning rate of Lu et al. 2021 where the sweep is near it."""
    if not near_lu2021(rates):
        return None
    return {"rate": LU2021_LEARNING_RATE, "label": f"Lu et al. 2021 ({rate_text(LU2021_LEARNING_RATE)})"}
