"""Published numbers beside ours: as text in the paper's form, with the difference, as further columns of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.paper.published import MAX_STEPS, STEPS_TO_MATCH, Published, published
from lr_sweep.analysis.report.blocks import Table

Numbers = Mapping[tuple[str, ...], float]
"""By task, model and variant."""

NEVER = "-"
"""As in the paper: never matched."""

NOTHING_PUBLISHED = "The paper has no entry for these tasks, models and variants."


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


def above(there: Published, here: float, digits: int) -> str:
    """Write with its sign how much ours is above a published number; empty: one of the two is missing."""
    difference = round(here - there.value, digits) + 0.0  # no -0.0
    return "" if math.isnan(difference) else f" ({difference:+.{digits}f})".replace("-", "−")


def with_published(
    table: Table, number: int, runs: pd.DataFrame, ours: Sequence[tuple[str, Numbers]], model: str | None = None
) -> Table:
    """Put a column of published values behind each column that has any.

    Args:
        table: ours, with a variant in each row's first column.
        number: of the paper's table.
        runs: the rows of `StudySummary.runs` that are shown.
        ours: the published metric and our numbers, in its unit, of each row of a variant, in turn.
        model: of every row; None: the second column names it.
    """
    tasks = [j for j, name in enumerate(table.header) if name not in ("variant", "model", "accuracy")]
    texts, read = {}, set()
    for i, row in enumerate(table.rows):
        metric, numbers = ours[i % len(ours)]
        for j in tasks:
            key = (table.header[j], model or row[1], row[0])
            # Of other models than gpt2, Table 4 has the accuracies of Table 1.
            for source in (number, 4) if number == 1 else (number,):
                if (there := published(source, *key, metric)) is not None and (i, j) not in texts:
                    texts[i, j] = _beside(there, numbers.get(key, math.nan), metric)
                    read.add(source)
    columns = {j for _, j in texts}
    if not columns:
        return replace(table, caption=f"{table.caption} {NOTHING_PUBLISHED}")

    def widened(row: tuple[str, ...], beside_row: list[str]) -> tuple[str, ...]:
        return tuple(x for j, text in enumerate(row) for x in ([text, beside_row[j]] if j in columns else [text]))

    unit = "gradient steps" if number == 2 else "percentage points"
    sources = " and ".join(f"Table {source}" for source in sorted(read))
    about = f"Published: Rothermel et al. 2021, {sources}, 3 seeds; in brackets ours less theirs, in {unit}."
    return replace(
        table,
        caption=f"{table.caption} {about}{_other_budgets(runs)}",
        header=widened(table.header, [f"{name}, published" for name in table.header]),
        rows=tuple(widened(row, [texts.get((i, j), "") for j in range(len(row))]) for i, row in enumerate(table.rows)),
        bold=frozenset((i, j + sum(k < j for k in columns)) for i, j in table.bold),
    )


def _beside(there: Published, here: float, metric: str) -> str:
    if metric == STEPS_TO_MATCH:
        return steps_text(there.value) + above(there, here, 0)
    sem = "" if math.isnan(there.sem) else f" ± {there.sem:.1f}"
    return f"{there.value:.1f}{sem}{above(there, here, 1)}"


def _other_budgets(runs: pd.DataFrame) -> str:
    """Name the tasks that ran for other budgets than the paper's."""
    found = []
    for (task, model), rows in runs.groupby(["task", "model"], sort=False):
        there, here = published(5, str(task), "gpt2", "all", MAX_STEPS), rows["num_steps"].max()
        if there is not None and here != there.value:
            found.append(f"{task} on {model} {budget_text(here)} steps here, {budget_text(there.value)} there")
    return f" Budgets differ from the paper's: {'; '.join(found)}." if found else ""


def _power_text(mantissa: str, exponent: str) -> str:
    return f"{mantissa}×10{str(int(exponent)).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"
