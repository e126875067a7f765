"""What the record says of a study: every wanted run accounted for, then means and standard errors over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.columns import STATUSES
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.study import (
    Fresh,
    Refinement,
    SearchRange,
)

from .best import (
    CELL,
    OUTCOMES,
    RATE,
    UPPER,
    best_learning_rates,
    best_steps,
    tuples_in,
    validated_rates,
)

RUN_COLUMNS = (
    "run_id",
    "status",
    "num_steps",
    "diverged_at_step",
    "failure",
    "last_printed",
)
"""The columns of `RUNS` that `account` reads; tables lack the last one."""
Result = TypeVar("Result")
GROUP = CELL[:2]
"""Task and model: variants are compared within such a group."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StudySummary:
    """A study's numbers at three levels: runs, learning rates and cells.

    Values are in the unit of the study's metric, accuracies as fractions. Standard errors are of the mean over seeds.
    """

    runs: pd.DataFrame
    """One row a wanted run: the columns of `WANTED`, `status`, `failure`, `best_step`, `validation`,
    `test`; the last three are empty where the run has no value."""
    learning_rates: pd.DataFrame
    """See `per_learning_rate`."""
    cells: pd.DataFrame
    """See `per_cell`."""
    metric: Metric = ACCURACY
    search: SearchRange | None = None
    """Where the learning rates were searched; None: they are a grid, a list or a table's."""
    refinement: Refinement | None = None
    """What is added to the grid; None: nothing."""
    winners: int | None = None
    """How many learning rates of a cell get all seeds; None: all."""
    equal_within: float | None = None
    """Two variants are equal if their means certainly differ by less (fraction); None: none are called equal."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """The validation values (fractions) that steps are counted to, by task; no others are counted."""
    fresh: Fresh | None = None
    """The fresh seeds that the numbers of cells rest on; None: the seeds that chose the rates."""
    fresh_runs: pd.DataFrame | None = None
    """Rows as of `runs`: those of fresh seeds, which chose nothing, at any learning rate."""
    computed: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)
    """Results of the functions that are `computed_once`, for this study."""

    @property
    def chosen_runs(self) -> pd.DataFrame:
        """The runs at their cell's chosen learning rate on which its numbers rest."""
        runs = self.runs if self.fresh_runs is None else self.fresh_runs
        return runs.merge(self.cells[RATE], on=RATE)

    def on_fresh_seeds(self, fresh: Fresh, runs: pd.DataFrame) -> StudySummary:
        """Rest the test values of each cell on fresh runs at its learning rate; rows as of `runs`."""
        summary = replace(self, fresh=fresh, fresh_runs=runs)
        return replace(
            summary,
            cells=_on_fresh_runs(self.cells, summary.chosen_runs),
        )

    def groups(self) -> Iterator[tuple[dict[str, str], StudySummary]]:
        """Yield each task and model, by column, with its part of the study."""
        for group in tuples_in(self.cells[GROUP].drop_duplicates()):
            labels = dict(zip(GROUP, group, strict=True))
            yield labels, self.of(**labels)

    def of(self, **labels: Any) -> StudySummary:
        """Return the part of one task, model or variant, for instance `of(model="gpt2")`."""
        frames: dict[str, Any] = {}
        for name, frame in vars(self).items():
            if isinstance(frame, pd.DataFrame):
                has_labels = frame[[*labels]].eq([*labels.values()]).all(axis=1)
                frames[name] = frame[has_labels]
        return replace(self, **frames)


def computed_once(
    compute: Callable[[StudySummary], Result],
) -> Callable[[StudySummary], Result]:
    """Keep what a function returns in `StudySummary.computed`, as several parts of a report need it."""

    @wraps(compute)
    def kept(summary: StudySummary) -> Result:
        if compute not in summary.computed:
            summary.computed[compute] = compute(summary)
        result: Result = summary.computed[compute]
        return result

    return kept


def summarise(
    wanted: pd.DataFrame,
    runs: pd.DataFrame,
    curves: pd.DataFrame,
    metric: Metric = ACCURACY,
) -> StudySummary:
    """Account for, select, then read the test accuracy of what was selected.

    `record.read` gives the frames; rows of `runs` and `curves` that are not wanted are ignored. Raises RecordError if a
    run counts as complete and its curve ends before the budget.
    """
    accounted = account(wanted, runs)
    if metric.chosen_on:
        measured, chosen = _with_selection(accounted, curves, metric)
    else:
        measured, chosen = _without_selection(accounted, curves)
    rates = per_learning_rate(measured)
    cells = per_cell(rates, chosen)
    if not metric.chosen_on:
        rates["num_values"] = rates["num_tests"]
        num_tests = rates.groupby(CELL, sort=False)["num_tests"].sum()
        cells["num_values"] = num_tests.to_numpy()
    return StudySummary(runs=measured, learning_rates=rates, cells=cells, metric=metric)


