"""The one table of a report: each variant at its chosen learning rate, best first, and its distance to the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.conditions import Conditions
from lr_sweep.analysis.statistics.comparisons.correction import compared_pairs
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.comparisons.verdicts import Lead, ranked
from lr_sweep.analysis.statistics.selection.summary import StudySummary, with_interval
from lr_sweep.common.text import rate_text

from .blocks import Table, entries_of, laid_out
from .cells import (
    compared_seeds,
    lost_text,
    marks_of,
    marks_text,
    measured_text,
)
from .numbers import p_value, range_text, with_minus

DIFFERENCE = ["difference", "difference_low", "difference_high", "corrected_p"]
"""Columns of a variant's mean less that of the best one; NaN: unknown."""
LEAST_SHOWN = 100
"""Differences that are this many times smaller than their typical uncertainty may be written as 0."""


def results(summary: StudySummary, conditions: Conditions) -> pd.DataFrame:
    """Return the cells of a study, in each task and model the best first.

    Returns:
        A row a cell: its columns, `low` and `high` of its mean, and `DIFFERENCE`; `is_best`: the best mean of a task
        and model, and means not significantly worse; `condition`: why a worse variant may yet be better.
    """
    groups = [
        _ranked(summary.of(**labels), best, leads)
        for labels, best, leads, _ in ranked(summary, conditions)
    ]
    return pd.concat(groups, ignore_index=True)


def _ranked(group: StudySummary, best: Sequence[str], leads: Sequence[Lead]) -> pd.DataFrame:
    """Return the cells of a task and model; those without a value are last."""
    behind = pd.DataFrame(
        [
            (lead.over, -lead.difference, -lead.high, -lead.low, lead.corrected_p, lead.condition)
            for lead in leads
        ],
        columns=["variant", *DIFFERENCE, "condition"],
    )
    order = [*best[:1], *behind["variant"]]
    ranks = group.cells["variant"].map(dict(zip(order, range(len(order)), strict=True)))
    cells = with_interval(group.cells).iloc[ranks.fillna(len(order)).argsort(kind="stable")]
    rows = cells.merge(behind, on="variant", how="left")
    return rows.assign(is_best=rows["variant"].isin(best), condition=rows["condition"].fillna(""))


def is_tested(summary: StudySummary) -> bool:
    """Return whether any two variants of the study have enough seeds to be compared."""
    return bool(comparisons(summary)["p"].notna().any())


def results_table(summary: StudySummary, rows: pd.DataFrame) -> Table:
    """Lay out the result of `results`; the numbers of a column have as many decimals."""
    metric, tested = summary.metric, is_tested(summary)
    typical_sem = rows["test_sem"].median()
    typical_half = _typical_half(rows)

    def mean(row: Row) -> str:
        if not row["num_values"]:
            return lost_text(row)
        return metric.text(row["test_mean"], typical_sem, digits=1) + marks_of(row)

    def interval(row: Row) -> str:
        ends = (metric.text(row[end], typical_sem, digits=1) for end in ("low", "high"))
        return range_text(*ends)

    def difference(row: Row) -> str:
        if math.isnan(row["difference"]):
            return ""
        return with_minus(metric.difference_text(row["difference"], typical_half))

    def corrected_p(row: Row) -> str:
        return "" if math.isnan(row["difference"]) else p_value(row["corrected_p"])

    columns = {
        "variant": entries_of("variant"),
        "learning rate": lambda row: "" if metric.untuned else rate_text(row["learning_rate"]),
        "runs": _runs_text,
        "mean": mean,
        "95% interval": interval,
        "difference to the best": difference,
        "corrected p": corrected_p,
    }
    table = laid_out(metric.title, _caption(summary, rows), rows, columns)
    at_mean = table.header.index("mean")
    is_bold = rows["is_best"] if tested else ~rows.duplicated(["task", "model"])
    bold = frozenset(
        (row, at_mean) for row in range(len(rows)) if is_bold[row] and rows["num_values"][row]
    )
    caption = table.caption + marks_text(table.rows) + _conditions_text(rows)
    return replace(table, caption=caption, bold=bold, is_first=True)


def _conditions_text(rows: pd.DataFrame) -> str:
    """Name the variants that are worse on a condition alone."""
    conditional = rows[rows["condition"] != ""].to_dict("records")
    return "".join(f" {row['variant']} is worse only {row['condition']}." for row in conditional)


def _typical_half(rows: pd.DataFrame) -> float:
    """Return the half width that gives all differences their digits: the median, or less for a small difference."""
    median = ((rows["difference_high"] - rows["difference_low"]) / 2).median()
    sizes = rows["difference"].abs()
    smallest = sizes[sizes > median / LEAST_SHOWN].min()
    return float(pd.Series([median, 10 * smallest]).min())


def _runs_text(row: Row) -> str:
    """Count the runs with a value: `4`, or `3 of 4`."""
    number, wanted = row["num_tests"], row["num_seeds"]
    return str(number) if number == wanted else f"{number} of {wanted}"


def _caption(summary: StudySummary, rows: pd.DataFrame) -> str:
    metric = summary.metric
    unit = " in percent" if metric.is_fraction else ""
    rate = (
        ""
        if metric.untuned
        else f", at the learning rate that {metric.chosen_on} chose for each variant"
    )
    sentences = [
        f"{metric.title}{unit}{measured_text(summary)}{rate}: mean over {compared_seeds(summary)}, "
        "with its 95% t interval."
    ]
    if rows["difference"].notna().any():
        points = ", in points" if metric.is_fraction else ""
        sentences.append(f"The difference is that to the best mean{points}.")
    if len(rows) > 1:
        sentences.append(bold_text(summary))
    return " ".join(sentences)


def bold_text(summary: StudySummary) -> str:
    """Say what bold means, and by which test."""
    best = f"Bold: the {summary.metric.best} mean"
    if not is_tested(summary):
        return f"{best}; nothing is tested, as no two variants have three seeds."
    pairs = "all pairs of the study"
    if num_untested := compared_pairs(summary.cells, summary.metric.sign).num_untested:
        num_tested = len(comparisons(summary))
        pairs = f"all {num_tested + num_untested} pairs of the study, of which {num_tested} are compared"
    return (
        f"{best}, and means that do not differ significantly from it "
        f"(Welch's t tests at 5%, p corrected for {pairs}, by Holm's method)."
    )
