"""The ledger: device time that was used per cell, and what of it was wasted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.selection.best import CELL


def ledger(wanted: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add up device seconds by cell.

    Args:
        wanted: wanted runs with their `status` at the study's budget, as `aggregate.account` gives it.
        runs: of `RUNS`, `run_id`, `num_steps`, `device_s`, `lost_steps`.

    Returns:
        A row a cell: the columns of `CELL`; numbers of runs `num_runs`, `num_ended` and `num_lost_unknown` (of those
        that ended); device seconds `used_s`, `lost_s` and `diverged_s`.
    """
    trained = runs[["run_id", "num_steps", "device_s", "lost_steps"]].rename(columns={"num_steps": "trained"})
    found = wanted.merge(trained, on="run_id", how="left")
    steps, lost = (found[name].to_numpy(float, na_value=np.nan) for name in ("trained", "lost_steps"))
    device_s = found["device_s"].to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.fmin(1.0, found["num_steps"].to_numpy(float) / steps)  # of what was trained, within this budget
        lost_s = np.where(lost == 0, 0.0, part * device_s * lost / steps)
    lost_s = np.where(np.isfinite(lost_s), lost_s, np.nan)
    used_s = np.nan_to_num(part * device_s) + np.nan_to_num(lost_s)
    ended = found["status"].ne("missing").to_numpy()
    sums = {
        "num_runs": np.ones(len(found), int),
        "num_ended": ended.astype(int),
        "num_lost_unknown": (ended & np.isnan(lost_s)).astype(int),
        "used_s": used_s,
        "lost_s": np.nan_to_num(lost_s),
        "diverged_s": np.where(found["status"].eq("diverged"), used_s, 0.0),
    }
    return found[CELL].assign(**sums).groupby(CELL, sort=False)[list(sums)].sum().reset_index()
