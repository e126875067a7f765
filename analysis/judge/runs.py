"""The rows of a table as runs and their evaluations, in the frames that `statistics` reads.

Settings beside the learning rate are tuned as it is, or a problem where they change with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.columns import in_range
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, Level, finding_of
from lr_sweep.analysis.statistics.selection.best import CELL, RATE, each_cell, rounded
from lr_sweep.analysis.statistics.selection.summary import StudySummary, summarise
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

from .names import SPLITS, is_setting, listed, plain
from .rows import decisive, splits_in
from .table_file import raise_mistakes

RUN = [*RATE, "seed"]
"""The columns that name a run."""
MOST_RATES = 2000
"""Learning rates in a table; a column of results has more."""
MOST_NAMED = 10
"""Variants whose chosen settings are named."""
CHECK = "settings"
"""The check's name in docs/checks.md."""
COMPARED = "compared"
"""Column of the variants, while each of their settings is a variant of its own."""
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
    curves = in_range(points.reindex(columns=["run_id", "step", *SPLITS]))
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
    is_copy = rows.duplicated([*RUN, "step", "status", "diverged", "loss", *splits_in(rows)])
    if is_copy.any():
        what = counted(int(is_copy.sum()), "row")
        remarks.notes.append(
            f"left out: {what} equal to earlier ones to the last bit, which are no seeds"
        )
    return rows[~is_copy]


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


