"""A study and its summary, read from its record: for the report, the Python API and the mirror in MLflow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.record.read import stopped_of
from lr_sweep.analysis.record.study import StoppedRates, StudyInfo, with_stops
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.rates.laws import of_contents, of_labels
from lr_sweep.analysis.statistics.selection.summary import RUN_COLUMNS, StudySummary, summarise

from .record import read as record

CURVE_COLUMNS = ("run_id", "step", "train", "validation", "test")
"""What is read of the record: at 10,000 runs, leaving out the rest saves seconds and memory."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study and its summary, whether a record or a table gave it."""

    info: StudyInfo
    wanted: pd.DataFrame
    runs: pd.DataFrame
    """`RUN_COLUMNS`; of a record, those that were asked for, too."""
    curves: pd.DataFrame
    summary: StudySummary
    findings: tuple[CheckFinding, ...] = ()
    """What the checks found, problems first."""
    about_table: Sequence[str] = ()
    """How a table was read, and what it lacks, sentence by sentence."""
    left_out: Sequence[str] = ()
    """Variants of a table that are not compared, and the command that keeps them, a sentence each."""
    num_table_runs: int | None = None
    """Runs of a table whose settings were tuned as the learning rate was; None: the summary has all runs."""

    def axes(self) -> pd.DataFrame:
        """Return what each cell is made of, as of `laws.laws`; the runs of a record have `content`."""
        cells = self.summary.cells
        return (
            of_labels(cells) if self.info.from_table else of_contents(cells, self.wanted, self.runs)
        )


def with_options(summary: StudySummary, info: StudyInfo) -> StudySummary:
    """Return the summary with what the study says of its learning rates, and how it wants its variants compared."""
    unit = 100 if info.metric.is_fraction else 1
    limit = (info.fresh and info.fresh.equal_within) or info.equal_within
    within = None if limit is None else limit / unit
    goals = (
        info.target
        if isinstance(info.target, dict)
        else dict.fromkeys(summary.cells["task"], info.target)
    )
    targets = {task: goal / unit for task, goal in goals.items() if goal is not None}
    tuned = replace(summary, search=info.search, refinement=info.refinement, winners=info.winners)
    return replace(tuned, equal_within=within, targets=targets)


def read_summary(results: Path, study: str, further_columns: Collection[str] = ()) -> Study:
    """Read a study and summarise its runs, with `further_columns` of `RUNS`; raises RecordError."""
    info, wanted = record.read_study(results, study), record.read_wanted(results, study)
    return summarised(results, info, wanted, stopped_of(results, study), further_columns)


def summarised(
    results: Path,
    info: StudyInfo,
    wanted: pd.DataFrame,
    stopped: StoppedRates,
    further_columns: Collection[str] = (),
) -> Study:
    """Summarise the runs of a study, rows of `WANTED`; raises RecordError."""
    runs = record.read_runs(results, wanted["run_id"], (*RUN_COLUMNS, *further_columns))
    curves = record.read_curves(results, wanted["run_id"], CURVE_COLUMNS)
    is_fresh = wanted["fresh"].fillna(False).astype(bool)
    chosen = with_stops(wanted[~is_fresh], stopped)
    summary = with_options(summarise(chosen, runs, curves, info.metric), info)
    if info.fresh is not None:
        summary = summary.on_fresh_seeds(
            info.fresh, _measured(wanted[is_fresh], runs, curves, summary)
        )
    return Study(info=info, wanted=wanted, runs=runs, curves=curves, summary=summary)


def _measured(
    wanted: pd.DataFrame, runs: pd.DataFrame, curves: pd.DataFrame, summary: StudySummary
) -> pd.DataFrame:
    """Return rows as of `StudySummary.runs` for fresh runs."""
    if wanted.empty:
        return summary.runs.head(0)
    return summarise(wanted, runs, curves, summary.metric).runs
