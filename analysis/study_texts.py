"""How the runs of a report ended and were made, what its numbers are, and how a reader checks them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.statistics.checks.resumes import resume_texts
from lr_sweep.analysis.statistics.selection.best import seeds_of
from lr_sweep.analysis.statistics.selection.summary import OUTCOMES, StudySummary
from lr_sweep.common.text import counted, failure_line, rate_text

from .report.blocks import Bullets, Section, entries_of, laid_out
from .report.cells import SELDOM, fresh_seeds, has_steps
from .study_summary import Study

MAX_FAILURES = 20
"""Failed runs listed in the report; the rest are counted."""
MOST_BUDGETS = 3
"""Step budgets of one task that are listed; more are given as a range."""
PROGRAM = "lr-sweep"
SHOWN = 12
"""Hexadecimal digits of a commit and of a sha256 that are shown."""

DIVERGED = {
    "best": "A run that diverged counts with its best model before that; without an evaluation it has no value.",
    "final": "A run that diverged has no value.",
}
"""Sentence on diverged runs, by `Metric.model`."""


def made_sections(study: Study) -> list[Section]:
    """Describe the failures, and what was trained; of a table, how it was read."""
    if study.info.from_table:
        return [Section("How the table was read", [Bullets(study.about_table)])]
    runs = pd.concat([study.summary.runs, study.summary.fresh_runs])
    made = [*_facts(study.info, study.summary), *_provenance(study.runs)]
    return [*_failures(runs), Section("What was trained", [Bullets(made)])]


def _facts(info: StudyInfo, summary: StudySummary) -> Iterator[str]:
    """Yield sentences on what the numbers of a summary rest on: seeds, selection, step budgets, data."""
    runs = summary.runs
    seeds, chose = counted(seeds_of(runs).max(), "seed"), ""
    if fresh := fresh_seeds(summary):
        chose = f" chose the learning rates; values at these are of {fresh}"
    yield f"{info.kind} {info.study}. {seeds}{chose} unless marked."
    yield rule_text(info.metric, has_steps(runs))
    if info.winners is not None:
        rates = f"the best {info.winners} learning rates of each cell"
        yield f"The first seed chose {rates}; only these have all seeds."
    if info.search and info.search.space:
        options = ", ".join(info.search.space)
        yield f"Each learning rate was tried with its own values of {options}."
    if budgets := _budgets(runs):
        yield f"Step budgets: {budgets}."
    if data := _grouped_text(runs, "data_origin", "task"):
        yield f"Data: {data}."
    if weights := _grouped_text(runs, "pretrained_on", "model"):
        yield f"Pretrained on: {weights}."


def _budgets(runs: pd.DataFrame) -> str:
    if not has_steps(runs):
        return ""
    if runs.groupby("task")["num_steps"].nunique().max() > MOST_BUDGETS:
        return f"{runs['num_steps'].min()} to {runs['num_steps'].max()}"
    return _grouped_text(runs, "num_steps", "task")


def _grouped_text(runs: pd.DataFrame, column: str, by: str) -> str:
    """List the values of a column, each with what has it: `300 (mnist, cifar10)`."""
    names_by_value = runs.groupby(column, sort=False)[by].unique().items()
    return "; ".join(f"{value} ({', '.join(map(str, names))})" for value, names in names_by_value)


def _failures(runs: pd.DataFrame) -> list[Section]:
    failed = runs[runs["status"] == "failed"]
    if failed.empty:
        return []
    shown = failed.head(MAX_FAILURES)
    columns = {
        "variant": entries_of("variant"),
        "learning rate": lambda row: rate_text(row["learning_rate"]),
        "seed": entries_of("seed"),
        "run": entries_of("run_id"),
        "failure": lambda row: failure_line(row["failure"]),
    }
    caption = f"{len(shown)} of {len(failed)}. `run STUDY --retry-failed` trains them again."
    return [Section("Failed runs", [laid_out("Why runs failed", caption, shown, columns)])]


def _provenance(runs: pd.DataFrame) -> Iterator[str]:
    """Yield the code, the versions, the devices and the time of the runs that have ended."""
    if runs.empty:
        yield "No run has ended yet."
        return
    versions = sorted(
        {pair for recorded in runs["versions"].unique() for pair in json.loads(recorded).items()}
    )
    listed = [
        f"{name} {' and '.join(version for _, version in pairs)}"
        for name, pairs in groupby(versions, key=lambda pair: pair[0])
    ]
    if code := _code(runs, is_versioned=PROGRAM in dict(versions)):
        yield f"Code: {'; '.join(code)}."
    if listed:
        yield f"Versions: {', '.join(listed)}."
    devices, device_h = sorted(runs["device"].unique()), runs["device_s"].sum() / 3600
    yield f"Devices: {', '.join(devices)}; {device_h:.2f} device hours."
    began, ended = runs["started_at"].min(), runs["finished_at"].max()
    yield f"Trained from {began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} UTC."


def _code(runs: pd.DataFrame, *, is_versioned: bool) -> list[str]:
    """Name commits, and the user's own code files, which the runs of a study share.

    `is_versioned`: earlier versions, which did not record their own, recorded their own commit with the user's code.
    """
    files = json.loads(runs["content"].iloc[0]).get("code", {})
    whose = "your repository" if files and is_versioned else PROGRAM
    dirty = ", with uncommitted changes" if runs["git_dirty"].fillna(False).any() else ""
    commits = sorted(runs["git_commit"].dropna().unique())
    return [
        *(f"commit {commit[:SHOWN]} of {whose}{dirty}" for commit in commits),
        *(f"{name} (sha256 {sha256[:SHOWN]}...)" for name, sha256 in files.items()),
    ]


def _status_line(runs: pd.DataFrame, what: str) -> str:
    counts = runs["status"].value_counts()
    if counts.get("complete", 0) == len(runs):
        return f"{counted(len(runs), 'run')} {what}: all complete."
    shown = [status for status in OUTCOMES if status not in SELDOM or status in counts]
    parts = [f"{counts.get(status, 0)} {status}" for status in shown]
    return f"{len(runs)} runs {what}: {', '.join(parts)}."


def status_text(study: Study) -> str:
    """Count the runs of a record; or of a table, and the seeds that it lacks beside other learning rates."""
    runs, rates = study.summary.runs, study.summary.learning_rates
    if not study.info.from_table:
        choosing = "that choose the learning rates" if study.info.fresh else "wanted"
        lines = [_status_line(runs, choosing)]
        if study.summary.fresh_runs is not None:
            lines.append(_status_line(study.summary.fresh_runs, "on fresh seeds"))
        resumed = [f"{text}." for _, text in resume_texts(study.wanted, study.runs)]
        return " ".join([*lines, *resumed])
    what = "in the table"
    if study.num_table_runs is not None:
        what = f"of {study.num_table_runs} in the table, at the best of the tuned settings"
    absent = int((rates["num_seeds"] - rates["num_wanted"]).sum())
    lacking = f"{absent} runs with seeds that their cells have at other learning rates"
    return _status_line(runs, what) + (f" Not in the table: {lacking}." if absent else "")


def reading_section(study: Study) -> Section:
    """Say what the numbers are and are not, and how to check them."""
    return Section("How to read and check it", [Bullets([*_limits(study), *_to_check(study)])])


def _limits(study: Study) -> Iterator[str]:
    """Yield sentences on what the numbers are and are not."""
    metric, table = study.summary.metric, study.info.from_table
    if not metric.chosen_on:
        yield f"No learning rate is chosen: there is no validation data, and {metric.test} selects nothing."
        return
    if metric.untuned:
        yield "Intervals are over seeds. They do not account for the finite data that were measured."
        return
    is_tested = metric.chosen_on != metric.reported_on
    selects = f" {metric.title} selects nothing." if is_tested else ""
    yield (
        "A learning rate where a seed has no value is chosen only if every learning rate "
        f"lacks one.{selects}"
    )
    if is_tested:
        read = "at the step that validation chose" if metric.model == "best" else "at its last step"
        read = read if has_steps(study.summary.runs) else "as the table has it"
        shown = "The figure shows it at every learning rate, for reading, not for choosing."
        yield f"The {metric.test} was read once for each run, {read}. {shown}"
    varied = "" if table else ": initialisation, data order and dropout"
    yield (
        f"Intervals are over seeds{varied}. They do not account for the choice of the learning rate "
        "or for the finite test set."
    )
    yield f"{DIVERGED[metric.model]} Failed and missing runs are never counted as zero."
    where = "the table" if table else "the step budgets and the data named above"
    yield f"The numbers hold for {where}, and for the learning rates that were tried."


def _to_check(study: Study) -> Iterator[str]:
    """Yield how a reader checks the numbers of a record."""
    if study.info.from_table:
        yield "`lr-sweep judge TABLE` writes this report again from the same table."
        return
    yield (
        "`runs.csv` has the value of every run. A run's id is a hash of everything that can change its numbers, "
        "so changed code or options make other ids."
    )
    yield (
        f"`lr-sweep verify` reads every file of the results, and `lr-sweep report {study.info.study}` writes this "
        "report again from them. `lr-sweep run` with the study's file and `--results` of an empty folder trains every "
        "run again; deterministic training gives equal values on the same kind of machine with the same versions."
    )


def rule_text(metric: Metric, has_steps: bool) -> str:
    """State the selection rule, for tables and figures; without steps a run has one evaluation."""
    best, name = metric.best, metric.validation
    if not metric.chosen_on:
        return "Selection: none, as there is no validation data."
    rate = f"in each cell the learning rate with the {best} mean"
    if not has_steps:
        return f"Selection: {rate} {name} over seeds (ties: the smaller)."
    if metric.model == "final":
        return f"Selection: in each run the last step, then {rate} {name} over seeds (ties: the smaller)."
    return (
        f"Selection: in each run the step with the {best} {name} (ties: the earliest), then {rate} of that over seeds "
        "(ties: the smaller)."
    )