def _with_seeds(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Number the runs of a table without seeds: repeats without numbers have no seeds in common."""
    if "seed" in rows:
        return rows
    rates = rows.groupby(RATE, sort=False).ngroup()
    repeats = rows["run"] if "run" in rows else rows.groupby([rates, "step"]).cumcount()
    runs = rows.groupby([rates, repeats], sort=False).ngroup()
    if runs.nunique() == rates.nunique():
        return rows.assign(seed=0)
    remarks.notes.append(
        "no column of seeds: repeats are numbered in their order, and share no seeds"
    )
    return rows.assign(seed=runs)


def _refuse_conflicts(rows: pd.DataFrame) -> None:
    """Raise UserError for rows of one run and step with different values, and for two runs of one seed."""
    by_run = rows.groupby(RUN, sort=False)
    is_second = rows.duplicated([*RUN, "step"])
    if "run" in rows:
        is_second |= rows["run"].ne(by_run["run"].transform("first"))
    several = rows.assign(first=by_run["where"].transform("first"))[is_second]
    mistakes = []
    for _, run in several.drop_duplicates(RUN).iterrows():
        labels = ", ".join(f"{name} {run[name]}" for name in RUN)
        mistakes.append(f"{run['where']}: {run['first']} has the same {labels}: {ADVICE}")
    raise_mistakes(mistakes)


def _until_diverged(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Leave out the values of a run from where it diverged on."""
    last = rows.sort_values("step").groupby("run_id")["loss"].last()
    lost = last.index[np.isinf(last)]
    if 0 < len(lost) <= len(last) / 2:  # of most runs it was not measured
        rows["diverged"] |= rows["run_id"].isin(lost) & np.isinf(rows["loss"])
        remarks.notes.append(f"{len(lost)} runs diverged by their loss, which is NaN at their end")
    first = rows["step"].where(rows["diverged"]).groupby(rows["run_id"]).transform("min")
    splits = splits_in(rows)
    rows[splits] = rows[splits].mask(rows["step"] >= first)
    return rows


def _with_single_tests(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Let a run's only test value, measured once at its end, stand at all of its evaluations."""
    tests = rows.groupby("run_id", sort=False)["test"]
    is_single = tests.transform("count").eq(1)
    lacking = is_single & rows[decisive(rows)].notna() & rows["test"].isna()
    if lacking.any():
        runs = counted(rows["run_id"][lacking].nunique(), "run")
        remarks.notes.append(f"the one test value of {runs} counts as that of the best step")
    return rows.assign(test=rows["test"].mask(lacking, tests.transform("first")))


def _wanted_and_ended(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs with the steps that they were meant to be trained for, and how those ended that are not missing.

    These are the rows of `WANTED` and of `RUNS` that the report reads.
    """
    has_value = rows[decisive(rows)].notna()
    # Rows behind the last evaluation, as of a training loss, are no part of the run that a report shows.
    evaluated = rows["step"].where(has_value | rows["diverged"])
    diverged_at = rows["step"].where(rows["diverged"])
    by_run = rows.assign(has_value=has_value, evaluated=evaluated, diverged_at=diverged_at).groupby(
        "run_id", sort=False
    )
    runs = by_run[RUN].first()
    status = by_run["status"].last()
    ended = status.eq("complete")
    # A run that a rule stopped had an evaluation; one without was evicted, and says nothing of its rate.
    is_missing = (ended | status.eq("stopped")) & ~by_run["has_value"].any()
    status = status.mask(is_missing, "missing").mask(ended & by_run["diverged"].any(), "diverged")
    steps = by_run["evaluated"].max().fillna(by_run["step"].max()).astype("int64")
    # What a run that did not end was meant to be trained for is what others of its cell were.
    longest = steps.groupby([runs[name] for name in CELL]).transform("max")
    steps = steps.where(status.eq("complete"), longest)
    wanted = runs.assign(
        num_steps=steps,
        pretrained_on=None,
        data_origin=None,
        stopped_at_step=steps.where(status.eq("stopped")).astype("Int64"),
    )
    diverged_at = by_run["diverged_at"].min().fillna(steps).where(status.eq("diverged"))
    ended_runs = pd.DataFrame(
        {
            "status": status,
            "num_steps": steps - status.isin(["failed", "stopped"]),  # ended before
            "diverged_at_step": diverged_at.astype("Int64"),
            "failure": None,
        }
    )
    return wanted.reset_index(), ended_runs[status.ne("missing")].reset_index()


def with_tuned(rows: pd.DataFrame, *, may_select: bool) -> pd.DataFrame:
    """Let runs of different settings that are tuned be those of different variants until `best_settings`."""
    if "tuned" not in rows:
        return rows
    if not may_select:
        advice = "compare them, as in --columns variant=NAME, or give --select-on-test"
        raise UserError(
            f"tuned: settings are tuned on validation data, and there is none: {advice}"
        )
    number = rows.groupby(["variant", "tuned"], sort=False).ngroup().map(" ({})".format)
    apart = rows["variant"] + " with " + rows["tuned"] + number
    return rows.assign(variant=apart, **{COMPARED: rows["variant"]})


def best_settings(runs: Runs) -> tuple[Runs, int, pd.DataFrame]:
    """Keep at each learning rate of a variant the settings with the best mean over seeds by validation.

    Of settings without a value for each seed those with the most values are compared, as of learning rates. Returns the
    runs of the best settings, the number of settings tried, and the best `settings` by `RATE`.
    """
    summary = runs.summary()
    settings = runs.rows.drop_duplicates("variant").set_index("variant")[[COMPARED, "tuned"]]
    rates = _apart(summary.learning_rates, settings)
    rates["mean"] = summary.metric.sign * rounded(rates["validation_mean"].to_numpy(float))
    ordered = rates.sort_values(["num_values", "mean"], ascending=False, kind="stable")
    best = ordered.drop_duplicates(RATE)[[*RATE, "settings"]]
    kept = _apart(runs.wanted, settings).merge(best, on=[*RATE, "settings"])
    return replace(runs, wanted=kept.drop(columns="settings")), rates["settings"].nunique(), best


def tuned_remark(cells: pd.DataFrame, num_settings: int, best: pd.DataFrame) -> str:
    """Name the chosen settings; `num_settings`, `best`: from `best_settings`."""
    chosen = cells[RATE].merge(best, on=RATE)
    rates = chosen["variant"] + " " + chosen["learning_rate"].map(rate_text)
    said = listed(rates + " with " + chosen["settings"], MOST_NAMED)
    start = f"settings tuned as the learning rate, {num_settings} of them: the best by validation"
    return f"{start} at each rate is shown. Chosen: {said}"


def _apart(frame: pd.DataFrame, settings: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with its variants and their settings in two columns."""
    apart = frame["variant"]
    return frame.assign(
        variant=apart.map(settings[COMPARED]),
        settings=apart.map(settings["tuned"]),
    )


def settings_findings(runs: pd.DataFrame, settings: pd.DataFrame) -> Iterator[CheckFinding]:
    """Find settings without a meaning that differ between the learning rates of a variant.

    As where a search draws all settings at once: what is better may be due to any of them.
    """
    for cell, cell_runs in each_cell(runs):
        rates = cell_runs["learning_rate"].sort_values(kind="stable")
        moved = [
            name
            for name in map(str, settings)
            if not plain(name).endswith("step") and _moves(settings[name][rates.index], rates)
        ]
        if moved:
            text = f"its learning rates differ in {listed(moved)} as well"
            # What single runs differ in may be a result of theirs.
            is_sure = not rates.is_unique or is_setting(moved[0])
            level: Level = "problem" if is_sure else "note"
            advice = "vary the learning rate alone"
            yield finding_of(
                cell, CHECK, level, f"{text}: what is better may be due to any", advice
            )


def _moves(texts: pd.Series[str], rates: pd.Series[float]) -> bool:
    """Return whether a setting has one value at each learning rate, and neither follows the rate nor stays."""
    values = texts.groupby(rates).agg(["nunique", "first"])
    numbers = pd.to_numeric(values["first"], errors="coerce")
    follows = numbers.is_monotonic_increasing or numbers.is_monotonic_decreasing
    return bool(values["nunique"].le(1).all() and values["first"].nunique() > 1 and not follows)
