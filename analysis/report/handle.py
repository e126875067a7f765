"""The data of the chart's handle: what a comparison at one learning rate concludes, beside the tuned conclusion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.tables import incomplete_text
from lr_sweep.analysis.statistics.orders import Order
from lr_sweep.common.text import rate_text

Kind = Literal["same", "order", "winner", "unknown"]
"""Of the conclusion at a learning rate: the tuned one, another order, another winner, or not comparable."""
SHADED: tuple[Kind, ...] = ("order", "winner")


def handle_data(orders: pd.DataFrame, variants: Sequence[str], fixed_rate: float | None) -> dict[str, Any]:
    """Lay out one panel's rows of `orders.orders`, variants as indices into `variants`.

    Returns:
        `tuned` (order), `rates` (rising: `rate`, `text`, `order`, `kind`, and `lost`, the variants with runs that are
        not complete there), `flips` (`kind`, and the indices `first` and `last` of neighbouring rates of that kind) and
        `start`, the index of the rate that is closest to `fixed_rate`, else of the first one with another winner, else
        the middle.
    """
    tuned, fixed = _tuned_and_fixed(orders)
    kinds = conclusion_kinds(orders)
    rates = [
        {
            "rate": row["learning_rate"],
            "text": rate_text(row["learning_rate"]),
            "order": _indices(row["order"], variants),
            "kind": kind,
            "lost": _lost(row["incomplete"], variants),
        }
        for row, kind in zip(fixed, kinds, strict=True)
    ]
    start = _start([row["learning_rate"] for row in fixed], kinds, fixed_rate)
    return {"tuned": _indices(tuned, variants), "rates": rates, "flips": _flips(kinds), "start": start}


def conclusion_kinds(orders: pd.DataFrame) -> list[Kind]:
    """Return the kind of the conclusion at each learning rate, rising, of one panel's rows of `orders.orders`."""
    tuned, fixed = _tuned_and_fixed(orders)
    return [conclusion_kind(row, tuned) for row in fixed]


def conclusion_kind(row: Row, tuned: Order) -> Kind:
    """Compare the conclusion at one learning rate, a row of `orders.orders`, with the tuned order.

    A tuned winner that diverged at this rate has lost there; one whose runs are missing or failed is not known to.
    """
    here: Order = row["order"]
    if not here or not tuned:
        return "unknown"
    winners, compared = set(tuned[0]), {variant for level in tuned for variant in level}
    if not winners & {variant for level in here for variant in level}:
        lost = all(_only_diverged(row["incomplete"].get(variant, {})) for variant in winners)
        return "winner" if lost else "unknown"
    leaders = next((set(level) & compared for level in here if set(level) & compared), set())
    if not leaders & winners:
        return "winner"
    return "same" if row["same"] else "order"


def _tuned_and_fixed(orders: pd.DataFrame) -> tuple[Order, list[dict[Any, Any]]]:
    """Return the tuned order, and the rows of the learning rates, rising."""
    fixed = orders.dropna(subset=["learning_rate"]).sort_values("learning_rate")
    return next(iter(orders.loc[orders["learning_rate"].isna(), "order"]), ()), fixed.to_dict("records")


def _only_diverged(counts: Mapping[str, int]) -> bool:
    return bool(counts.get("diverged")) and not any(number for name, number in counts.items() if name != "diverged")


def _indices(order: Order, variants: Sequence[str]) -> list[list[int]]:
    return [[variants.index(variant) for variant in level] for level in order]


def _lost(incomplete: Mapping[str, Row], variants: Sequence[str]) -> str:
    """Name the variants whose value rests on fewer seeds or is missing, and why: `unfrozen-random: 3 diverged`."""
    return "; ".join(f"{each}: {incomplete_text(incomplete[each])}" for each in variants if each in incomplete)


def _flips(kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """Join neighbouring learning rates of the same kind, where the conclusion is not the tuned one."""
    flips: list[dict[str, Any]] = []
    for index, kind in enumerate(kinds):
        if kind in SHADED and index and kind == kinds[index - 1]:
            flips[-1]["last"] = index
        elif kind in SHADED:
            flips.append({"kind": kind, "first": index, "last": index})
    return flips


def _start(rates: Sequence[float], kinds: Sequence[Kind], fixed_rate: float | None) -> int:
    if fixed_rate is not None:
        return min(range(len(rates)), key=lambda index: abs(math.log(rates[index] / fixed_rate)))
    return kinds.index("winner") if "winner" in kinds else len(rates) // 2
