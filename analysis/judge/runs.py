"""The rows of a table as runs and their evaluations, in the frames that `statistics` reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.names import SPLITS, listed
from lr_sweep.analysis.judge.rows import decisive
from lr_sweep.analysis.judge.table_file import raise_mistakes
from lr_sweep.analysis.judge.text_rows import LOSS, beside, splits_in
from lr_sweep.analysis.record.columns import in_range
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary, summarise
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted

RATE = [*CELL, "learning_rate"]
"""The columns that name a learning rate of a cell."""
RUN = [*RATE, "seed"]
"""The columns that name a run."""
MOST_RATES = 2000
"""Learning rates in a table; a column of results has more."""
LEAST_EQUAL = 4
"""Different values of a run that are no chance if another run has them all."""
ADVICE = "name what tells the runs apart: --columns seed=..., run=... or variant=A+B"


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What a table has, as frames with the columns of the record of these names that `statistics` reads."""

    info: StudyInfo
    wanted: pd.DataFrame
    ended: pd.DataFrame
    curves: pd.DataFrame
    rows: pd.DataFrame
    """Those of the table, with their run ids."""
    remarks: Sequence[str] = ()
    """Sentences on what was read, assumed and lacking."""
    per_step: pd.Series[float] | None = None
    """As of `Study.per_step`."""

    def summary(self) -> StudySummary:
        """Summarise the runs by the metric of their table."""
        return summarise(self.wanted, self.ended, self.curves, self.info.metric)


def runs_of(rows: pd.DataFrame, info: StudyInfo, remarks: list[str]) -> Runs:
    """Group the rows of `rows_of` into runs; raises UserError for rows that contradict each other, with their lines."""
    if (number := rows["learning_rate"].nunique()) > MOST_RATES:
        most = f"want at most {MOST_RATES}: is its column that of a result?"
        raise UserError(f"learning_rate has {number:,} values, {most}")
    rows = rows.assign(status=rows.get("status", "complete"), step=rows.get("step", 0))
    rows = _with_seeds(_merged(_without_copies(rows, remarks)), remarks)
    rows = _without_aborted(rows, remarks)
    _refuse_conflicts(rows)
    by_run = rows.groupby(RUN, sort=False)
    rows["run_id"] = by_run["where"].transform("first") + by_run.ngroup().map(" run {}".format)
    rows = _with_single_tests(_until_diverged(rows, remarks), remarks)
    points = rows.dropna(subset=[decisive(rows)]).sort_values(["run_id", "step"], ignore_index=True)
    accuracies = {f"{split}_accuracy": points.get(split, math.nan) for split in SPLITS}
    curves = in_range(points[["run_id", "step"]].assign(**accuracies))
    if len(curves) and curves["test_accuracy"].isna().all():
        advice = "measure both at the same steps"
        raise UserError(f"test has no value in any row that has one of validation: {advice}")
    wanted, ended = _wanted_and_ended(rows)
    return Runs(info=info, wanted=wanted, ended=ended, curves=curves, rows=rows)


