"""The rows of a table as runs and their evaluations, in the frames that `statistics` reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.columns import Columns
from lr_sweep.analysis.judge.fields import RATE_DIGITS
from lr_sweep.analysis.judge.names import SPLITS, listed
from lr_sweep.analysis.judge.rows import LOSS, UNREAD, beside, decisive, splits_in
from lr_sweep.analysis.judge.table_file import MOST_MISTAKES, raise_mistakes
from lr_sweep.analysis.record.columns import in_range
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary, summarise
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

RATE = [*CELL, "learning_rate"]  # the columns that name a learning rate of a cell
RUN = [*RATE, "seed"]  # the columns that name a run
LEAST_STEPS = 3  # from which on a learning rate that changes with the step is seen
MOST_RATES = 2000  # learning rates in a table: results, which differ in each row, have more
MOST_PAIRS = 20_000  # of variants: their tests take seconds, and their file has megabytes
REPEATED = "remove one, give each run a seed of its own, or name what differs: --columns variant=..., run=..."
LEAST_EQUAL = 4  # different values of one run that are no chance if another run has them all


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What a table has, as frames with the columns of the record of these names that `statistics` reads."""

    info: StudyInfo
    wanted: pd.DataFrame
    ended: pd.DataFrame
    curves: pd.DataFrame
    rows: (
        pd.DataFrame
    )  # those of the table with their run ids and settings, for `settings_findings`
    remarks: Sequence[str] = ()  # what was read, assumed and lacking, a sentence each
    per_step: pd.Series[float] | None = None  # as of `Study.per_step`

    def summary(self) -> StudySummary:
        """Summarise the runs by the metric of their table."""
        return summarise(self.wanted, self.ended, self.curves, self.info.metric)


def runs_of(rows: pd.DataFrame, info: StudyInfo, remarks: list[str]) -> Runs:
    """Group the rows of `rows_of` into runs; what is assumed comes behind the remarks.

    Raises UserError for rows that contradict each other, each with its line, and where no row with validation has test.
    """
    if (number := rows["learning_rate"].nunique()) > MOST_RATES:
        most = f"want at most {MOST_RATES}: is its column that of a result?"
        raise UserError(f"learning_rate has {number:,} values, {most}")
    sizes = rows[CELL].drop_duplicates().groupby(GROUP).size()
    if (number := sum(math.comb(size, 2) for size in sizes)) > MOST_PAIRS:
        most = f"want at most {MOST_PAIRS:,}, as of 200 variants of a task: keep the rows of fewer with --where"
        raise UserError(f"the variants make {number:,} pairs to compare, {most}")
    rows = _with_seeds(_without_repeats(_with_restarts(rows, remarks), remarks), remarks)
    _check_runs(rows)
    rows = _merged(
        rows.assign(
            status=rows.get("status", "complete"), step=rows.get("step", rows.get("num_steps", 0))
        )
    )
    _refuse_unlike(rows, [*RUN, "step"], beside(rows, UNREAD), REPEATED)
    by_run = rows.groupby(RUN, sort=False)
    first = by_run["where"].transform("first")
    is_unique = first.nunique() == by_run.ngroups
    rows["run_id"] = first if is_unique else first + " run " + by_run.ngroup().astype(str)
    rows = _with_single_tests(_until_diverged(rows, remarks), remarks)
    wanted, ended = _wanted_and_ended(rows)
    points = rows.dropna(subset=[decisive(rows)]).sort_values(["run_id", "step"], ignore_index=True)
    remarks += _late_remarks(points)
    accuracies = {f"{split}_accuracy": points.get(split, math.nan) for split in SPLITS}
    curves = in_range(points[["run_id", "step"]].assign(**accuracies))
    if len(curves) and curves["test_accuracy"].isna().all():
        raise UserError(
            "test has no value in any row that has one of validation: measure both at the same steps"
        )
    return Runs(info=info, wanted=wanted, ended=ended, curves=curves, rows=rows)


