"""Which difference of variants a study would find, from the noise of runs that are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, isinf
from typing import NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_study, read_wanted_rows, recorded_studies
from lr_sweep.analysis.statistics.comparisons.power import findable
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import grids_of
from lr_sweep.sweep.study.study import Study

USUAL_FRESH = 5
"""Fresh seeds that are proposed to a study without them."""
Group = tuple[str, str]
"""Task and model."""


class Reach(NamedTuple):
    """Differences that are significant in 80% of studies, as of the metric's values; infinite: no difference is."""

    seeds: int
    """Seeds of each variant."""
    difference: float
    """Difference that they find."""
    one_more: float
    """Difference that one more seed of each variant finds."""


@dataclass(frozen=True, kw_only=True)
class Finds:
    """What a study would find among the variants of a task and model."""

    task: str
    model: str
    noise: float
    """Standard deviation of a run at its cell's chosen rate."""
    noise_of: str
    """Name of the study that recorded the noise, or the option that gave it."""
    own: Reach
    fresh: Reach


def num_pairs(study: Study) -> int:
    """Return how many pairs of variants a study compares."""
    variants = Counter(cell[:2] for cell in grids_of(study))
    return sum(comb(number, 2) for number in variants.values())


def finds(study: Study, results: Results, noise: float | None) -> list[Finds]:
    """Return what the study would find in each task and model of which the noise is known.

    `noise`: standard deviation of a run, in points or the metric's unit; None: it is read from the record.
    """
    groups = dict.fromkeys(cell[:2] for cell in grids_of(study))
    if noise is None:
        known = recorded_noise(study, results, groups)
    else:
        known = dict.fromkeys(groups, (noise / study.measured.scale, "--noise"))
    fresh = study.fresh_seeds.max if study.fresh_seeds else USUAL_FRESH
    pairs = num_pairs(study)
    return [
        Finds(
            task=task,
            model=model,
            noise=noise,
            noise_of=noise_of,
            own=_reach(noise, len(study.seed_list()), pairs),
            fresh=_reach(noise, fresh, pairs),
        )
        for (task, model), (noise, noise_of) in known.items()
    ]


def _reach(noise: float, seeds: int, pairs: int) -> Reach:
    difference, one_more = findable(noise, [seeds, seeds + 1], pairs).tolist()
    return Reach(seeds, difference, one_more)


def recorded_noise(
    study: Study, results: Results, groups: Iterable[Group]
) -> dict[Group, tuple[float, str]]:
    """Return the noise of a run by task and model, and the study that recorded it: this one, else another one."""
    noise: dict[Group, tuple[float, str]] = {}
    names = recorded_studies(results.root) if results.exists() else []
    for name in sorted(names, key=lambda name: name != study.study):
        if lacking := [group for group in groups if group not in noise]:
            of_study = _noise_in(results, name, study.measured, lacking)
            noise |= {group: (of_study[group], name) for group in lacking if group in of_study}
    return noise


def _noise_in(
    results: Results, name: str, metric: Metric, groups: Sequence[Group]
) -> Mapping[Group, float]:
    try:
        rows = read_wanted_rows(results.root, name, GROUP)
        is_same = read_study(results.root, name).metric.as_json() == metric.as_json()
        if not is_same or set(groups).isdisjoint((row["task"], row["model"]) for row in rows):
            return {}
        summary = read_summary(results.root, name).summary
    except RecordError:  # of a study that is not planned here
        return {}
    runs = pd.concat([summary.runs, summary.fresh_runs], ignore_index=True)
    return noise_by_group(runs.merge(summary.cells[[*CELL, "learning_rate"]]))


def noise_by_group(runs: pd.DataFrame) -> dict[Group, float]:
    """Return the standard deviation of a run by task and model, pooled over its cells with values of two seeds or more.

    `runs`: columns of `CELL` and `test_accuracy`, of runs at their cell's chosen rate.
    """
    cells = runs.groupby(CELL)["test_accuracy"].agg(["var", "count"]).dropna()
    cells["dof"] = cells["count"] - 1
    cells["squares"] = cells["var"] * cells["dof"]
    sums = cells.groupby(GROUP)[["squares", "dof"]].sum()
    noise = (sums["squares"] / sums["dof"]) ** 0.5
    return {group: float(value) for group, value in noise.items() if value > 0}


def finds_lines(study: Study, found: Sequence[Finds]) -> list[str]:
    """Say which differences the study would find, a line for each task and model if their noise differs."""
    text, option = study.measured.amount_text, "" if study.fresh else " (--fresh)"
    differ, lines = len({each.noise for each in found}) > 1, []
    for each in found if differ else found[:1]:
        where = f"{each.task}, {each.model}: " if differ else ""
        own = _reach_text("own", each.own, study.measured)
        fresh = _reach_text(f"fresh{option}", each.fresh, study.measured)
        noise = f"a run's standard deviation is {text(each.noise, each.noise)} ({each.noise_of})"
        lines.append(f"{where}in 80% of studies {own}; {fresh}; {noise}")
    return lines


def _reach_text(kind: str, reach: Reach, metric: Metric) -> str:
    """Return `5 fresh seeds find a difference of 2.9 points, 6 find 2.5 points`."""
    text = metric.amount_text
    size = reach.difference
    what = "no difference" if isinf(size) else f"a difference of {text(size, size)}"
    more = "none" if isinf(reach.one_more) else text(reach.one_more, reach.one_more)
    return f"{reach.seeds} {kind} seeds find {what}, {reach.seeds + 1} find {more}"
