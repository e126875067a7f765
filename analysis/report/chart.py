"""The data of a report's interactive chart, for JavaScript: panels of lines of points, and what its handle shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.conditions import Conditions
from lr_sweep.analysis.statistics.comparisons.orders import Order
from lr_sweep.analysis.statistics.selection.best import CELL, cell_of, rows_by_cell
from lr_sweep.analysis.statistics.selection.summary import (
    GROUP,
    OUTCOMES,
    StudySummary,
    with_interval,
)
from lr_sweep.common.files import Fields
from lr_sweep.common.text import counted, rate_text

from .cells import (
    SELDOM,
    incomplete_texts,
    lost_text,
    mean_sem_text,
    seeds_text,
)
from .figure_frame import Style, variant_styles

DIGITS = 4
"""Decimals of percentages: far below what a screen shows."""
Rows = Sequence[Row]


def chart_data(panels: Sequence[Fields], orders: pd.DataFrame, metric: Metric) -> Fields:
    """Return the chart's data: panels as of `sweep_panels`, each with what its handle shows.

    `orders` is the result of `orders.orders`.
    """
    orders_of = dict(list(orders.groupby(GROUP, sort=False)))
    with_handles = []
    for panel in panels:
        variants = [line["variant"] for line in panel["lines"]]
        handle = handle_data(orders_of[panel["task"], panel["model"]], variants)
        with_handles.append({**panel, "handle": handle})
    return {"panels": with_handles, "metric": _metric(metric)}


def sweep_panels(
    summary: StudySummary, conditions: Conditions = MappingProxyType({})
) -> list[Fields]:
    """Lay out test values against learning rate: panels (task and model) of lines (variants) of points.

    Returns only what JSON has: no NaN. Accuracies, and other fractions, are in percent.
    """
    lines = _Lines(summary, conditions)
    panels: list[Fields] = []
    for model, of_model in summary.cells.groupby("model", sort=False):
        styles = variant_styles(list(of_model["variant"].unique()))
        for task, of_task in of_model.groupby("task", sort=False):
            cells = of_task.to_dict("records")
            shown = [lines.of(cell, styles[cell["variant"]]) for cell in cells]
            panels.append({"task": task, "model": model, "lines": shown})
    return panels


def _metric(metric: Metric) -> Fields:
    unit, least, most = (" %", 0, 100) if metric.is_fraction else ("", None, None)
    names = {"title": metric.title, "axis": metric.axis, "chosen_on": metric.chosen_on}
    return names | {"unit": unit, "least": least, "most": most}


class _Lines:
    """The lines of a study's variants."""

    def __init__(self, summary: StudySummary, conditions: Conditions) -> None:
        self.metric, self.conditions = summary.metric, conditions
        self.rates = rows_by_cell(summary.learning_rates)
        self.cells = rows_by_cell(with_interval(summary.cells))
        by_cell = summary.chosen_runs.dropna(subset=["test"]).groupby(CELL)
        self.values = by_cell["test"].agg(list).to_dict()
        self.is_fresh = summary.fresh is not None

    def of(self, cell: Row, style: Style) -> Fields:
        """Return the line of a cell."""
        key = cell_of(cell)
        chosen = cell["learning_rate"]
        points = [
            self.point(row) | {"chosen": row["learning_rate"] == chosen} for row in self.rates[key]
        ]
        return {
            "variant": cell["variant"],
            "colour": style.colour,
            "marker": style.marker,
            "dash": " ".join(map(str, style.dash)),
            "edge": cell["at_edge"],
            "points": points,
            "condition": self.conditions.get(key, ""),
            "seeds": [self.drawn(value) for value in self.values.get(key, [])],
            "fresh": self.fresh(self.cells[key][0]) if self.is_fresh else None,
        }

    def point(self, row: Row) -> Fields:
        """Return the point of a learning rate."""
        has_value = row["num_values"]
        lost = [
            f"{row[status]} {status}"
            for status in OUTCOMES[1:]
            if status not in SELDOM or row[status]
        ]
        return {
            "rate": row["learning_rate"],
            "rate_text": rate_text(row["learning_rate"]),
            "mean": self.drawn(row["test_mean"]),
            "sem": self.drawn(row["test_sem"]),
            "text": mean_sem_text(row, self.metric) if has_value else lost_text(row),
            "few": seeds_text(row) if has_value else "",
            "seeds": f"{row['num_tests']} of {row['num_seeds']}",
            "lost": ", ".join(lost),
            "kind": _kind(row),
        }

    def fresh(self, cell: Row) -> Fields | None:
        """Return the mean of the fresh seeds of a cell; None: none has a value."""
        if not cell["num_tests"]:
            return None
        ends = [cell["low"], cell["high"]]
        has_ends = all(map(math.isfinite, ends))
        return {
            "mean": self.drawn(cell["test_mean"]),
            "ends": list(map(self.drawn, ends)) if has_ends else [],
            "text": mean_sem_text(cell, self.metric),
            "seeds": counted(cell["num_tests"], "fresh seed"),
            "interval": " to ".join(self.metric.ends_text(*ends)) if has_ends else "",
        }

    def drawn(self, value: float) -> float | None:
        """Return a value as the axis has it."""
        if math.isnan(value):
            return None
        return round(100 * value, DIGITS) if self.metric.is_fraction else value


def _kind(row: Row) -> str:
    """Return how a point is drawn: `full`, `partial` (fewer seeds), `diverged` (all of them), `none` (no value).

    A rate at which all seeds diverged is drawn as such also where some have a value from before.
    """
    if row["diverged"] == row["num_wanted"]:
        return "diverged"
    if not row["num_values"]:
        return "none"
    return "partial" if seeds_text(row) else "full"


def handle_data(orders: pd.DataFrame, variants: Sequence[str]) -> Fields:
    """Lay out one panel's rows of `orders.orders`, variants as indices into `variants`.

    Returns:
        `tuned` (order), `rates` (rising: `rate`, `text`, `order`, `kind`, `sure`, and `lost`, the
        variants with runs that are not complete there) and `start`, the index of the first rate with another winner,
        a sure one if there is one, else the middle.
    """
    tuned = next(iter(orders.loc[orders["learning_rate"].isna(), "order"]), ())
    rates = [
        {
            "rate": row["learning_rate"],
            "text": rate_text(row["learning_rate"]),
            "order": _indices(row["order"], variants),
            "kind": row["kind"],
            "sure": row["sure"],
            "lost": incomplete_texts(row["incomplete"]),
        }
        for row in orders.dropna(subset=["learning_rate"]).to_dict("records")
    ]
    return {"tuned": _indices(tuned, variants), "rates": rates, "start": _start(rates)}


def _indices(order: Order, variants: Sequence[str]) -> list[list[int]]:
    return [[variants.index(variant) for variant in level] for level in order]


def _start(rates: Rows) -> int:
    others = [index for index, row in enumerate(rates) if row["kind"] == "winner"]
    sure = [index for index in others if rates[index]["sure"]]
    return next(iter(sure or others), len(rates) // 2)
