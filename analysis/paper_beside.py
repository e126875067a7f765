"""Published numbers beside ours: as text in the paper's form, with the difference, as further columns of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pandas as pd

from analysis import published
from analysis.published import Published
from analysis.table_formats import Table

NEVER = "-"
"""As in the paper: never matched."""

NOTHING_PUBLISHED = "The paper has no entry for these tasks, models and variants."

Entries = dict[tuple[int, int], str]
"""Published text by (row, column) of the table that it compares with."""


def steps_text(steps: float) -> str:
    """Write gradient steps as the paper does, `1.9×10⁵`; below 10,000 in full; `-` for never (NaN)."""
    if math.isnan(steps):
        return NEVER
    return _power_text(*f"{steps:.1e}".split("e")) if steps >= 10_000 else f"{steps:.0f}"


def budget_text(steps: float) -> str:
    """Write a budget as the paper does, `3×10⁵`, where two digits say it exactly; otherwise in full."""
    mantissa, exponent = f"{steps:.1e}".split("e")
    if steps < 10_000 or float(f"{steps:.1e}") != steps:
        return f"{steps:.0f}"
    return _power_text(mantissa.removesuffix(".0"), exponent)


def _power_text(mantissa: str, exponent: str) -> str:
    return f"{mantissa}×10{str(int(exponent)).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"


def percent_beside(
    table: int, task: str, model: str, variant: str, metric: str, ours: Mapping[tuple[str, str], float]
) -> str | None:
    """Write a published percentage and how much ours is above it, in points; None: nothing published."""
    there = published.published(table, task, model, variant, metric)
    if there is None:
        return None
    sem = "" if math.isnan(there.sem) else f" ± {there.sem:.1f}"
    here = ours.get((variant, task), math.nan)
    return f"{there.value:.1f}{sem}" + ("" if math.isnan(here) else f" ({signed(here - there.value, 1)})")


def steps_beside(there: Published, here: float) -> str:
    """Write published steps and how many more ours are."""
    difference = here - there.value
    return steps_text(there.value) + ("" if math.isnan(difference) else f" ({signed(difference, 0)})")


def signed(difference: float, digits: int) -> str:
    """Write a difference with its sign."""
    rounded = round(difference, digits) + 0.0  # no -0.0
    return f"{rounded:+.{digits}f}".replace("-", "−")


def entries_beside(table: Table, beside: Callable[[tuple[str, ...], str], str | None]) -> Entries:
    """Ask for the published text beside every entry; tasks are the columns after the labels."""
    found = {}
    for i, row in enumerate(table.rows):
        for j, name in enumerate(table.header):
            text = None if name in ("variant", "model", "accuracy") else beside(row, name)
            if text is not None:
                found[i, j] = text
    return found


def with_published(table: Table, entries: Entries, number: int, wanted: pd.DataFrame) -> Table:
    """Put a column of published values behind each column that has any."""
    if not entries:
        return replace(table, caption=f"{table.caption} {NOTHING_PUBLISHED}")
    columns = {j for _, j in entries}
    places = {j: j + sum(k < j for k in columns) for j in range(len(table.header))}

    def widened(row: tuple[str, ...], extra: Callable[[int], str]) -> tuple[str, ...]:
        return tuple(x for j, text in enumerate(row) for x in ([text, extra(j)] if j in columns else [text]))

    about = (
        f"Published: Rothermel et al. 2021, Table {number}, 3 seeds; in brackets ours less theirs"
        f"{', in gradient steps' if number == 2 else ', in percentage points'}."
    )
    return replace(
        table,
        caption=f"{table.caption} {about}{_other_budgets(wanted)}",
        header=widened(table.header, lambda j: f"{table.header[j]}, published"),
        rows=tuple(widened(row, partial(_text_at, entries, i)) for i, row in enumerate(table.rows)),
        bold=frozenset((i, places[j]) for i, j in table.bold),
    )


def _other_budgets(wanted: pd.DataFrame) -> str:
    """Name the tasks that ran for other budgets than the paper's."""
    found = []
    for key, runs in wanted.groupby(["task", "model"], sort=False):
        task, model = map(str, key)
        there = published.published(5, task, "gpt2", "all", published.MAX_STEPS)
        here = runs["num_steps"].max()
        if there is not None and here != there.value:
            found.append(f"{task} on {model} {budget_text(here)} steps here, {budget_text(there.value)} there")
    return f" Budgets differ from the paper's: {'; '.join(found)}." if found else ""


def _text_at(entries: Entries, row: int, column: int) -> str:
    return entries.get((row, column), "")
