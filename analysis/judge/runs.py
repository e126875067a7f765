"""The rows of a table as runs and their evaluations, in the frames that `statistics` reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.columns import in_range
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.statistics.selection.best import CELL, RATE
from lr_sweep.analysis.statistics.selection.summary import StudySummary, summarise
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted

from .names import SPLITS
from .rows import HALF, decisive, splits_in
from .table_file import raise_mistakes

RUN = [*RATE, "seed"]
"""The columns that name a run."""
MOST_RATES = 2000
"""Learning rates in a table; a column of results has more."""
PARTS = 1000
"""Steps of the report for a step of a table whose steps have fractions."""
ADVICE = (
    "name what tells the runs apart, as by --columns seed=..., run=... or variant=A+B, "
    "or leave one out, as by --where STATE!=crashed"
)


@dataclass
class Remarks:
    """Sentences on how a table was read, by what they are about."""

    notes: list[str] = field(default_factory=list)
    left_out: Sequence[str] = ()
    """Variants without a learning rate, which the verdict names, too."""
    warnings: list[str] = field(default_factory=list)
    """Doubts about every result, which the terminal shows first."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What a table has, as frames with the columns of the record of these names that `statistics` reads."""

    info: StudyInfo
    wanted: pd.DataFrame
    ended: pd.DataFrame
    curves: pd.DataFrame
    rows: pd.DataFrame
    """Those of the table, with their run ids."""
    settings: pd.DataFrame
    """Texts of columns without a meaning, by the index of the rows."""
    remarks: Remarks

    def summary(self) -> StudySummary:
        """Summarise the runs by the metric of their table."""
        return summarise(self.wanted, self.ended, self.curves, self.info.metric)


def runs_of(rows: pd.DataFrame, settings: pd.DataFrame, info: StudyInfo, remarks: Remarks) -> Runs:
    """Group the rows of a table into runs; raises UserError for rows that contradict each other, with their lines."""
    if (number := rows["learning_rate"].nunique()) > MOST_RATES:
        most = f"want at most {MOST_RATES}: is its column that of a result?"
        raise UserError(f"learning_rate has {number:,} values, {most}")
    rows = _with_whole_steps(rows, remarks)
    rows = _merged(_without_copies(rows, remarks))
    rows = _with_seeds(rows, remarks)
    _refuse_conflicts(rows)
    by_run = rows.groupby(RUN, sort=False)
    rows["run_id"] = by_run["where"].transform("first") + by_run.ngroup().map(" run {}".format)
    rows = _until_diverged(rows, remarks)
    rows = _with_single_tests(rows, remarks)
    wanted, ended = _wanted_and_ended(rows)
    return Runs(
        info=info,
        wanted=wanted,
        ended=ended,
        curves=_curves(rows),
        rows=rows,
        settings=settings,
        remarks=remarks,
    )


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the evaluations of all runs; raises UserError if none has a value on test data, where others have."""
    points = rows.dropna(subset=[decisive(rows)]).sort_values(["run_id", "step"], ignore_index=True)
    values = {split: points.get(split, math.nan) for split in SPLITS}
    curves = points[["run_id", "step"]].assign(**values)
    curves = in_range(curves)
    if len(curves) and curves["test"].isna().all():
        advice = "measure both at the same steps"
        raise UserError(f"test has no value in any row that has one of validation: {advice}")
    return curves


def _with_whole_steps(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Count steps in thousandths of the table's own unit where they have fractions, as those of epochs may."""
    steps = rows["step"]
    if (steps % 1).any():
        steps = (PARTS * steps).round()
        remarks.notes.append(
            f"steps have fractions: in the report a step is 1/{PARTS} of the table's"
        )
    return rows.assign(step=steps.astype("int64"))


