"""The verdict in words: of each task and model what is best when tuned, and what a fixed rate would have said."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.report.blocks import Row, Verdict
from lr_sweep.analysis.report.handle import Kind, conclusion_kinds
from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.text import rate_text

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 3
"""Variants that a sentence names; more are counted."""


def verdict_block(found: pd.DataFrame, summary: StudySummary, orders: pd.DataFrame) -> Verdict:
    """Write the result of `verdicts.verdicts`, an item a task and model, each with the chosen learning rates.

    `orders` is the result of `orders.orders`.
    """
    orders_of = dict(list(orders.groupby(GROUP, sort=False)))
    several = summary.cells["model"].nunique() > 1
    items = []
    for row in found.to_dict("records"):
        of = summary.of(task=row["task"], model=row["model"])
        name = f"{row['task']}, {row['model']}" if several else row["task"]
        kinds = conclusion_kinds(orders_of[row["task"], row["model"]])
        items.append((name, _sentences(row, of, kinds), _chosen(of)))
    return Verdict(items)


def _sentences(row: Row, group: StudySummary, kinds: Sequence[Kind]) -> str:
    rates, metric = len(kinds), group.metric
    if not row["best"]:
        return "no variant has a value."
    tuned = "Tuned, " if rates > 1 else "At the one learning rate that was tried, "
    if not row["runner_up"]:
        return f"{tuned}{row['best'][0]} has a value, and nothing to compare it with."
    at_one = _fixed(row, metric) + _elsewhere(kinds, metric) if rates > 1 else ""
    return f"{tuned}{_tuned(row, metric)}.{at_one}"


def _tuned(row: Row, metric: Metric) -> str:
    """Say which variant leads, by how much, and how sure that is."""
    leader, *equals = row["best"]
    ahead, low, high = _ahead(row, metric)
    by = f"by {_amount(ahead, metric)} over {row['runner_up']}"
    interval = f"95% interval {_number(low, metric)} to {_number(high, metric)}"
    others = _named([variant for variant in equals if variant != row["runner_up"]])
    if ahead == 0:
        unsure = f"; {others} cannot be distinguished from {leader}" if others else ""
        return f"{leader} and {row['runner_up']} have the same mean{unsure}"
    if math.isnan(low):
        return f"{leader} leads {by}; without an interval nothing can be distinguished"
    if row["distinguishable"]:
        return f"{leader} wins {by} ({interval})"
    corrected = ", corrected for all pairs of the study," if low > 0 else ""
    unsure = f"which{corrected} cannot be distinguished from no difference"
    same = f"; the same holds for {others}" if others else ""
    return f"{leader} leads {by} ({interval}), {unsure}{same}"


def _named(variants: Sequence[str]) -> str:
    return ", ".join(variants) if len(variants) <= MOST_NAMED else f"{len(variants)} other variants"


def _fixed(row: Row, metric: Metric) -> str:
    """Say what a comparison at the fixed rate alone would have concluded."""
    if not row["fixed_best"]:
        return ""
    leader, winner = row["best"][0], row["fixed_best"]
    at = f" At {rate_text(row['fixed_rate'])} alone"
    if winner == leader:
        return f"{at}, {leader} leads, too."
    behind = -metric.sign * row["fixed_difference"]
    how = f"as {leader} has no value" if math.isnan(behind) else f"by {_amount(behind, metric)} over {leader}"
    if row["flips"]:
        return f"{at} you would have concluded that {winner} wins, {how}."
    return f"{at}, {winner} leads {how}."


def _elsewhere(kinds: Sequence[Kind], metric: Metric) -> str:
    others = kinds.count("winner") or "none"
    return f" Another variant has the {metric.best} mean at {others} of the {len(kinds)} learning rates."


def _ahead(row: Row, metric: Metric) -> tuple[float, float, float]:
    """Return the lead and its interval so that more is better, whichever way the metric is."""
    low, high = sorted((metric.sign * row["low"], metric.sign * row["high"]))
    return metric.sign * row["difference"], low, high


def _amount(value: float, metric: Metric) -> str:
    return _signed(metric.amount_text(value))


def _number(value: float, metric: Metric) -> str:
    return _signed(metric.amount_text(value).removesuffix(" points"))


def _signed(text: str) -> str:
    """Write a minus as one, and none before a zero."""
    zero = not text.removesuffix(" points").strip("-0.")
    return text.removeprefix("-") if zero else text.replace("-", MINUS, 1) if text.startswith("-") else text


def _chosen(group: StudySummary) -> str:
    known = group.cells.dropna(subset=["learning_rate"])
    chosen = ", ".join(f"{cell['variant']} {rate_text(cell['learning_rate'])}" for cell in known.to_dict("records"))
    return f"Chosen on {group.metric.chosen_on}: {chosen}." if chosen else ""
