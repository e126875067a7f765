"""How the runs of a record ended, what they cost and how they were made."""

from __future__ import annotations

import json
import math
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.report import tables
from lr_sweep.analysis.report.blocks import Block, Bullets, Paragraph, Section
from lr_sweep.analysis.report.texts import laid_out
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.common.text import failure_line

MAX_FAILURES = 20
"""Failed runs listed in the report; the rest are counted."""


def made_sections(folder: Path, runs: pd.DataFrame, ended: pd.DataFrame) -> list[Section]:
    """Write the failures and the costs; `runs`: all of a study, fresh ones too; `ended`: columns of `RUNS`."""
    device_s = ledger(runs, ended)
    cost = tables.ledger_table(device_s).write(folder, "ledger", device_s)
    return [
        *_failures(runs),
        Section("What it cost", [cost]),
        Section("How it was made", [_provenance(ended)]),
    ]


def _failures(runs: pd.DataFrame) -> list[Section]:
    failed = runs[runs["status"] == "failed"]
    shown = failed.head(MAX_FAILURES).assign(failure=failed["failure"].map(failure_line))
    table = laid_out("failed", shown, shown=len(shown), failed=len(failed))
    return [Section("Failed runs", [table])] if len(failed) else []


def _provenance(runs: pd.DataFrame) -> Block:
    if runs.empty:
        return Paragraph("No run has ended yet.")
    dirty = " (some with uncommitted changes)" if runs["git_dirty"].fillna(False).any() else ""
    commits = ", ".join(sorted(runs["git_commit"].dropna().unique())) or "unknown"
    versions = sorted(
        {pair for recorded in runs["versions"].unique() for pair in json.loads(recorded).items()}
    )
    listed = [
        f"{name} {' and '.join(version for _, version in found)}"
        for name, found in groupby(versions, key=lambda pair: pair[0])
    ]
    began, ended = runs["started_at"].min(), runs["finished_at"].max()
    return Bullets(
        [
            f"Code: commit {commits}{dirty}.",
            f"Devices: {', '.join(sorted(runs['device'].unique()))}; {runs['device_s'].sum() / 3600:.2f} device hours.",
            f"Trained from {began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} UTC.",
            f"Versions: {', '.join(listed)}.",
        ]
    )


def ledger(wanted: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add up by cell the device seconds that were used, and what of them was wasted.

    Args:
        wanted: wanted runs with their `status` at the study's budget, as `account` gives it.
        runs: of `RUNS`, `run_id`, `num_steps`, `device_s`, `lost_steps`.

    Returns:
        A row a cell: the columns of `CELL`; numbers of runs `num_runs`, `num_ended` and `num_lost_unknown` (of those
        that ended); device seconds `used_s`, `lost_s` and `diverged_s`.
    """
    trained = runs[["run_id", "num_steps", "device_s", "lost_steps"]].rename(
        columns={"num_steps": "trained"}
    )
    found = wanted.merge(trained, on="run_id", how="left")
    steps, lost = (
        found[name].to_numpy(float, na_value=math.nan) for name in ("trained", "lost_steps")
    )
    device_s = found["device_s"].to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.fmin(
            1.0, found["num_steps"].to_numpy(float) / steps
        )  # of what was trained, within this budget
        lost_s = np.where(lost == 0, 0.0, part * device_s * lost / steps)
    lost_s = np.where(np.isfinite(lost_s), lost_s, math.nan)
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