def _without_copies(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Leave out rows that equal an earlier one of their seed in all that was measured: one run that is there twice."""
    if "seed" not in rows:  # values of repeats may be equal by chance
        return rows
    columns = [*RUN, "step", "status", "diverged", "loss", *splits_in(rows)]
    is_copy = rows.duplicated(columns)
    if is_copy.any():
        what = counted(int(is_copy.sum()), "row")
        remarks.notes.append(
            f"left out: {what} equal to earlier ones to the last bit, which are no seeds"
        )
    return rows[~is_copy]


def _with_seeds(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Number the runs of a table without seeds: repeats without numbers have no seeds in common."""
    if "seed" in rows:
        return rows
    by_step = rows.groupby([*RATE, "step"], sort=False)
    runs = rows[RATE].assign(whose=rows["run"] if "run" in rows else by_step.cumcount())
    if not runs.drop_duplicates().duplicated(RATE).any():
        return rows.assign(seed=0)
    remarks.notes.append(
        "no column of seeds: repeats are numbered in their order, and share no seeds"
    )
    return rows.assign(seed=runs.groupby([*RATE, "whose"], sort=False).ngroup())


def _merged(rows: pd.DataFrame) -> pd.DataFrame:
    """Make one row of several of the same run and step that complete each other, as of training and of validation."""
    key = [name for name in [*RUN, "run", "step"] if name in rows]
    if not rows.duplicated(key).any():
        return rows
    groups = rows.groupby(key, sort=False)
    are_apart = groups[splits_in(rows)].transform("count").le(1).all(axis=1)
    is_alike = groups["status"].transform("nunique").eq(1)
    fits = are_apart & is_alike & ~groups["diverged"].transform("any")
    first = groups.transform("first").assign(**rows[key])
    return first.where(fits, rows)[~(fits & rows.duplicated(key))]


def _refuse_conflicts(rows: pd.DataFrame) -> None:
    """Raise UserError for rows of one run and step with different values, and for two runs of one seed."""
    several = rows[rows.duplicated([*RUN, "step"], keep="first")]
    if "run" in rows:
        firsts = rows.drop_duplicates([*RUN, "run"])
        several = pd.concat([several, firsts[firsts.duplicated(RUN)]])
    first = rows.drop_duplicates(RUN).set_index(RUN)["where"]
    mistakes = []
    for where, *key in several[["where", *RUN]].drop_duplicates().itertuples(index=False):
        labels = ", ".join(f"{name} {value}" for name, value in zip(RUN, key, strict=True))
        mistakes.append(f"{where}: {first[tuple(key)]} has the same {labels}: {ADVICE}")
    raise_mistakes(mistakes)


def _until_diverged(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Leave out the values of a run from where it diverged on."""
    last = rows.sort_values("step").groupby("run_id")["loss"].last()
    lost = last.index[np.isinf(last)]
    if 0 < len(lost) <= HALF * len(last):  # of most runs it was not measured
        rows["diverged"] |= rows["run_id"].isin(lost) & np.isinf(rows["loss"])
        remarks.notes.append(f"{len(lost)} runs diverged by their loss, which is NaN at their end")
    diverged_steps = rows["step"].where(rows["diverged"])
    first = diverged_steps.groupby(rows["run_id"]).transform("min")
    splits = splits_in(rows)
    rows[splits] = rows[splits].mask(rows["step"] >= first)
    return rows


def _with_single_tests(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Let a run's only test value, measured once at its end, stand at all of its evaluations."""
    tests = rows.groupby("run_id", sort=False)["test"]
    is_single = tests.transform("count").eq(1)
    lacking = is_single & rows[decisive(rows)].notna() & rows["test"].isna()
    number = rows["run_id"][lacking].nunique()
    if number:
        runs = counted(number, "run")
        remarks.notes.append(f"the one test value of {runs} counts as that of the best step")
    filled = rows["test"].mask(lacking, tests.transform("first"))
    return rows.assign(test=filled)


def _wanted_and_ended(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs with the steps that they were meant to be trained for, and how those ended that are not missing.

    These are the rows of `WANTED` and of `RUNS` that the report reads.
    """
    by_run = rows.groupby("run_id", sort=False)
    runs = by_run[RUN].first()
    runs["status"] = _statuses(rows)
    # Rows behind the last evaluation, as of a training loss, are no part of the run that a report shows.
    evaluated = rows[rows[decisive(rows)].notna() | rows["diverged"]]
    last_steps = evaluated.groupby("run_id")["step"].max().reindex(runs.index)
    runs["num_steps"] = last_steps.fillna(by_run["step"].max()).astype("int64")
    # What a run that did not end was meant to be trained for is what others of its cell were.
    longest = runs.groupby(CELL)["num_steps"].transform("max")
    runs["num_steps"] = runs["num_steps"].where(runs["status"].eq("complete"), longest)
    stopped_at = runs["num_steps"].where(runs["status"].eq("stopped"))
    wanted = runs[[*RUN, "num_steps"]].assign(
        pretrained_on=None,
        data_origin=None,
        stopped_at_step=stopped_at.astype("Int64"),
    )
    first_steps = rows[rows["diverged"]].groupby("run_id")["step"].min().reindex(runs.index)
    diverged_at = first_steps.fillna(runs["num_steps"]).where(runs["status"].eq("diverged"))
    ended = runs[["status"]].assign(
        num_steps=runs["num_steps"] - runs["status"].isin(["failed", "stopped"]),  # ended before
        diverged_at_step=diverged_at.astype("Int64"),
        failure=None,
    )
    return wanted.reset_index(), ended[ended["status"].ne("missing")].reset_index()


def _statuses(rows: pd.DataFrame) -> pd.Series[str]:
    """Return how each run ended.

    A run that a rule stopped had an evaluation; one without was evicted, and says nothing of its rate.
    """
    by_run = rows.groupby("run_id", sort=False)
    status = by_run["status"].last()
    is_complete = status.eq("complete")
    has_none = by_run[decisive(rows)].count().eq(0)
    status = status.mask((is_complete | status.eq("stopped")) & has_none, "missing")
    return status.mask(is_complete & by_run["diverged"].any(), "diverged")
