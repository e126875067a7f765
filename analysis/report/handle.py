"""The data of the chart's handle: what a comparison at one learning rate concludes, beside the tuned conclusion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.tables import incomplete_text
from lr_sweep.analysis.statistics.orders import Order
from lr_sweep.common.text import rate_text

Kind = Literal["same", "order", "winner", "unknown"]
"""Of the order of means at a learning rate: the tuned one, another, another winner, or not comparable."""


class Conclusion(NamedTuple):
    """What a comparison at one learning rate alone would have concluded."""

    kind: Kind
    sure: bool
    """Whether the difference that makes it another conclusion can be distinguished from none."""


SHADED: tuple[Kind, ...] = ("order", "winner")


def handle_data(orders: pd.DataFrame, variants: Sequence[str], fixed_rate: float | None) -> dict[str, Any]:
    """Lay out one panel's rows of `orders.orders`, variants as indices into `variants`.

    Returns:
        `tuned` (order), `rates` (rising: `rate`, `text`, `order`, `kind`, `sure`, see `conclusions`, and `lost`, the
        variants with runs that are not complete there), `flips` (`kind`, `sure`, and the indices `first` and `last` of
        neighbouring rates of that kind) and
        `start`, the index of the rate that is closest to `fixed_rate`, else of the first one with another winner,
        a sure one if there is one, else the middle.
    """
    tuned, fixed = _tuned_and_fixed(orders)
    found = conclusions(orders)
    rates = [
        {
            "rate": row["learning_rate"],
            "text": rate_text(row["learning_rate"]),
            "order": _indices(row["order"], variants),
            "kind": kind,
            "sure": sure,
            "lost": _lost(row["incomplete"], variants),
        }
        for row, (kind, sure) in zip(fixed, found, strict=True)
    ]
    start = _start([row["learning_rate"] for row in fixed], found, fixed_rate)
    return {"tuned": _indices(tuned, variants), "rates": rates, "flips": _flips(found), "start": start}


def conclusions(orders: pd.DataFrame) -> list[Conclusion]:
    """Return the conclusion at each learning rate, rising, of one panel's rows of `orders.orders`.

    It is sure if it is the tuned one, or if a variant is distinguishably ahead of one that is better when tuned: of the
    tuned winner, for another winner. A tuned winner whose runs all diverged there needs no test.
    """
    tuned, fixed = _tuned_and_fixed(orders)
    return [Conclusion(kind := conclusion_kind(row, tuned), _is_sure(kind, row, tuned)) for row in fixed]


def _is_sure(kind: Kind, row: Row, tuned: Order) -> bool:
    if kind not in SHADED or row["flipped"] is None:
        return True
    if kind == "order":
        return bool(row["flipped"])
    winners = set(tuned[0])
    has_value = winners & {variant for level in row["order"] for variant in level}
    return not has_value or any(better in winners for better, _ in row["flipped"])


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


def _flips(found: Sequence[Conclusion]) -> list[dict[str, Any]]:
    """Join neighbouring learning rates of the same conclusion, where it is not the tuned one."""
    flips: list[dict[str, Any]] = []
    for index, each in enumerate(found):
        if each.kind in SHADED and index and each == found[index - 1]:
            flips[-1]["last"] = index
        elif each.kind in SHADED:
            flips.append({**each._asdict(), "first": index, "last": index})
    return flips


def _start(rates: Sequence[float], found: Sequence[Conclusion], fixed_rate: float | None) -> int:
    if fixed_rate is not None:
        return min(range(len(rates)), key=lambda index: abs(math.log(rates[index] / fixed_rate)))
    flips = [index for index, each in enumerate(found) if each.kind == "winner"]
    return next((index for index in flips if found[index].sure), next(iter(flips), len(rates) // 2))