def _without_copies(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Leave out rows, or runs with whole curves, that equal an earlier one in all that was measured.

    Equal to the last bit they are one run that is there twice. Single values may be equal by chance.
    """
    said = [*RUN, "tuned", "step", "status", "diverged", *SPLITS, *beside(rows, LOSS)]
    measured = rows[[name for name in said if name in rows]]
    is_copy = measured.duplicated() if "seed" in rows else pd.Series(False, rows.index)
    if "run" in rows:
        prints = pd.util.hash_pandas_object(measured, index=False).groupby(rows["run"]).sum()
        values = rows.groupby("run")[decisive(rows)].nunique()
        again = prints.index[prints.duplicated() & (values >= LEAST_EQUAL)]
        is_copy |= rows["run"].isin(again)
    if is_copy.any():
        what = counted(int(is_copy.sum()), "row")
        remarks.append(
            f"left out: {what} equal to earlier ones to the last bit, which are no seeds"
        )
    return rows[~is_copy]


def _with_seeds(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Number the runs of a table without seeds: repeats without numbers have no seeds in common."""
    if "seed" in rows:
        return rows
    whose = rows["run"] if "run" in rows else rows.groupby([*RATE, "step"], sort=False).cumcount()
    runs = rows[RATE].assign(whose=whose)
    if not runs.drop_duplicates().duplicated(RATE).any():
        return rows.assign(seed=0)
    remarks.append("no column of seeds: repeats are numbered in their order, and share no seeds")
    return rows.assign(seed=runs.groupby([*RATE, "whose"], sort=False).ngroup())


def _without_aborted(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Leave out runs that ended early beside the one that was started again with their seed."""
    if "run" not in rows:
        return rows
    runs = rows.groupby([*RUN, "run"], sort=False, as_index=False)["status"].last()
    ended = runs["status"].isin(["complete", "diverged"])
    number = ended.groupby([runs[name] for name in RUN]).transform("sum")
    aborted = runs["run"][~ended & number.eq(1)]
    if len(aborted):
        remarks.append(f"left out, as they were started again: {listed(map(str, aborted))}")
    return rows[~rows["run"].isin(aborted)]


def _merged(rows: pd.DataFrame) -> pd.DataFrame:
    """Make one row of several of the same run and step that complete each other, as of training and of validation."""
    key = [name for name in (*RUN, "run", "step") if name in rows]
    several = rows.duplicated(key, keep=False)
    if not several.any():
        return rows
    groups = rows[several].groupby(key, sort=False)
    are_apart = groups[splits_in(rows)].count().le(1).all(axis=1)
    fits = are_apart & groups["status"].nunique().eq(1) & ~groups["diverged"].any()
    whole = groups.first()[fits].reset_index()
    rest = rows[several & ~pd.MultiIndex.from_frame(rows[key]).isin(fits.index[fits])]
    return pd.concat([rows[~several], whole, rest], ignore_index=True)[rows.columns]


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


def _until_diverged(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Leave out the values of a run from where it diverged on, also by a loss that is NaN from there to its end.

    Not by a loss that is so in most runs: it was not measured there.
    """
    total = rows["run_id"].nunique()
    for column in beside(rows, LOSS):
        known = rows[rows[decisive(rows)].notna() | np.isinf(rows[column])]
        finite_steps = known["step"].where(np.isfinite(known[column]))
        last = finite_steps.groupby(known["run_id"]).transform("max")
        lost = known[np.isinf(known[column]) & ~(known["step"] <= last)]
        number, name = lost["run_id"].nunique(), column.removeprefix(LOSS)
        if number > total / 2:
            remarks.append(f"{name} is NaN in {number} of {total} runs: no sign of divergence")
        elif number:
            rows.loc[lost.index, "diverged"] = True
            remarks.append(f"{number} runs diverged by {name}, which is NaN to their end")
    diverged_steps = rows["step"].where(rows["diverged"])
    first = diverged_steps.groupby(rows["run_id"], sort=False).transform("min")
    kept = {split: rows[split].mask(rows["step"] >= first) for split in splits_in(rows)}
    return rows.assign(**kept)


def _with_single_tests(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Let a run's only test value, measured once at its end, stand at all of its evaluations."""
    tests = rows.groupby("run_id", sort=False)["test"]
    lacking = rows[decisive(rows)].notna() & rows["test"].isna() & tests.transform("count").eq(1)
    if lacking.any():
        number = counted(rows.loc[lacking, "run_id"].nunique(), "run")
        remarks.append(f"the one test value of {number} counts as that of the best step")
    return rows.assign(test=rows["test"].mask(lacking, tests.transform("first")))


def _wanted_and_ended(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs with the steps that they were meant to be trained for, and how those ended that are not missing.

    These are the rows of `WANTED` and of `RUNS` that the report reads.
    """
    by_run, measured = rows.groupby("run_id", sort=False), decisive(rows)
    runs = by_run[RUN].first().assign(status=by_run["status"].last())
    is_complete = runs["status"].eq("complete")
    # A run that a rule stopped had an evaluation; one without was evicted, and says nothing of its rate.
    may_have_one = is_complete | runs["status"].eq("stopped")
    runs["status"] = runs["status"].mask(may_have_one & by_run[measured].count().eq(0), "missing")
    runs["status"] = runs["status"].mask(is_complete & by_run["diverged"].any(), "diverged")
    # Rows behind the last evaluation, as of a training loss, are no part of the run that a report shows.
    evaluated = rows[rows[measured].notna() | rows["diverged"]]
    last_steps = evaluated.groupby("run_id")["step"].max().reindex(runs.index)
    runs["num_steps"] = last_steps.fillna(by_run["step"].max()).astype("int64")
    # What a run that did not end was meant to be trained for is what others of its cell were.
    longest = runs.groupby(CELL)["num_steps"].transform("max")
    runs["num_steps"] = runs["num_steps"].where(runs["status"].eq("complete"), longest)
    stopped_at = runs["num_steps"].where(runs["status"].eq("stopped")).astype("Int64")
    nothing = {"pretrained_on": None, "data_origin": None}
    wanted = runs[[*RUN, "num_steps"]].assign(**nothing, stopped_at_step=stopped_at)
    first_steps = rows[rows["diverged"]].groupby("run_id")["step"].min().reindex(runs.index)
    diverged_at = first_steps.fillna(runs["num_steps"])
    steps = runs["num_steps"] - runs["status"].isin(["failed", "stopped"])  # these ended before
    ended = runs[["status"]].assign(
        num_steps=steps,
        diverged_at_step=diverged_at.where(runs["status"].eq("diverged")).astype("Int64"),
        failure=None,
    )
    return wanted.reset_index(), ended[ended["status"].ne("missing")].reset_index()
