"""`status`: how far a study is, from the record and from what a running sweep last wrote down."""

from __future__ import annotations

import json
import time
from typing import Any

import pandas as pd

from analysis.record import read_runs, read_study, read_wanted
from sweep.plan import aligned
from sweep.results import Results

STATUSES = ("complete", "diverged", "failed", "started", "waiting")
"""Of wanted runs; `started` ones have a curve and no end."""


def status_text(results: Results, study: str, now: float | None = None) -> str:
    """Return where a study's runs stand, cell by cell, and whether a sweep is going on.

    Raises:
        RecordError: no `run` of the study was ever started here, or the record is damaged.
    """
    info = read_study(results.root, study)
    wanted = read_wanted(results.root, study)
    runs = read_runs(results.root, wanted["run_id"])
    standing = _standing(wanted, runs, results)
    lines = [f"{info.study}: {info.title}", _activity(results, study, time.time() if now is None else now), ""]
    lines += _cell_lines(standing)
    for row in runs[runs["status"] == "failed"].itertuples():
        lines.append(
            f"failed: {row.task} {row.model} {row.variant} {row.learning_rate:g} seed {row.seed}: {row.failure}"
        )
    return "\n".join([*lines, f"results: {results.root}"])


def _standing(wanted: pd.DataFrame, runs: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return wanted runs with a column `status` out of `STATUSES`."""
    ended = wanted.merge(runs[["run_id", "status", "num_steps"]], on="run_id", how="left", suffixes=("", "_trained"))
    short = (ended["status"] == "complete") & (ended["num_steps_trained"] < ended["num_steps"])
    ended.loc[short, "status"] = "started"
    open_runs = ended["status"].isna()
    curves = ended["run_id"].map(lambda run_id: results.curve(run_id).exists())
    ended.loc[open_runs, "status"] = curves[open_runs].map({True: "started", False: "waiting"})
    return ended


def _cell_lines(standing: pd.DataFrame) -> list[str]:
    rows: list[tuple[str, ...]] = [("task", "model", "variant", *STATUSES)]
    for cell, group in standing.groupby(["task", "model", "variant"], sort=False):
        counts = group["status"].value_counts()
        rows.append((*map(str, cell), *(str(counts.get(status, 0)) for status in STATUSES)))
    counts = standing["status"].value_counts()
    rows.append(("all", "", "", *(str(counts.get(status, 0)) for status in STATUSES)))
    return aligned(rows, right_from=3)


def _activity(results: Results, study: str, now: float) -> str:
    if not results.being_written():
        return "no sweep is going on; `run` trains what is left"
    try:
        holder: dict[str, Any] = json.loads(results.holder.read_text())
        progress: dict[str, Any] = json.loads(results.progress(study).read_text())
    except (OSError, ValueError):
        return "a sweep has just started"
    left = progress["time_left_s"]
    remaining = "time left not known yet" if left is None else f"about {left / 60:.0f} min left"
    return (
        f"process {holder['pid']} on {holder['host']} trains study {holder['study']}: "
        f"{progress['steps_per_s']:.0f} steps/s, {remaining} (as of {now - progress['updated_at']:.0f} s ago)"
    )
