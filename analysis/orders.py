"""What a comparison at one fixed learning rate would have concluded, and where that contradicts the tuned one.

The point of Rothermel et al. 2021 (sections 3 and 4), as tables: at 1e-3 the variants stood in another order than at
their own best learning rates. Test accuracies are read here; nothing is chosen by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.aggregate import Summary
from analysis.selection import MEAN_DIGITS
from analysis.table_formats import Table, write_tables
from analysis.tables import incomplete_text, signed_points
from analysis.text import NO_VALUE, rate_text

TUNED = math.nan
"""Stands for the learning rate in the row of a group's tuned order: every variant has its own."""

GROUP = ["task", "model"]
REVERSAL_COLUMNS = [*GROUP, "better", "worse", "tuned_difference", "num_rates", "num_opposite", "num_equal", "ranges"]


def orders(summary: Summary) -> pd.DataFrame:
    """Order the variants by mean test accuracy, tuned and at every learning rate that was tried.

    Returns:
        One row a task, model and learning rate, the tuned order first: `task`, `model`, `learning_rate` (NaN: tuned,
        each variant at its own), `order` (tuples of variants that are equal, best first; those without a value are not
        in it), `incomplete` (texts: variants with runs there that are not complete) and `same` (whether the variants
        with a value here and tuned stand in the tuned order).
    """
    rows: list[dict[str, Any]] = []
    for group, cells in summary.cells.groupby(GROUP, sort=False):
        labels = dict(zip(GROUP, group, strict=True))
        tuned = _means(cells)
        rows.append(labels | _order(tuned, tuned) | {"learning_rate": TUNED, "incomplete": _incomplete(cells)})
        for rate, found in _rates(summary, labels):
            rows.append(
                labels | _order(_means(found), tuned) | {"learning_rate": rate, "incomplete": _incomplete(found)}
            )
    return pd.DataFrame(rows, columns=[*GROUP, "learning_rate", "order", "incomplete", "same"])


def reversals(summary: Summary) -> pd.DataFrame:
    """Find for each pair of variants the learning rates at which the tuned conclusion is turned round.

    Returns:
        One row a task, model and pair of variants with tuned values: `better` and `worse` (tuned), `tuned_difference`
        (fraction), `num_rates` (where both have a value), `num_opposite`, `num_equal`, and `ranges` (tuples of the
        first and last of neighbouring learning rates where `worse` is ahead). Pairs that are equal when tuned are
        left out: there is no conclusion to turn round.
    """
    rows: list[dict[str, Any]] = []
    for group, cells in summary.cells.groupby(GROUP, sort=False):
        labels = dict(zip(GROUP, group, strict=True))
        tuned = {variant: mean for variant, mean in _means(cells).items() if not math.isnan(mean)}
        by_rate = {rate: _means(found) for rate, found in _rates(summary, labels)}
        for one, other in combinations(tuned, 2):
            if tuned[one] != tuned[other]:
                better, worse = sorted((one, other), key=lambda variant: -tuned[variant])
                rows.append(labels | {"better": better, "worse": worse} | _turned(better, worse, tuned, by_rate))
    return pd.DataFrame(rows, columns=REVERSAL_COLUMNS)


def order_table(found: pd.DataFrame) -> Table:
    """Show the result of `orders`."""
    rows = tuple(
        (
            str(row["task"]),
            str(row["model"]),
            "tuned" if math.isnan(row["learning_rate"]) else rate_text(row["learning_rate"]),
            order_text(row["order"]),
            "; ".join(row["incomplete"]),
            "" if math.isnan(row["learning_rate"]) else _same_text(row),
        )
        for row in found.to_dict("records")
    )
    return Table(
        title="Order of the variants at each learning rate",
        caption="By mean test accuracy, best first; tuned: each variant at the learning rate that validation chose for "
        "it; elsewhere all at the one named. =: equal to 12 digits. Not complete: runs there (tuned: of the whole "
        "cell). Differences are not tested here, so close variants may change places by chance: see the comparisons by "
        "seed.",
        header=("task", "model", "learning rate", "order", "not complete", "as tuned"),
        rows=rows,
    )


def reversal_table(found: pd.DataFrame, compared: pd.DataFrame) -> Table:
    """Show the result of `reversals`.

    Args:
        found: from `reversals`.
        compared: from `comparisons.comparisons`, for whether the tuned difference is told from none.
    """
    resolved = _resolved(compared)
    rows = tuple(
        (
            str(row["task"]),
            str(row["model"]),
            f"{row['better']} > {row['worse']}",
            signed_points(row["tuned_difference"]),
            resolved.get((row["task"], row["model"], frozenset((row["better"], row["worse"]))), "not known"),
            f"{row['num_opposite']} of {row['num_rates']}"
            + (f", {row['num_equal']} equal" if row["num_equal"] else ""),
            ranges_text(row["ranges"]),
        )
        for row in found.to_dict("records")
    )
    return Table(
        title="Where a fixed learning rate would have concluded the opposite",
        caption="For each pair of variants the tuned conclusion, its difference in test accuracy (points), whether "
        "that is told from none by its 95% t interval over seeds, and the learning rates of the sweep at which the "
        "other variant is ahead. Ranges are of learning rates that were tried; between them nothing was measured.",
        header=("task", "model", "tuned", "difference", "told from none", "opposite at", "learning rates"),
        rows=rows,
    )


