"""The table that leads a report: the variants of a task and model, best first, with their distance to the best."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Table, file_stems
from lr_sweep.analysis.report.tables import (
    bold_text,
    compared_seeds,
    is_tested,
    lost_text,
    marks_of,
    marks_text,
)
from lr_sweep.analysis.report.texts import laid_out
from lr_sweep.analysis.statistics.comparisons.uncertainty import t_factor
from lr_sweep.analysis.statistics.comparisons.verdicts import ranked
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary

MOST_RANKINGS = 3
"""Most tasks and models of a report whose variants are ranked; the main tables show more."""
DIFFERENCE = ["difference", "difference_low", "difference_high", "corrected_p"]
"""Columns of a variant's mean less that of the best one; NaN: unknown."""
_CELL = ("learning_rate", "num_tests", "num_seeds", "test_mean", "test_sem", "low", "high")


def write_rankings(folder: Path, summary: StudySummary) -> list[Table]:
    """Write and return a table for each task and model; none where there are more than `MOST_RANKINGS`."""
    groups = list(ranked(summary))
    if len(groups) > MOST_RANKINGS:
        return []
    stems = file_stems([tuple(labels.values()) for labels, *_ in groups]).values()
    tables = []
    for (labels, best, leads, _), stem in zip(groups, stems, strict=True):
        known = {
            lead.over: (-lead.difference, -lead.high, -lead.low, lead.corrected_p) for lead in leads
        }
        rows = _ranked(summary.of(**labels), [*best[:1], *known])
        unknown = (math.nan,) * len(DIFFERENCE)
        rows[DIFFERENCE] = [known.get(variant, unknown) for variant in rows["variant"]]
        table = _laid_out(summary, rows, best)
        tables.append(table.write(folder, f"ranking-{stem}", rows[[*CELL, *_CELL, *DIFFERENCE]]))
    return tables


def _ranked(group: StudySummary, order: list[str]) -> pd.DataFrame:
    """Return the cells of a task and model in this order, and then those without a value."""
    cells = with_interval(group.cells)
    place = {variant: number for number, variant in enumerate(order)}
    ranks = cells["variant"].map(place).fillna(len(order))
    return cells.iloc[ranks.argsort(kind="stable")].reset_index(drop=True)


def _laid_out(summary: StudySummary, rows: pd.DataFrame, best: tuple[str, ...]) -> Table:
    metric, (task, model) = summary.metric, rows[CELL[:2]].iloc[0]
    text = [_mean_text(cell, metric) for cell in rows.to_dict("records")]
    context = {"metric": metric, "task": task, "model": model, "seeds": compared_seeds(summary)}
    table = laid_out("ranking", rows.assign(text=text), **context)
    mean, num_bold = table.header.index("mean"), len(best) if is_tested(summary) else 1
    bold = frozenset(
        (row, mean) for row, name in enumerate(rows["variant"]) if name in best[:num_bold]
    )
    caption = table.caption + marks_text(table.rows)
    return replace(table, caption=caption, bold=bold, bold_text=bold_text(summary), stacked=True)


def _mean_text(cell: Row, metric: Metric) -> str:
    if not cell["num_values"]:
        return lost_text(cell)
    return metric.of_seeds_text(cell["test_mean"], cell["test_sem"]) + marks_of(cell)


def with_interval(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `low` and `high` to cells: the t interval of their mean; NaN: of one seed."""
    half = [
        t_factor(number) * sem if number > 1 else math.nan
        for number, sem in zip(cells["num_tests"], cells["test_sem"], strict=True)
    ]
    return cells.assign(low=cells["test_mean"] - half, high=cells["test_mean"] + half)
