"""`ls`: the studies and runs that a results directory holds. Reads no curve."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.read import StudyInfo, check_format, read_study
from lr_sweep.common.text import aligned, duration
from lr_sweep.sweep.inspection.status import counts_lines
from lr_sweep.sweep.results import run_state
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import KnownRun, Row, State

TITLE_WIDTH = 48
"""Letters of a study's title that are shown."""
ACCURACIES = ("validation_at_best", "test_at_best")
"""Columns of `RUNS` that are shown as `validation` and `test`."""


def listing(results: Results, names: Sequence[str]) -> str:
    """Return a line a study, then a line a run that has ended or started; `names`: of these studies alone, in order."""
    check_format(results.root)
    studies = {name: read_study(results.root, name) for name in names}
    wanted = run_state.read_all_wanted(results)
    studies = studies or {name: read_study(results.root, name) for name in wanted}
    # Chosen studies first: they give the order and the labels.
    runs = run_state.known_runs(results, {name: wanted[name] for name in studies} | wanted, ["wall_s", *ACCURACIES])
    here = [run for run in runs if run.status != "waiting" and (not names or run.budgets.keys() & studies.keys())]
    return "\n".join([*_study_lines(studies, wanted, runs, results), "", *_run_lines(here, studies, results)])


def _study_lines(
    studies: Mapping[str, StudyInfo], wanted: Mapping[str, Sequence[Row]], runs: Sequence[KnownRun], results: Results
) -> list[str]:
    if not studies:
        return ["no study was run here yet"]
    ends = {run.run_id: run.end for run in runs if run.end}
    counts: dict[tuple[str, ...], Counter[State]] = {
        (name, textwrap.shorten(study.title, TITLE_WIDTH, placeholder=" ...")): Counter(
            run_state.study_states(results, name, wanted[name], ends)
        )
        for name, study in studies.items()
    }
    return counts_lines(("study", "title"), counts)


def _run_lines(runs: Sequence[KnownRun], studies: Mapping[str, StudyInfo], results: Results) -> list[str]:
    if not runs:
        return ["no runs yet"]
    best = ("validation", "test")
    head = ("run", "task", "model", "variant", "rate", "seed", "status", "steps", *best, "trained for", "studies")
    metrics = _metrics(runs, studies, results)
    return aligned([head, *(_run_row(run, metrics[run.run_id], results) for run in runs)], right=(4, 5, 7, 8, 9, 10))


def _metrics(runs: Sequence[KnownRun], studies: Mapping[str, StudyInfo], results: Results) -> dict[str, Metric]:
    """Return what was measured of each run: of a study's runs that is in their ids, and the study has it."""
    by_study = {run.run_id: next((name for name in run.budgets if name in studies), None) for run in runs}
    others = [run_id for run_id, study in by_study.items() if study is None]
    ends = run_state.read_ends(results, others, ["content"])  # of all it would take most of the memory
    return {
        run_id: run_state.metric_of(ends.get(run_id)) if study is None else studies[study].metric
        for run_id, study in by_study.items()
    }


def _run_row(run: KnownRun, metric: Metric, results: Results) -> tuple[str, ...]:
    # The curve of a run that has not ended has its steps, too, and is not read.
    step = run.end["num_steps"] if run.end else run_state.checkpoint_step(results, run.run_id)
    labels = [run_state.label(run.labels, name) for name in run_state.LABELS]
    values = [run.end[name] if run.end else None for name in ACCURACIES]
    accuracies = ["-" if value is None else metric.score_text(value, digits=1) for value in values]
    steps = "-" if step is None else str(step)
    trained = duration(run.end["wall_s"]) if run.end else "-"
    return (run.run_id, *labels, run.status, steps, *accuracies, trained, ", ".join(run.budgets) or "-")
