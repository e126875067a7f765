"""The noise of runs that a results directory holds: how much runs of different seeds vary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_study, read_wanted_rows, recorded_studies
from lr_sweep.analysis.statistics.selection.best import CELL, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.analysis.study_summary import read_summary

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
        if lacking := set(groups) - noise.keys():
            of_study = _noise_of(results, name, metric, lacking)
            noise |= {group: (of_study[group], name) for group in lacking & of_study.keys()}
    return noise


def _noise_of(
    results: Path, study: str, metric: Metric, groups: Collection[Group]
) -> Mapping[Group, float]:
    try:
        rows = read_wanted_rows(results, study, GROUP)
        has_group = any((row["task"], row["model"]) in groups for row in rows)
        if not has_group or read_study(results, study).metric.as_json() != metric.as_json():
            return {}
        summary = read_summary(results, study).summary
    except RecordError:
        return {}
    runs = pd.concat([summary.runs, summary.fresh_runs], ignore_index=True)
    return noise_by_group(runs.merge(summary.cells[[*CELL, "learning_rate"]]))


def noise_by_group(runs: pd.DataFrame) -> dict[Group, float]:
    """Return the standard deviation of a run by task and model, pooled over cells with two values or more.

    `runs`: columns of `CELL` and `test_accuracy`, of runs at their cell's chosen rate.
    """
    cells = runs.groupby(CELL)["test_accuracy"].agg(["var", "count"]).dropna()
    cells["dof"] = cells["count"] - 1
    cells["squares"] = cells["var"] * cells["dof"]
    sums = cells.groupby(GROUP)[["squares", "dof"]].sum()
    noise = (sums["squares"] / sums["dof"]) ** 0.5
    noisy = noise[noise > 0].reset_index(name="noise")
    return dict(zip(tuples_in(noisy[GROUP]), noisy["noise"], strict=True))
