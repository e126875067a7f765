"""The ledger: device time that was planned and used per cell, and what of it was wasted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.selection import CELL
from analysis.table_formats import Table, write_tables
from analysis.text import NO_VALUE

UNKNOWN = "unknown"
MOST_SOURCES = 6
"""Of planned time that the caption names."""
CAPTION = (
    "Device-seconds: seconds of a CPU core or a GPU that a trial held; runs that train together share them out. "
    "Planned: for the whole step budget, at the pace that was known when a sweep first took the run up; `plan "
    "--measure` makes it known before the first. Used: by runs that have ended, with what was lost; of runs trained "
    "beyond this study's budget, the part up to it. Used / planned: over runs that were planned and have ended. Lost:"
    " steps that went with a worker or a checkpoint and were trained again, at the run's own pace, as far as workers "
    "had reported them; unknown for runs of versions that did not count them. Diverged: used by runs that diverged."
)


def ledger(wanted: pd.DataFrame, runs: pd.DataFrame, planned: pd.DataFrame) -> pd.DataFrame:
    """Add up device seconds by cell.

    Args:
        wanted: wanted runs with their `status` at the study's budget, as `aggregate.account` gives it.
        runs: of `RUNS`, `run_id`, `num_steps`, `device_s`, `lost_steps`.
        planned: of `PLANNED`, `run_id`, `num_steps`, `device_s`.

    Returns:
        A row a cell: the columns of `CELL`; numbers of runs `num_runs`, `num_ended`, `num_planned` and
        `num_lost_unknown` (of those that ended); device seconds `planned_s`, `used_s`, `lost_s`, `diverged_s`, and
        `planned_of_ended_s` and `used_of_planned_s`, both over runs that were planned and have ended.
    """
    each = _per_run(wanted, runs, planned)
    return each.groupby(CELL, sort=False)[list(each.columns.difference(CELL, sort=False))].sum().reset_index()


def _per_run(wanted: pd.DataFrame, runs: pd.DataFrame, planned: pd.DataFrame) -> pd.DataFrame:
    trained = runs[["run_id", "num_steps", "device_s", "lost_steps"]].rename(columns={"num_steps": "trained"})
    plan = planned[["run_id", "num_steps", "device_s"]].rename(columns={"device_s": "plan"})
    found = wanted.merge(trained, on="run_id", how="left").merge(plan, on=["run_id", "num_steps"], how="left")
    steps, lost = (found[name].to_numpy(float, na_value=np.nan) for name in ("trained", "lost_steps"))
    device_s, plan_s = found["device_s"].to_numpy(float), found["plan"].to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.fmin(1.0, found["num_steps"].to_numpy(float) / steps)  # of what was trained, within this budget
        lost_s = np.where(lost == 0, 0.0, part * device_s * lost / steps)
    lost_s = np.where(np.isfinite(lost_s), lost_s, np.nan)
    used_s = np.nan_to_num(part * device_s) + np.nan_to_num(lost_s)
    ended = found["status"].ne("missing").to_numpy()
    both = ended & np.isfinite(plan_s)
    sums = {
        "num_runs": np.ones(len(found), int),
        "num_ended": ended.astype(int),
        "num_planned": np.isfinite(plan_s).astype(int),
        "num_lost_unknown": (ended & np.isnan(lost_s)).astype(int),
        "planned_s": np.nan_to_num(plan_s),
        "used_s": used_s,
        "lost_s": np.nan_to_num(lost_s),
        "diverged_s": np.where(found["status"].eq("diverged"), used_s, 0.0),
        "planned_of_ended_s": np.where(both, np.nan_to_num(plan_s), 0.0),
        "used_of_planned_s": np.where(both, used_s, 0.0),
    }
    return found[CELL].assign(**sums)


def ledger_table(cells: pd.DataFrame, timed_by: Sequence[str]) -> Table:
    """Lay the ledger out, with a total.

    Args:
        cells: as `ledger` returns it.
        timed_by: what the plans went by.
    """
    numbers = [name for name in cells.columns if name not in CELL]
    total = {"task": "total", "model": "", "variant": "", **cells[numbers].sum()}
    rows = [_row(cell) for cell in [*cells.to_dict("records"), total]]
    header = ("task", "model", "variant", "ended", "planned", "used", "used / planned", "lost", "diverged")
    return Table(
        title="Device-seconds planned, used and wasted",
        caption=CAPTION + _planned_by(timed_by),
        header=header,
        rows=tuple(rows),
    )


def _planned_by(timed_by: Sequence[str]) -> str:
    """Say what the plans went by: pace measured on a busy machine is no promise."""
    if not timed_by:
        return ""
    more = f"; and {len(timed_by) - MOST_SOURCES} more" if len(timed_by) > MOST_SOURCES else ""
    return f" Planned by pace that was: {'; '.join(timed_by[:MOST_SOURCES])}{more}."


def _row(cell: dict[Any, Any]) -> tuple[str, ...]:
    ratio = cell["used_of_planned_s"] / cell["planned_of_ended_s"] if cell["planned_of_ended_s"] else math.nan
    return (
        *(str(cell[name]) for name in CELL),
        f"{cell['num_ended']:g}/{cell['num_runs']:g}",
        _planned(cell),
        _seconds(cell["used_s"]),
        f"{ratio:.2f}" if math.isfinite(ratio) else NO_VALUE,
        _lost(cell),
        _seconds(cell["diverged_s"]),
    )


def _planned(cell: dict[Any, Any]) -> str:
    if not cell["num_planned"]:
        return UNKNOWN
    some = cell["num_planned"] < cell["num_runs"]
    return _seconds(cell["planned_s"]) + (f" for {cell['num_planned']:g} of the runs" if some else "")


def _lost(cell: dict[Any, Any]) -> str:
    if not cell["num_lost_unknown"]:
        return _seconds(cell["lost_s"])
    return UNKNOWN if cell["num_lost_unknown"] == cell["num_ended"] else f"at least {_seconds(cell['lost_s'])}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def write_ledger(folder: Path, wanted: pd.DataFrame, runs: pd.DataFrame, planned: pd.DataFrame) -> Table:
    """Write `ledger.{md,tex,csv}` and return the table; arguments as of `ledger`."""
    cells = ledger(wanted, runs, planned)
    table = ledger_table(cells, sorted(planned["timed_by"].unique()))
    write_tables(folder, {"ledger": table}, cells)
    return table
