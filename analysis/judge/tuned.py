"""Settings that are tuned as the learning rate is: at each rate the best by validation, counted in the intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from lr_sweep.analysis.judge.runs import Runs
from lr_sweep.analysis.judge.settings import RATE
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.selection.best import rounded
from lr_sweep.analysis.statistics.selection.summary import summarise
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import rate_text

BESIDE = "\x1f"
"""Between a variant and its settings while runs are read; in no name of a table."""
MOST_NAMED = 10
"""Variants of which the chosen settings are said."""


class Tuned(NamedTuple):
    """Runs of the best settings at each learning rate."""

    runs: Runs
    candidates: pd.DataFrame
    """All runs, as of `StudySummary.runs`, with a column `settings`: intervals choose among rates and settings."""
    settings: dict[tuple[str, str, str, float], str]
    """The best settings by cell and learning rate."""
    num_settings: int


def with_nuisance(rows: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Let runs of different settings that are tuned be those of different variants until `best_settings`.

    Raises UserError if nothing chooses among them.
    """
    if "nuisance" not in rows:
        return rows
    if not metric.chosen_on:
        raise UserError(
            "nuisance: settings are tuned on validation data, and the table has none: compare them, as in "
            "--columns variant=NAME, or give --select-on-test"
        )
    return rows.assign(variant=rows["variant"] + BESIDE + rows["nuisance"])


def best_settings(runs: Runs, metric: Metric) -> Tuned:
    """Keep at each learning rate of a variant the settings with the best mean over seeds by validation.

    Of settings without a value for each seed those with the most values are compared, as of learning rates.
    """
    summary = summarise(runs.wanted, runs.ended, runs.curves, metric)
    rates = _apart(summary.learning_rates)
    rates["mean"] = metric.sign * rounded(rates["validation_mean"].to_numpy(float))
    ordered = rates.sort_values(["num_values", "mean"], ascending=False, kind="stable")
    best = ordered.drop_duplicates(RATE)[[*RATE, "settings"]]
    wanted = _apart(runs.wanted)
    kept = wanted.merge(best, on=[*RATE, "settings"])
    findings = dict.fromkeys(replace(each, variant=each.variant.split(BESIDE)[0]) for each in runs.findings)
    found = replace(runs, wanted=kept.drop(columns="settings"), findings=tuple(findings))
    settings = {tuple(row[:4]): row[4] for row in best.itertuples(index=False, name=None)}
    return Tuned(found, _apart(summary.runs), settings, rates["settings"].nunique())


def tuned_remarks(tuned: Tuned, cells: pd.DataFrame) -> list[str]:
    """Say which settings were chosen, and that intervals count it."""
    chosen = cells[RATE].itertuples(index=False, name=None)
    said = [f"{key[2]} {rate_text(key[3])} with {tuned.settings[key]}" for key in chosen if key in tuned.settings]
    more = f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    return [
        f"settings tuned as the learning rate, {tuned.num_settings} of them: at each rate the best by validation is "
        f"shown; intervals count the choice. Chosen: {'; '.join(said[:MOST_NAMED])}{more}"
    ]


def _apart(frame: pd.DataFrame) -> pd.DataFrame:
    parts = frame["variant"].str.partition(BESIDE)
    return frame.assign(variant=parts[0], settings=parts[2])
