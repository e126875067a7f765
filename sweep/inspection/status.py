"""`status` and `ls`: how far studies are, and the runs that a results directory holds; without a curve.

They read the record, and the progress that a running sweep last wrote.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.read import check_format, read_study, read_wanted_rows
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.common.text import counted, duration, fitted, study_heading
from lr_sweep.sweep.results import run_state
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.results.run_state import LABELS, RecordedRun, Row, State, run_title

CELL = ("task", "model", "variant")
TITLE_WIDTH = 48
"""Most letters of a title in a list."""
IDLE = "no sweep is running"
SCORES = {"validation": "validation_at_best", "test": "test_at_best"}
"""Columns of `RUNS`, by the names under which they are shown."""
FACTS = ("wall_s", "resumed", "not_saved")
"""Columns of `RUNS` that are listed under their own names."""


def status_text(results: Results, study: str, now: float | None = None) -> str:
    """Return a study's runs by cell and state, and what is running; raises RecordError if it was never run here."""
    facts = status_json(results, study, now)
    doing, counts, ending = facts["activity"], facts["runs"], f"results: {facts['results']}"
    if facts["title"] is None:
        return "\n".join([f"{study}: no run yet", doing, ending])
    if doing == IDLE and not all(State(state).has_ended for state in counts):
        doing += "; `run` trains what is left"
    cells = {tuple(cell[name] for name in CELL): cell["runs"] for cell in facts["cells"]}
    return "\n".join(
        [
            study_heading(study, facts["title"]),
            *read_study(results.root, study).about(),
            doing,
            *filter(None, [facts["fresh"]]),
            "",
            *_counts_lines(CELL, cells | {("all", "", ""): counts}),
            *(f"failed: {run_title(run)}: {run['failure']}" for run in facts["failed"]),
            ending,
        ]
    )


def status_json(results: Results, study: str, now: float | None = None) -> Row:
    """Return what `status_text` shows as content for JSON."""
    doing = activity(results, time.time() if now is None else now)
    facts: dict[str, Any] = {"study": study, "results": results.location, "activity": doing}
    if _pretrains_first(results, study):
        return facts | {"title": None, "runs": {}, "cells": [], "failed": [], "fresh": None}
    info, wanted = read_study(results.root, study), read_wanted_rows(results.root, study)
    if info.fresh is not None:
        results.refresh()  # with the curves, which `status` opens without
    ends = run_state.read_ends(results, [row["run_id"] for row in wanted], ["failure"])
    runs = run_state.recorded_states(results, study, wanted, ends)
    cells: dict[tuple[str, ...], Counter[State]] = defaultdict(Counter)
    for row in wanted:
        cells[tuple(row[name] for name in CELL)][runs.states[row["run_id"]]] += 1
    return facts | {
        "title": info.title,
        "runs": run_state.counts_json(runs.counts()),
        "cells": [
            dict(zip(CELL, cell, strict=True)) | {"runs": run_state.counts_json(counts)}
            for cell, counts in cells.items()
        ],
        "failed": [
            {name: row[name] for name in ("run_id", *LABELS)} | {"failure": why}
            for row, why in runs.failed()
        ],
        "fresh": fresh_text(results, info),
    }


def fresh_text(results: Results, info: StudyInfo) -> str | None:
    """Say how far the fresh seeds are; None: the study has none."""
    if info.fresh is None:
        return None
    # Imported late: other studies need no pandas.
    from lr_sweep.analysis.statistics.comparisons.fresh import progress
    from lr_sweep.analysis.study_summary import read_summary

    summary = read_summary(results.root, info.study).summary
    if summary.runs["status"].eq("missing").any():
        return "fresh seeds have not begun; the runs that choose the rates have not all ended"
    return progress(summary)


def _pretrains_first(results: Results, study: str) -> bool:
    """Return whether a sweep pretrains for a study that was never run here; it is recorded only after that."""
    if results.facts(study).exists() or not results.being_written():
        return False
    return (
        results.pretraining_progress.exists() and read_state(results.holder).get("study") == study
    )


def _counts_lines(
    head: Sequence[str], counts: Mapping[tuple[str, ...], Mapping[Any, int]]
) -> list[str]:
    """Return a table of how many runs are in each state, a line for each of `counts`, whose keys `head` names."""
    present = set().union(*counts.values())
    shown = [state for state in State if state is not State.STOPPED or state in present]
    rows = [(*head, *shown)]
    rows += [
        (*labels, *(str(number.get(state, 0)) for state in shown))
        for labels, number in counts.items()
    ]
    return fitted(rows, len(head), right=range(len(head), len(rows[0])))


