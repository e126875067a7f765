"""Which difference of variants a study would find, from the noise of recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.recorded_noise import recorded_noise
from lr_sweep.analysis.statistics.comparisons.power import findable
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import grids_of
from lr_sweep.sweep.study.study import Study

USUAL_FRESH = 5
"""Fresh seeds that are proposed to a study without them."""


def finds(study: Study, results: Results, num_pairs: int, noise: float | None) -> list[Fields]:
    """Return a row for each task and model whose noise is known.

    `task`, `model`; `noise` (a run's standard deviation, as of the metric's values) and `noise_of` (the study that
    recorded it, or the option); `own` and `fresh`: `seeds` of each variant, the `difference` that they find in 80% of
    studies, and that of `one_more` seed; infinite: none is found.

    Args:
        study: the study that is planned.
        results: where noise may be recorded.
        num_pairs: pairs of variants that the study compares.
        noise: a run's standard deviation, in points or the metric's unit; None: it is read from the record.
    """
    groups = dict.fromkeys(cell[:2] for cell in grids_of(study))
    if noise is None:
        known = recorded_noise(results.root, study.study, study.measured, groups)
    else:
        known = dict.fromkeys(groups, (noise / study.measured.scale, "--noise"))
    fresh = study.fresh.max if study.fresh else USUAL_FRESH
    seeds = {"own": len(study.seed_list()), "fresh": fresh}
    rows = []
    for (task, model), (noise, noise_of) in known.items():
        row: Fields = {"task": task, "model": model, "noise": noise, "noise_of": noise_of}
        for kind, number in seeds.items():
            is_fresh = kind == "fresh"
            both = findable(noise, [number, number + 1], num_pairs, is_fresh=is_fresh)
            difference, one_more = both.tolist()
            row[kind] = {"seeds": number, "difference": difference, "one_more": one_more}
        rows.append(row)
    return rows


def finds_lines(study: Study, rows: Sequence[ReadFields]) -> list[str]:
    """Say which differences the study would find, a line for each task and model if their noise differs."""
    metric, option = study.measured, "" if study.fresh else " (--fresh)"
    differ, lines = len({row["noise"] for row in rows}) > 1, []
    for row in rows if differ else rows[:1]:
        where = f"{row['task']}, {row['model']}: " if differ else ""
        own, fresh = _text("own", row["own"], metric), _text(f"fresh{option}", row["fresh"], metric)
        noise = metric.amount_text(row["noise"], row["noise"])
        lines.append(
            f"{where}in 80% of studies {own}; {fresh}; a run's standard deviation is {noise} ({row['noise_of']})"
        )
    return lines


def _text(kind: str, row: ReadFields, metric: Metric) -> str:
    """Return `5 fresh seeds find a difference of 2.9 points, 6 find 2.5 points`."""
    first, more = (
        "none" if isinf(size) else metric.amount_text(size, size)
        for size in (row["difference"], row["one_more"])
    )
    what = "no difference" if first == "none" else f"a difference of {first}"
    return f"{row['seeds']} {kind} seeds find {what}, {row['seeds'] + 1} find {more}"