def _with_selection(
    accounted: pd.DataFrame, curves: pd.DataFrame, metric: Metric
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs with the values of their selected models, and the chosen learning rates."""
    _check_curves(accounted, curves)
    selected = per_run(
        accounted,
        curves[["run_id", "step", "validation"]],
        metric,
    )
    chosen = best_learning_rates(selected, metric)
    # Only here test data enters: the test accuracy of each run's selected model.
    test = curves[["run_id", "step", "test"]].rename(columns={"step": "best_step"})
    test = test.astype({"best_step": "Int64"})
    return selected.merge(test, on=["run_id", "best_step"], how="left"), chosen


def _without_selection(
    accounted: pd.DataFrame, curves: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs with the test values of their last evaluations; no learning rate is chosen by these."""
    no_step = pd.Series(pd.NA, accounted.index, dtype="Int64")
    runs = accounted.assign(best_step=no_step, validation=math.nan)
    chosen = best_learning_rates(runs)
    tests = curves.dropna(subset=["test"]).sort_values("step")
    last = tests.groupby("run_id")["test"].last()
    # As in `per_run`: what did not end is not compared at a smaller budget.
    has_ended = runs["status"].isin(["complete", "diverged"])
    values = last.reindex(runs["run_id"]).to_numpy()
    return runs.assign(test=np.where(has_ended, values, math.nan)), chosen


def account(wanted: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Find each wanted run's status at the study's own budget.

    Studies share runs, and a recorded status holds at the budget the run was trained to. Here a run is `complete` if
    it reached this study's budget, whatever happened to it later; `diverged` if it diverged before or at it; `failed`
    if it failed before it; `stopped` if the study's `stop_early` stopped it; `short` if it reached the budget and its
    command printed fewer evaluations than another run's of its cell; otherwise `missing`: never trained, unfinished,
    stopped by the user, or trained to a smaller budget.

    Args:
        wanted: columns of `WANTED`; with early stopping `stopped_at_step` (`record.study.with_stops`).
        runs: `RUN_COLUMNS`.

    Returns:
        `wanted` in its order, with the columns `status` (one of `OUTCOMES`) and `failure`.
    """
    is_repeated = wanted.duplicated([*CELL, "learning_rate", "seed"])
    assert not is_repeated.any(), "a study wants each run once"
    recorded = runs.reindex(columns=RUN_COLUMNS).set_index("run_id")
    recorded = recorded.reindex(wanted["run_id"]).set_axis(wanted.index)
    budget = wanted["num_steps"]
    diverged = recorded["status"].eq("diverged").fillna(False)
    failed = recorded["status"].eq("failed").fillna(False)
    diverged_in_budget = diverged & recorded["diverged_at_step"].fillna(0).le(budget)
    complete = recorded["num_steps"].fillna(-1).ge(budget) & ~diverged_in_budget
    stopped = wanted.reindex(columns=["stopped_at_step"])["stopped_at_step"].notna()
    printed = recorded["last_printed"].astype(float)
    most_printed = printed.groupby([wanted[name] for name in CELL]).transform("max")
    short = complete & printed.lt(most_printed)
    outcomes = [short, complete, diverged, failed, stopped]
    status = np.select(
        [flags.astype(bool) for flags in outcomes],
        ["short", *STATUSES],
        "missing",
    )
    accounted = wanted.drop(columns="stopped_at_step", errors="ignore")
    return accounted.assign(failure=recorded["failure"], status=status)


def per_run(
    accounted: pd.DataFrame,
    curves: pd.DataFrame,
    metric: Metric = ACCURACY,
) -> pd.DataFrame:
    """Add each run's best step within the study's budget, or its last, and the validation accuracy there.

    Complete runs count, and diverged ones with the best model they had before, if the best model of a run is measured.
    Failed, short and missing ones do not, whatever evaluations they have: they would be compared at a smaller budget.

    `curves` have no test columns.
    """
    outcomes = ["complete", "diverged"] if metric.model == "best" else ["complete"]
    counted = accounted[accounted["status"].isin(outcomes)]
    best = [best_steps(curves.head(0), metric).assign(num_steps=0)]
    for budget, rows in counted.groupby("num_steps"):  # one run may be wanted at several
        is_read = curves["run_id"].isin(rows["run_id"]) & curves["step"].le(budget)
        best.append(best_steps(curves[is_read], metric).assign(num_steps=budget))
    measured = pd.concat(best).astype({"best_step": "Int64"})
    return accounted.merge(measured, on=["run_id", "num_steps"], how="left")


def per_learning_rate(runs: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds.

    Returns:
        One row a cell and learning rate, in order of appearance and by learning rate: the columns of
        `validated_rates`; `num_tests` (seeds with a test value), `validation_sem`, `test_mean`, `test_sem` (NaN with
        fewer than two values), `num_lacking` (seeds of the cell without a run here, or whose complete run has no value)
        and `most_seeds` (of any cell).
    """
    has_value = runs[["validation", "test"]].notna().any(axis=1)
    lacks_value = runs["status"].eq("complete") & ~has_value
    by_rate = runs.assign(lacks_value=lacks_value).groupby(RATE, sort=False)
    numbers = by_rate.agg(
        num_tests=("test", "count"),
        validation_sem=("validation", "sem"),
        test_mean=("test", "mean"),
        test_sem=("test", "sem"),
        num_lacking=("lacks_value", "sum"),
    )
    rates = validated_rates(runs).join(numbers, on=RATE)
    rates["num_lacking"] += rates["num_seeds"] - rates["num_wanted"]
    rates["most_seeds"] = rates["num_seeds"].max()
    rates["cell"] = rates.groupby(CELL, sort=False).ngroup()
    ordered = rates.sort_values(["cell", "learning_rate"], ignore_index=True)
    return ordered.drop(columns="cell")


def per_cell(rates: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Report each cell at its learning rate in `chosen`, from `selection.best_learning_rates`.

    Returns:
        One row a cell: the columns of `chosen`; at the chosen learning rate `num_values`, `num_tests`, `num_diverged`
        (with a value or without), `validation_sem`, `test_mean` and `test_sem`; over the whole cell `num_wanted` runs,
        `num_lacking` and the number of each of `OUTCOMES`; `num_seeds` (of a cell without a chosen rate the most of any
        rate) and `most_seeds` as of `per_learning_rate`.
    """
    summed = ["num_wanted", "num_lacking", *OUTCOMES]
    by_cell = rates.groupby(CELL, sort=False)
    cells = chosen.merge(rates[[*RATE, "validation_sem"]], on=RATE, how="left")
    cells = _with_numbers_at_chosen(cells, rates)
    cells = cells.merge(by_cell[summed].sum().reset_index(), on=CELL)
    cells = cells.merge(rates[[*RATE, "num_seeds"]], on=RATE, how="left")
    most_seeds = by_cell["num_seeds"].max()
    most_of_cell = cells[CELL].join(most_seeds, on=CELL)["num_seeds"]
    cells["num_seeds"] = cells["num_seeds"].fillna(most_of_cell).astype("int64")
    return cells.assign(most_seeds=rates["num_seeds"].max())


def _with_numbers_at_chosen(cells: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """Add to cells the test numbers at their learning rates; `rates`: of `per_learning_rate`."""
    counts = ["num_values", "num_tests", "num_diverged"]
    numbers = rates.rename(columns={"diverged": "num_diverged"})
    numbers = numbers[[*RATE, *counts, "test_mean", "test_sem"]]
    cells = cells.merge(numbers, on=RATE, how="left")
    cells[counts] = cells[counts].fillna(0).astype("int64")
    return cells


def _on_fresh_runs(cells: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Replace the numbers of cells at the chosen rates by those of fresh runs there."""
    replaced = [
        "num_values",
        "num_tests",
        "num_diverged",
        "test_mean",
        "test_sem",
    ]
    rates = per_learning_rate(runs)
    fresh = _with_numbers_at_chosen(cells.drop(columns=replaced), rates)
    counts = rates[[*RATE, "num_wanted"]]
    num_runs = fresh[RATE].merge(counts, on=RATE, how="left")["num_wanted"]
    fresh["num_values"] = fresh["num_tests"]
    fresh["num_seeds"] = num_runs.fillna(0).astype("int64")
    fresh["most_seeds"] = num_runs.max()
    return fresh[list(cells)]


def with_interval(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `low` and `high` to cells: the t interval of their mean; NaN: of one seed.

    The choice of the learning rate is not in it.
    """
    dof = (cells["num_tests"] - 1).clip(lower=1)  # one value has no SEM in any case
    half = stdtrit(dof, UPPER) * cells["test_sem"]
    return cells.assign(low=cells["test_mean"] - half, high=cells["test_mean"] + half)


def points_within_budget(
    runs: pd.DataFrame, curves: pd.DataFrame, measured: list[str]
) -> pd.DataFrame:
    """Return the columns `measured` of some runs' evaluations up to the study's budget, by step within a run."""
    labelled = runs[["run_id", "num_steps", *CELL, "learning_rate", "seed"]]
    is_of_runs = curves["run_id"].isin(runs["run_id"])
    points = labelled.merge(curves.loc[is_of_runs, ["run_id", "step", *measured]], on="run_id")
    points = points[points["step"] <= points["num_steps"]]
    return points.sort_values(["learning_rate", "seed", "run_id", "step"], kind="stable")


def _check_curves(accounted: pd.DataFrame, curves: pd.DataFrame) -> None:
    complete = accounted[accounted["status"] == "complete"]
    last = curves.groupby("run_id")["step"].max().reindex(complete["run_id"], fill_value=-1)
    short = complete[last.to_numpy() < complete["num_steps"].to_numpy()]
    if len(short):
        run_id, budget = short[["run_id", "num_steps"]].iloc[0]
        raise RecordError(
            f"runs/{run_id}.parquet says that {budget} steps were trained, but curves/{run_id}.parquet ends before "
            f"or is missing ({len(short)} such runs): delete the files of both names and run the study again"
        )
