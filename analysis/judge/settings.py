"""Settings beside the learning rate: tuned as it is, or a problem where they change with it or with the seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from lr_sweep.analysis.judge.names import is_setting, listed, plain
from lr_sweep.analysis.judge.runs import RATE, Runs
from lr_sweep.analysis.judge.text_rows import SETTING, beside
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, Level, finding_of
from lr_sweep.analysis.statistics.selection.best import each_cell, labels_of, rounded, tuples_in
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import rate_text

MOST_NAMED = 10
"""Variants whose chosen settings are named."""
BESIDE = "\x1f"
"""Joins a variant and its settings while runs are read; it is in no name of a table."""


def with_tuned(rows: pd.DataFrame, *, may_select: bool) -> pd.DataFrame:
    """Let runs of different settings that are tuned be those of different variants until `best_settings`."""
    if "tuned" not in rows:
        return rows
    if not may_select:
        advice = "compare them, as in --columns variant=NAME, or give --select-on-test"
        raise UserError(
            f"tuned: settings are tuned on validation data, and there is none: {advice}"
        )
    return rows.assign(variant=rows["variant"] + BESIDE + rows["tuned"])


def best_settings(runs: Runs) -> tuple[Runs, int, pd.DataFrame]:
    """Keep at each learning rate of a variant the settings with the best mean over seeds by validation.

    Of settings without a value for each seed those with the most values are compared, as of learning rates. Returns the
    runs of the best settings, the number of settings tried, and the best `settings` by `RATE`.
    """
    summary = runs.summary()
    rates = _apart(summary.learning_rates)
    rates["mean"] = summary.metric.sign * rounded(rates["validation_mean"].to_numpy(float))
    ordered = rates.sort_values(["num_values", "mean"], ascending=False, kind="stable")
    best = ordered.drop_duplicates(RATE)[[*RATE, "settings"]]
    kept = _apart(runs.wanted).merge(best, on=[*RATE, "settings"])
    return replace(runs, wanted=kept.drop(columns="settings")), rates["settings"].nunique(), best


def tuned_remark(cells: pd.DataFrame, num_settings: int, best: pd.DataFrame) -> str:
    """Name the chosen settings; `num_settings`, `best`: from `best_settings`."""
    chosen = tuples_in(cells[RATE].merge(best, on=RATE))
    said = [f"{variant} {rate_text(rate)} with {setting}" for *_, variant, rate, setting in chosen]
    more = f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    start = f"settings tuned as the learning rate, {num_settings} of them: the best by validation"
    return f"{start} at each rate is shown. Chosen: {'; '.join(said[:MOST_NAMED])}{more}"


def _apart(frame: pd.DataFrame) -> pd.DataFrame:
    parts = frame["variant"].str.partition(BESIDE)
    return frame.assign(variant=parts[0], settings=parts[2])


def settings_findings(rows: pd.DataFrame) -> Iterator[CheckFinding]:
    """Find settings without a meaning that differ between the seeds of a learning rate, or between its rates.

    As where a search draws all settings at once: what is better may be due to any of them.
    """
    runs = rows.drop_duplicates("run_id").sort_values("learning_rate", kind="stable")
    for cell, of_cell in each_cell(runs) if beside(runs, SETTING) else ():
        labels = labels_of(cell)
        labels["variant"] = labels["variant"].partition(BESIDE)[0]
        by_rate = of_cell.groupby("learning_rate")
        settings = [name for name in beside(of_cell, SETTING) if not _is_result(name)]
        varied = [name for name in settings if _is_varied(by_rate[name].agg(frozenset))]
        moved = [name for name in settings if name not in varied and _moves(of_cell, name)]
        if varied:
            names = listed(name.removeprefix(SETTING) for name in varied)
            text = f"runs of one learning rate differ in {names} besides their seeds"
            advice = "judge a table for each value"
            yield finding_of(
                labels, "settings", "problem", f"{text}: the spread is not noise", advice
            )
        if moved and "tuned" not in rows:
            names = listed(name.removeprefix(SETTING) for name in moved)
            is_sure = any(is_setting(name.removeprefix(SETTING)) for name in moved)
            text = f"its learning rates differ in {names} as well: what is better may be due to any"
            is_sure = is_sure or not of_cell["learning_rate"].is_unique
            severity: Level = "problem" if is_sure else "note"
            yield finding_of(labels, "settings", severity, text, "vary the learning rate alone")


def _is_result(name: str) -> bool:
    """Return whether a name is of what a run reached, as `best_step`."""
    return plain(name.removeprefix(SETTING)).startswith("best_")


def _is_varied(values: pd.Series[Any]) -> bool:
    """Return whether several learning rates have the same several values; results have others at each."""
    several = values[values.map(len) > 1]
    return len(several) > 1 and several.value_counts().max() >= max(2, len(values) / 2)


def _moves(runs: pd.DataFrame, name: str) -> bool:
    """Return whether a setting has one value at each learning rate, and neither follows the rate nor stays."""
    values = runs.groupby("learning_rate")[name].agg(["nunique", "first"])
    if values["nunique"].gt(1).any() or values["first"].nunique() < 2:
        return False
    numbers = pd.to_numeric(values["first"], errors="coerce")
    follows = numbers.is_monotonic_increasing or numbers.is_monotonic_decreasing
    return bool(numbers.isna().any() or not follows)