def _late_remarks(points: pd.DataFrame) -> Iterator[str]:
    """Name the runs that begin later than most of their task, by more than their usual number of steps between rows."""
    by_run = points.groupby("run_id")
    first, gap = by_run["step"].min(), by_run["step"].diff().groupby(points["run_id"]).median()
    usual = first.groupby(by_run["task"].first()).transform("median")
    late = first[first - usual > gap]
    if len(late):
        steps = (
            f"the first is of step {late.iloc[0]}, that of most runs of {usual[late.index[0]]:g}"
        )
        runs = f"{counted(len(late), 'run')} ({', '.join(late.index[:MOST_MISTAKES])})"
        yield f"NO FIRST ROWS of {runs}: {steps}. Were rows lost before a resume?"


def without_own_seeds(rows: pd.DataFrame, columns: Columns, remarks: list[str]) -> pd.DataFrame:
    """Take seeds for run ids where each run of a variant with several learning rates has another: none is a repeat."""
    key = "run" if "run" in rows else RUN if "step" in rows else None
    runs = rows.drop_duplicates(key) if key and "seed" in rows else rows
    several = rows.groupby(CELL)["learning_rate"].nunique().gt(1).any()
    if (
        "seed" not in rows
        or "seed" in columns.given
        or not several
        or runs.duplicated([*CELL, "seed"]).any()
    ):
        return rows
    del columns.of["seed"]
    remarks.append("each run of a variant has a seed of its own: seeds are read as run ids")
    if "step" in rows and "run" not in rows:
        rows = rows.assign(run=rows.groupby([*CELL, "seed"], sort=False).ngroup().astype(str))
    return rows.drop(columns="seed")