def write_conclusions(folder: Path, summary: Summary, compared: pd.DataFrame) -> list[Table]:
    """Write the tables `orders` and `reversals` in every format; return them, none where there is one variant."""
    ordered, turned = orders(summary), reversals(summary)
    shown, opposite = order_table(ordered), reversal_table(turned, compared)
    texts = {"order": ordered["order"].map(order_text), "incomplete": ordered["incomplete"].map("; ".join)}
    write_tables(folder, {"orders": shown}, ordered.assign(**texts))
    write_tables(folder, {"reversals": opposite}, turned.assign(ranges=turned["ranges"].map(ranges_text)))
    if summary.cells.groupby(GROUP)["variant"].nunique().max() < 2:
        return []
    return [shown, *([opposite] if len(turned) else [])]


def order_text(order: Sequence[Sequence[str]]) -> str:
    """Write an order: `a > b = c`."""
    return " > ".join(" = ".join(equals) for equals in order) or NO_VALUE


def ranges_text(ranges: Sequence[tuple[float, float]]) -> str:
    """Write ranges of learning rates: `1e-6 to 1e-4, 1e-2`."""
    return ", ".join(
        rate_text(first) if first == last else f"{rate_text(first)} to {rate_text(last)}" for first, last in ranges
    )


def _means(rows: pd.DataFrame) -> dict[str, float]:
    """Return each variant's mean test accuracy, rounded so that equal means are equal; NaN: no value."""
    return {row["variant"]: round(row["test_mean"], MEAN_DIGITS) for row in rows.to_dict("records")}


def _rates(summary: Summary, labels: Mapping[str, Any]) -> Iterator[tuple[float, pd.DataFrame]]:
    rates = summary.learning_rates
    rows = rates[(rates["task"] == labels["task"]) & (rates["model"] == labels["model"])]
    yield from rows.groupby("learning_rate")


def _incomplete(rows: pd.DataFrame) -> tuple[str, ...]:
    texts = {row["variant"]: incomplete_text(row) for row in rows.to_dict("records")}
    return tuple(f"{variant}: {text}" for variant, text in texts.items() if text)


def _order(means: Mapping[str, float], tuned: Mapping[str, float]) -> dict[str, Any]:
    known = {variant: mean for variant, mean in means.items() if not math.isnan(mean)}
    common = [variant for variant in known if not math.isnan(tuned[variant])]
    return {
        "order": _ranked(known),
        "same": _ranked({v: known[v] for v in common}) == _ranked({v: tuned[v] for v in common}),
    }


def _ranked(means: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    levels = sorted(set(means.values()), reverse=True)
    return tuple(tuple(sorted(variant for variant, mean in means.items() if mean == level)) for level in levels)


def _turned(
    better: str, worse: str, tuned: Mapping[str, float], by_rate: Mapping[float, Mapping[str, float]]
) -> dict[str, Any]:
    differences = {rate: means.get(better, math.nan) - means.get(worse, math.nan) for rate, means in by_rate.items()}
    known = {rate: difference for rate, difference in differences.items() if not math.isnan(difference)}
    return {
        "tuned_difference": tuned[better] - tuned[worse],
        "num_rates": len(known),
        "num_opposite": sum(difference < 0 for difference in known.values()),
        "num_equal": sum(difference == 0 for difference in known.values()),
        "ranges": _ranges(known),
    }


def _ranges(differences: Mapping[float, float]) -> tuple[tuple[float, float], ...]:
    """Join neighbouring learning rates where the difference is negative; a rate without a value interrupts nothing."""
    found: list[tuple[float, float]] = []
    inside = False
    for rate, difference in sorted(differences.items()):
        if difference < 0:
            found = [*found[:-1], (found[-1][0], rate)] if inside else [*found, (rate, rate)]
        inside = difference < 0
    return tuple(found)


def _resolved(compared: pd.DataFrame) -> dict[tuple[str, str, frozenset[str]], str]:
    """Say for each pair whether the interval of its tuned difference leaves out 0."""
    return {
        (row["task"], row["model"], frozenset((row["variant"], row["other"]))): (
            "not known" if math.isnan(row["low"]) else "yes" if row["low"] > 0 or row["high"] < 0 else "no"
        )
        for row in compared.to_dict("records")
    }


def _same_text(row: Mapping[Any, Any]) -> str:
    return NO_VALUE if not row["order"] else "yes" if row["same"] else "no"
