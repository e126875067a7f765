"""Settings beside the learning rate: tuned as it is, or a problem where they change with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.statistics.checks.finding import CheckFinding, Level, finding_of
from lr_sweep.analysis.statistics.selection.best import RATE, each_cell, rounded, tuples_in
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import rate_text

from .names import is_setting, listed, plain
from .runs import Runs

MOST_NAMED = 10
"""Variants whose chosen settings are named."""
CHECK = "settings"
"""The check's name in docs/checks.md."""
COMPARED = "compared"
"""Column of the variants, while each of their settings is a variant of its own."""


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
    chosen = tuples_in(cells[RATE].merge(best, on=RATE))
    said = [f"{variant} {rate_text(rate)} with {setting}" for *_, variant, rate, setting in chosen]
    more = f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    start = f"settings tuned as the learning rate, {num_settings} of them: the best by validation"
    return f"{start} at each rate is shown. Chosen: {'; '.join(said[:MOST_NAMED])}{more}"


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
            for name in settings
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
