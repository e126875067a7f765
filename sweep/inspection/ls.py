"""`ls`: the studies and runs that a results directory holds. Reads no curve."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.read import StudyInfo, check_format, read_study
from lr_sweep.common.text import aligned, duration
from lr_sweep.sweep.inspection.status import counts_lines
from lr_sweep.sweep.results import run_state
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import RecordedRun, Row, State, counts_json

TITLE_WIDTH = 48
"""Most letters of a study's title that are shown."""
SCORES = {"validation": "validation_at_best", "test": "test_at_best"}
"""Columns of `RUNS`, by the names under which they are shown."""


class Listed(NamedTuple):
    """The studies that were asked for, and the runs that have ended or started."""

    studies: Mapping[str, StudyInfo]
    counts: Mapping[str, Counter[State]]
    """Number of runs in each state, by study."""
    runs: Sequence[RecordedRun]


def listing(results: Results, names: Sequence[str]) -> str:
    """Return a line a study, then a line a run that has ended or started; `names`: of these studies alone, in order."""
    found = _listed(results, names)
    return "\n".join([*_study_lines(found), "", *_run_lines(found.runs, found.studies, results)])


def listing_json(results: Results, names: Sequence[str]) -> Row:
    """Return what `listing` shows as content for JSON."""
    found = _listed(results, names)
    studies = [
        {"study": name, "title": info.title, "runs": counts_json(found.counts[name])}
        for name, info in found.studies.items()
    ]
    return {"studies": studies, "runs": [_run_json(run, results) for run in found.runs]}


def _listed(results: Results, names: Sequence[str]) -> Listed:
    check_format(results.root)
    studies = {name: read_study(results.root, name) for name in names}
    wanted = run_state.read_all_wanted(results)
    studies = studies or {name: read_study(results.root, name) for name in wanted}
    # Chosen studies first: they give the order and the labels.
    runs = run_state.known_runs(
        results, {name: wanted[name] for name in studies} | wanted, ["wall_s", *SCORES.values()]
    )
    here = [run for run in runs if run.status != State.WAITING and (not names or run.budgets.keys() & studies.keys())]
    ends = {run.run_id: run.row for run in runs if run.row}
    counts = {name: run_state.recorded_states(results, name, wanted[name], ends).counts() for name in studies}
    return Listed(studies, counts, here)


def _study_lines(found: Listed) -> list[str]:
    if not found.studies:
        return ["no study was run here yet"]
    counts: dict[tuple[str, ...], Counter[State]] = {
        (name, textwrap.shorten(info.title, TITLE_WIDTH, placeholder=" ...")): found.counts[name]
        for name, info in found.studies.items()
    }
    return counts_lines(("study", "title"), counts)


def _run_lines(runs: Sequence[RecordedRun], studies: Mapping[str, StudyInfo], results: Results) -> list[str]:
    if not runs:
        return ["no runs yet"]
    head = ("run", "task", "model", "variant", "rate", "seed", "status", "steps", *SCORES, "trained for", "studies")
    metrics = _metrics(runs, studies, results)
    return aligned([head, *(_run_row(run, metrics[run.run_id], results) for run in runs)], right=(4, 5, 7, 8, 9, 10))


def _metrics(runs: Sequence[RecordedRun], studies: Mapping[str, StudyInfo], results: Results) -> dict[str, Metric]:
    """Return what was measured of each run: of a study's runs that is in their ids, and the study has it."""
    by_study = {run.run_id: next((name for name in run.budgets if name in studies), None) for run in runs}
    others = [run_id for run_id, study in by_study.items() if study is None]
    ends = run_state.read_ends(results, others, ["content"])  # of all it would take most of the memory
    return {
        run_id: run_state.metric_of(ends.get(run_id)) if study is None else studies[study].metric
        for run_id, study in by_study.items()
    }


def _run_json(run: RecordedRun, results: Results) -> Row:
    end, labels = run.row or {}, run.labels or {}
    facts = {"run_id": run.run_id, **{name: labels.get(name) for name in run_state.LABELS}, "status": run.status}
    # The curve of a run that has not ended has its steps, too, and is not read.
    step = run.row["num_steps"] if run.row else run_state.checkpoint_step(results, run.run_id)
    values = {name: end.get(column) for name, column in SCORES.items()}
    return facts | {"num_steps": step} | values | {"wall_s": end.get("wall_s"), "studies": run.budgets}


def _run_row(run: RecordedRun, metric: Metric, results: Results) -> tuple[str, ...]:
    facts = _run_json(run, results)
    labels = [run_state.label(run.labels, name) for name in run_state.LABELS]
    scores = [None if facts[name] is None else metric.score_text(facts[name], digits=1) for name in SCORES]
    trained = None if facts["wall_s"] is None else duration(facts["wall_s"])
    values = (run.status, facts["num_steps"], *scores, trained, ", ".join(run.budgets) or None)
    return (run.run_id, *labels, *("-" if value is None else str(value) for value in values))
