"""What to start with: grids around the rates that the laws of recorded studies predict for a plan's cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.columns import settings
from lr_sweep.analysis.record.read import recorded_studies
from lr_sweep.analysis.statistics.rates.further_rates import three_digits
from lr_sweep.analysis.statistics.rates.laws import LEAST_SIZES, fitted, log_optima, series_of
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.common.text import rate_text
from lr_sweep.sweep.plan.plan import Plan
from lr_sweep.sweep.study.runs import Cell, by_cell

Known = list[tuple[str, pd.DataFrame, pd.DataFrame]]
"""Each recorded study's name, the optima of its cells, and their settings."""
HALF_WIDTH = (0.5, 1.5)
"""Decades that a suggested grid reaches to each side of a law's rate, at least and at most."""
OTHER_TASK = 1.0
"""Decades that a grid reaches around the best rates of other tasks: none of 70 pairs were further apart (laws.md)."""
NUM_RATES = 5


def suggestion_lines(plan: Plan) -> list[str]:
    """Return what the record suggests for each cell: how it is known, and a grid as a line of YAML."""
    cells = {
        cell: settings(runs[0].run.canonical_json()) | {"num_steps": runs[0].num_steps}
        for cell, runs in by_cell(plan.wanted).items()
    }
    root = plan.results.root
    others = [name for name in recorded_studies(root) if name != plan.study.study] if plan.results.exists() else []
    read = [read_summary(root, name, ("content",)) for name in others]
    known = [
        (each.info.study, optima(each.summary), each.axes()) for each in read if each.info.metric == plan.study.measured
    ]
    lines = [
        line
        for cell, made_of in cells.items()
        for line in list(_by_law(" ".join(cell), made_of, known)) or _by_other_tasks(cell, known)
    ]
    return lines or [
        "suggested  nothing: no recorded study differs from a cell in one number alone, at three sizes or more, and "
        "none has its model and variant on another task"
    ]


def _by_law(name: str, made_of: dict[str, object], known: Known) -> Iterator[str]:
    for study, found, axes in known:
        mine = len(axes)
        every = pd.concat([axes.reset_index(drop=True), pd.DataFrame([made_of])], ignore_index=True)
        best = found.loc[axes.index].reset_index(drop=True)
        for axis, series in series_of(every):
            rows = best.loc[[row for row in series.index if row != mine]].dropna(subset=["optimum"])
            if mine not in series.index or len(rows) < LEAST_SIZES or not _is_alike(series, mine):
                continue
            by_row = series[axis].astype(float)
            sizes, size = by_row[rows.index].to_numpy(float), by_row[mine]
            law = fitted(np.log10(sizes)[:, None], *log_optima(rows), np.log10([size]))
            low, at, high = (_about(law.at_next + side * law.half_at_next) for side in (-1, 0, 1))
            yield (
                f"suggested  {name}: by the law over {axis} of {study} ({sizes.min():g} to {sizes.max():g}), "
                f"at {size:g} start at {at} ({low} to {high})"
            )
            yield _grid(law.at_next, min(max(law.half_at_next, HALF_WIDTH[0]), HALF_WIDTH[1]))
            return


def _by_other_tasks(cell: Cell, known: Known) -> Iterator[str]:
    if not known:
        return
    found = pd.concat([each for _, each, _ in known]).dropna(subset=["optimum"])
    task, model, variant = cell
    rows = found[(found.task != task) & (found.model == model) & (found.variant == variant)].drop_duplicates("task")
    if len(rows):
        best = ", ".join(f"{row.task} {rate_text(float(f'{row.optimum:.2g}'))}" for row in rows.itertuples())
        yield f"suggested  {' '.join(cell)}: within a decade of the best rates on other tasks, which may be off: {best}"
        yield _grid(float(np.log10(rows.optimum).median()), OTHER_TASK)


def _grid(middle: float, reach: float) -> str:
    rates = [rate_text(three_digits(10 ** (middle + step))) for step in np.linspace(-reach, reach, NUM_RATES)]
    return f"learning_rates: [{', '.join(rates)}]"


def _is_alike(series: pd.DataFrame, mine: int) -> bool:
    others = series.drop(index=mine)
    shared = others.columns[others.nunique(dropna=False) == 1]
    return bool(series[shared].nunique(dropna=False).eq(1).all())


def _about(log_rate: float) -> str:
    return rate_text(float(f"{10**log_rate:.2g}"))
