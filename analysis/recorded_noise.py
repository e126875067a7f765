"""The noise of runs that a results directory holds: how much runs of different seeds vary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_study, read_wanted_rows, recorded_studies
from lr_sweep.analysis.statistics.selection.best import CELL, RATE, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP

from .metric import Metric
from .study_summary import read_summary

Group = tuple[str, str]
"""Task and model."""


def recorded_noise(
    results: Path, study: str, metric: Metric, groups: Collection[Group]
) -> dict[Group, tuple[float, str]]:
    """Return the noise of tasks and models that have any, and the study that recorded it.

    A group's noise is that of `study`, or else of another one with the same metric. Studies that
    cannot be read are left out.
    """
    noise: dict[Group, tuple[float, str]] = {}
    for name in sorted(recorded_studies(results), key=lambda name: name != study):
        lacking = [group for group in groups if group not in noise]
        if lacking:
            for group, deviation in _noise_of(results, name, metric, lacking).items():
                noise.setdefault(group, (deviation, name))
    return noise


def _noise_of(
    results: Path, study: str, metric: Metric, groups: Collection[Group]
) -> Mapping[Group, float]:
    try:
        rows = read_wanted_rows(results, study, GROUP)
        shared = {(row["task"], row["model"]) for row in rows} & set(groups)
        if not shared or read_study(results, study).metric.as_json() != metric.as_json():
            return {}
        summary = read_summary(results, study).summary
    except RecordError:
        return {}
    runs = pd.concat([summary.runs, summary.fresh_runs], ignore_index=True)
    noise = noise_by_group(runs.merge(summary.cells[RATE]))
    return {group: noise[group] for group in shared if group in noise}


def noise_by_group(runs: pd.DataFrame) -> dict[Group, float]:
    """Return the standard deviation of a run by task and model, pooled over cells with two values or more.

    `runs`: columns of `CELL` and `test`, of runs at their cell's chosen rate.
    """
    cells = runs.groupby(CELL)["test"].agg(["var", "count"]).dropna()
    cells["dof"] = cells["count"] - 1
    cells["squares"] = cells["var"] * cells["dof"]
    sums = cells.groupby(GROUP)[["squares", "dof"]].sum()
    noise = (sums["squares"] / sums["dof"]) ** 0.5
    noisy = noise[noise > 0].reset_index(name="noise")
    return dict(zip(tuples_in(noisy[GROUP]), noisy["noise"], strict=True))
