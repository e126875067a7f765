"""The data of the chart's handle: what a comparison at one learning rate concludes, beside the tuned conclusion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.tables import incomplete_texts
from lr_sweep.analysis.statistics.comparisons.orders import Kind, Order
from lr_sweep.common.text import rate_text

SHADED: tuple[Kind, ...] = ("order", "winner")


def handle_data(orders: pd.DataFrame, variants: Sequence[str], fixed_rate: float | None) -> dict[str, Any]:
    """Lay out one panel's rows of `orders.orders`, variants as indices into `variants`.

    Returns:
        `tuned` (order), `rates` (rising: `rate`, `text`, `order`, `kind`, `sure`, and `lost`, the
        variants with runs that are not complete there), `flips` (`kind`, `sure`, and the indices `first` and `last` of
        neighbouring rates of that kind) and
        `start`, the index of the rate that is closest to `fixed_rate`, else of the first one with another winner,
        a sure one if there is one, else the middle.
    """
    tuned = next(iter(orders.loc[orders["learning_rate"].isna(), "order"]), ())
    fixed = orders.dropna(subset=["learning_rate"]).to_dict("records")
    rates = [
        {
            "rate": row["learning_rate"],
            "text": rate_text(row["learning_rate"]),
            "order": _indices(row["order"], variants),
            "kind": row["kind"],
            "sure": row["sure"],
            "lost": incomplete_texts(row["incomplete"]),
        }
        for row in fixed
    ]
    start = _start(rates, fixed_rate)
    return {"tuned": _indices(tuned, variants), "rates": rates, "flips": _flips(rates), "start": start}


def _indices(order: Order, variants: Sequence[str]) -> list[list[int]]:
    return [[variants.index(variant) for variant in level] for level in order]


def _flips(rates: Sequence[Row]) -> list[dict[str, Any]]:
    """Join neighbouring learning rates of the same conclusion, where it is not the tuned one."""
    joined = groupby(enumerate(rates), key=lambda each: (each[1]["kind"], each[1]["sure"]))
    found = [(kind, sure, [index for index, _ in each]) for (kind, sure), each in joined if kind in SHADED]
    return [{"kind": kind, "sure": sure, "first": at[0], "last": at[-1]} for kind, sure, at in found]


def _start(rates: Sequence[Row], fixed_rate: float | None) -> int:
    if fixed_rate is not None:
        return min(range(len(rates)), key=lambda index: abs(math.log(rates[index]["rate"] / fixed_rate)))
    others = [index for index, row in enumerate(rates) if row["kind"] == "winner"]
    return next((index for index in others if rates[index]["sure"]), next(iter(others), len(rates) // 2))