def activity(results: Results, now: float) -> str:
    """Return which process writes here and its latest progress; it may train another study than the one asked for."""
    if not results.being_written():
        return IDLE
    holder = read_state(results.holder)
    if not holder:
        return "a sweep has just started"
    who = f"process {holder['pid']} on {holder['host']}"
    study, failed = holder["study"], ""
    if progress := read_state(results.pretraining_progress):
        doing = f"pretrains {progress['model']} for {study}: step {progress['step']} of {progress['num_steps']}"
    elif progress := results.latest_progress(holder):
        attempts = progress.get("failed_attempts")
        failed = f"; {counted(attempts, 'attempt')} failed so far" if attempts else ""
        if not progress["steps_per_s"]:  # before the first step and after the last
            return f"{who} runs study {study}{failed}"
        doing = f"trains study {study}: {progress['steps_per_s']:.0f} steps/s"
    else:
        return f"{who} is writing here ({study}); it has trained nothing yet"
    # The sweep may run on a machine whose clock is ahead.
    age_s = max(0.0, now - progress["updated_at"])
    left_s = progress["time_left_s"]
    left = "" if left_s is None else f", about {duration(left_s)} left"
    return f"{who} {doing}{left} (as of {age_s:.0f} s ago){failed}"


class _Listed(NamedTuple):
    studies: Mapping[str, StudyInfo]
    counts: Mapping[str, Counter[State]]
    runs: Sequence[RecordedRun]


def listing(results: Results, names: Sequence[str]) -> str:
    """Return a line a study, then a line a run that has ended or started; `names`: of these studies alone, in order."""
    listed = _listed(results, names)
    return "\n".join([*_study_lines(listed), "", *_run_lines(listed.runs, listed.studies, results)])


def listing_json(results: Results, names: Sequence[str]) -> Row:
    """Return what `listing` shows as content for JSON."""
    listed = _listed(results, names)
    studies = [
        {
            "study": name,
            "title": info.title,
            "metric": info.metric.as_json(),
            "runs": run_state.counts_json(listed.counts[name]),
        }
        for name, info in listed.studies.items()
    ]
    return {"studies": studies, "runs": [_run_json(run, results) for run in listed.runs]}


def _listed(results: Results, names: Sequence[str]) -> _Listed:
    check_format(results.root)
    wanted = run_state.read_all_wanted(results)
    studies = {name: read_study(results.root, name) for name in names or wanted}
    # Chosen studies first: they give the order and the labels.
    runs = run_state.known_runs(
        results, {name: wanted[name] for name in studies} | wanted, [*FACTS, *SCORES.values()]
    )
    here = [
        run
        for run in runs
        if run.status != State.WAITING and (not names or run.budgets.keys() & studies.keys())
    ]
    ends = {run.run_id: run.row for run in runs if run.row}
    counts = {
        name: run_state.recorded_states(results, name, wanted[name], ends).counts()
        for name in studies
    }
    return _Listed(studies, counts, here)


def _study_lines(listed: _Listed) -> list[str]:
    if not listed.studies:
        return ["no study was run here yet"]
    counts: dict[tuple[str, ...], Counter[State]] = {
        (name, info.title[:TITLE_WIDTH]): listed.counts[name]
        for name, info in listed.studies.items()
    }
    return _counts_lines(("study", "title"), counts)


def _run_lines(
    runs: Sequence[RecordedRun], studies: Mapping[str, StudyInfo], results: Results
) -> list[str]:
    if not runs:
        return ["no runs yet"]
    head = (
        "run",
        "task",
        "model",
        "variant",
        "rate",
        "seed",
        "status",
        "steps",
        *SCORES,
        "trained for",
        "studies",
    )
    metrics = _metrics(runs, studies, results)
    rows = [_run_row(run, metrics[run.run_id], results) for run in runs]
    return fitted([head, *rows], 1, right=(4, 5, 7, 8, 9, 10))


def _metrics(
    runs: Sequence[RecordedRun], studies: Mapping[str, StudyInfo], results: Results
) -> dict[str, Metric]:
    """Return what was measured of each run: of a study's runs that is in their ids, and the study has it."""
    metrics = {
        run.run_id: studies[study].metric
        for run in runs
        for study in run.budgets
        if study in studies
    }
    # The contents of all runs would take most of the memory.
    unwanted = [run.run_id for run in runs if run.run_id not in metrics]
    ends = run_state.read_ends(results, unwanted, ["content"])
    return metrics | {run_id: run_state.metric_of(ends.get(run_id)) for run_id in unwanted}


def _run_json(run: RecordedRun, results: Results) -> Row:
    end, labels = run.row or {}, run.labels or {}
    facts = {
        "run_id": run.run_id,
        **{name: labels.get(name) for name in LABELS},
        "status": run.status,
    }
    # The curve of a run that has not ended has its steps, too, and is not read.
    step = run.row["num_steps"] if run.row else run_state.checkpoint_step(results, run.run_id)
    values = {name: end.get(column) for name, column in SCORES.items()}
    shown = {name: end.get(name) for name in FACTS}
    return facts | {"num_steps": step} | values | shown | {"studies": run.budgets}


def _run_row(run: RecordedRun, metric: Metric, results: Results) -> tuple[str, ...]:
    facts = _run_json(run, results)
    labels = [run_state.label(run.labels, name) for name in LABELS]
    scores = [
        None if facts[name] is None else metric.score_text(facts[name], digits=1) for name in SCORES
    ]
    trained = None if facts["wall_s"] is None else duration(facts["wall_s"])
    status = f"{run.status}{run.doubt}"
    values = (status, facts["num_steps"], *scores, trained, ", ".join(run.budgets) or None)
    return (run.run_id, *labels, *("-" if value is None else str(value) for value in values))