def _with_restarts(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Read steps that begin again at a learning rate as those of another run, in a table without seeds and run ids."""
    if {"run", "seed"} & {*rows} or "step" not in rows:
        return rows
    steps = rows.groupby(RATE, sort=False)["step"]
    again = steps.diff().lt(0)
    if not again.any() or rows["step"][again].ne(steps.transform("min")[again]).any():
        return rows
    remarks.append(
        "no column of seeds or run ids: where the steps of a rate begin again, a run does"
    )
    rows = rows.assign(run=again.groupby([rows[name] for name in RATE]).cumsum())
    return rows.assign(run=rows.groupby([*RATE, "run"], sort=False).ngroup().astype(str))


def _without_repeats(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Leave out runs that equal an earlier one of their cell, learning rate and seed in all that was measured.

    Equal to the last bit they are one run that is there twice, and no seeds. Without a column of seeds a single value
    may be equal by chance, as an accuracy on few examples: then runs are the same where every repeat has an equal, or
    where whole curves agree.
    """
    is_curve = (
        "run" not in rows and "step" in rows
    )  # a row is then an evaluation of the one run of its rate and seed
    whose = rows.get("run", pd.Series(rows.index, rows.index))
    values = rows[[*splits_in(rows), *beside(rows, LOSS)]]
    measured = rows[
        [*values, *rows.columns.intersection(["step", "num_steps", "status", "diverged"])]
    ]
    prints = pd.util.hash_pandas_object(measured, index=False).groupby(whose).transform("sum")
    key = [name for name in (*RATE, "seed") if name in rows]
    runs: pd.DataFrame = (
        rows[key].assign(print=prints, whose=whose).drop_duplicates("whose").set_index("whose")
    )
    again = runs.duplicated()
    if "seed" not in rows and not is_curve:
        different = values.set_axis(whose).stack().groupby(level=0).nunique()
        number = different.reindex(runs.index, fill_value=0).to_numpy(int)
        repeated = runs.duplicated(RATE, keep=False) & (number > 0)
        again &= (number >= LEAST_EQUAL) | bool(
            repeated.any() and runs.duplicated(keep=False)[repeated].all()
        )
    if not again.any():
        return rows
    what = counted(int(again.sum()), "row" if is_curve else "run")
    advice = (
        "" if "seed" in rows else "; if these are seeds, name their column: --columns seed=NAME"
    )
    remarks.append(
        f"left out: {what} equal to an earlier one to the last bit: a repeat is no further seed{advice}"
    )
    return rows[~whose.isin(set(runs.index[again.to_numpy()]))]


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
    # Rows behind the last evaluation, as of a training loss, are no part of the run that a report can show.
    last = (
        rows[rows[measured].notna() | rows["diverged"]]
        .groupby("run_id")["step"]
        .max()
        .reindex(runs.index)
    )
    runs["num_steps"] = last.fillna(by_run["step"].max()).astype("int64")
    # What a run that did not end was meant to be trained for is what others of its cell were.
    meant = runs.groupby(CELL)["num_steps"].transform("max")
    runs["num_steps"] = runs["num_steps"].where(runs["status"].eq("complete"), meant)
    stopped_at = runs["num_steps"].where(runs["status"].eq("stopped")).astype("Int64")
    wanted = runs[[*RUN, "num_steps"]].assign(
        pretrained_on=None, data_origin=None, stopped_at_step=stopped_at
    )
    first = (
        rows[rows["diverged"]]
        .groupby("run_id")["step"]
        .min()
        .reindex(runs.index)
        .fillna(runs["num_steps"])
    )
    diverged_at = first.where(runs["status"].eq("diverged")).astype("Int64")
    steps = runs["num_steps"] - runs["status"].isin(["failed", "stopped"])  # these ended before
    ended = runs[["status"]].assign(num_steps=steps, diverged_at_step=diverged_at, failure=None)
    return wanted.reset_index(), ended[ended["status"].ne("missing")].reset_index()


def with_one_rate(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Read learning rates as one that differ by one in their last digit, as 0.0009765625 and 0.000976563 do."""
    rates = rows["learning_rate"].drop_duplicates().sort_values()
    last_digit = 10 ** (np.floor(np.log10(rates)) - (RATE_DIGITS - 1))
    first = rates.mask(
        rates.diff() <= 1.01 * last_digit.shift()
    ).ffill()  # of a difference that is not exact
    merged = [
        f"{rate_text(rate)} as {rate_text(one)}"
        for rate, one in zip(rates, first, strict=True)
        if rate != one
    ]
    if merged:
        remarks.append(f"learning rates that differ in their sixth digit are one: {listed(merged)}")
    return rows.assign(
        learning_rate=rows["learning_rate"].map(dict(zip(rates, first, strict=True)))
    )


def refuse_schedules(rows: pd.DataFrame, columns: Columns) -> None:
    """Make sure that the column of learning rates is that of configured ones; raises UserError if it changes by step.

    As that of a schedule does: then runs of one rate have a single step each, and the rates of the steps differ.
    """
    name = columns.of.get("learning_rate")
    if not name or "step" not in rows or "run" in rows:
        return
    key = [name for name in (*CELL, "nuisance", "seed") if name in rows]
    of_rate = rows.groupby([*key, "learning_rate"], sort=False)["step"].nunique()
    if (
        of_rate.median() == 1
        and rows.groupby(key, sort=False)["step"].nunique().max() >= LEAST_STEPS
    ):
        advice = "of the rate that runs were started with, --columns learning_rate=NAME, or the run's id, run=NAME"
        raise UserError(
            f"{name} changes with the step: it is the rate of a schedule. Give the column {advice}"
        )


def _merged(rows: pd.DataFrame) -> pd.DataFrame:
    """Make one row of several of the same run and step that complete each other, as of training and of validation."""
    key = [*RUN, "step"]
    several = rows.duplicated(key, keep=False)
    if not several.any():
        return rows
    groups = rows[several].groupby(key, sort=False)
    are_apart = groups[splits_in(rows)].count().le(1).all(axis=1)
    complete = are_apart & groups["status"].nunique().eq(1) & ~groups["diverged"].any()
    rest = rows[several & ~pd.MultiIndex.from_frame(rows[key]).isin(complete.index[complete])]
    return pd.concat(
        [rows[~several], groups.first()[complete].reset_index(), rest], ignore_index=True
    )[rows.columns]


def _until_diverged(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Leave out the values of a run from where it diverged on, also by a loss beside its metric that is NaN to its end.

    Not by a loss that is so in most runs: it was not measured there.
    """
    total = rows["run_id"].nunique()
    for column in beside(rows, LOSS):
        known = rows[rows[decisive(rows)].notna() | np.isinf(rows[column])]
        last = (
            known["step"]
            .where(np.isfinite(known[column]))
            .groupby(known["run_id"])
            .transform("max")
        )
        behind = known[np.isinf(known[column]) & ~(known["step"] <= last)]
        number, name = behind["run_id"].nunique(), column.removeprefix(LOSS)
        if number > total / 2:
            remarks.append(
                f"{name} is NaN at the end of {number} of {total} runs: not read as a sign of divergence"
            )
        elif number:
            rows.loc[behind.index, "diverged"] = True
            remarks.append(f"{number} runs diverged by {name}, which is NaN to their end")
    first = (
        rows["step"].where(rows["diverged"]).groupby(rows["run_id"], sort=False).transform("min")
    )
    return rows.assign(
        **{split: rows[split].mask(rows["step"] >= first) for split in splits_in(rows)}
    )


def _with_seeds(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Number the runs of each cell and learning rate if the table has no seeds."""
    if "seed" in rows:
        return rows
    by_rate = rows.groupby(RATE, sort=False)
    if "run" in rows:
        seeds = by_rate["run"].transform(lambda runs: pd.factorize(runs)[0]).astype(int)
        said = "no column of seeds: runs are numbered in their order"
    elif "step" in rows:
        seeds, said = (
            pd.Series(0, rows.index),
            "no column of seeds or run ids: every cell and learning rate is one run",
        )
    else:
        said = "no column of seeds: rows of a cell and learning rate are numbered in their order, as seeds"
        seeds = by_rate.cumcount()
    remarks.append(said)
    return rows.assign(seed=seeds)


def _check_runs(rows: pd.DataFrame) -> None:
    """Raise UserError for a run of two rates or seeds, and for two runs of one."""
    if "run" in rows:
        firsts, started = (
            rows.drop_duplicates(["run", *RUN]),
            "give the column of the value it was started with",
        )
        advice = f"a run has one; {started}, or columns that tell runs apart: --columns run=A+B"
        _refuse_unlike(firsts, ["run"], RUN, advice)
        _refuse_unlike(firsts, RUN, ["run", *beside(firsts, UNREAD)], REPEATED)


def _refuse_unlike(rows: pd.DataFrame, key: list[str], names: Sequence[str], advice: str) -> None:
    """Raise UserError for rows that are alike in a key: in which of other columns they differ."""
    mistakes = []
    for _, found in rows[rows.duplicated(key, keep=False)].groupby(key, sort=False):
        one, *others = found.to_dict("records")
        labels = ", ".join(f"{name} {one[name]}" for name in key)
        for other in others:
            differ = [
                f"{name.removeprefix(UNREAD)} ({other[name]})"
                for name in names
                if one[name] != other[name]
            ]
            but = f", but another {listed(differ)}" if differ else ""
            mistakes.append(f"{other['where']}: has the {labels} of {one['where']}{but}: {advice}")
    raise_mistakes(mistakes)


def _with_single_tests(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Let a run's only test value, measured once at its end, stand at all of its evaluations."""
    tests = rows.groupby("run_id", sort=False)["test"]
    lacking = rows[decisive(rows)].notna() & rows["test"].isna() & tests.transform("count").eq(1)
    if lacking.any():
        number = counted(rows.loc[lacking, "run_id"].nunique(), "run")
        remarks.append(f"the one test value of {number} counts as that of the best step")
    return rows.assign(test=rows["test"].mask(lacking, tests.transform("first")))
