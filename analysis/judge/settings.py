"""Columns that are not read and differ between runs of one learning rate: settings that would be taken for seeds."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from lr_sweep.analysis.judge.columns import is_setting, listed
from lr_sweep.analysis.judge.rows import UNREAD
from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.common.errors import UserError

RATE = [*CELL, "learning_rate"]


def refuse_settings(runs: pd.DataFrame) -> None:
    """Make sure that runs without seeds are repeats of each other; raises UserError if a setting differs."""
    if names := _settings(runs):
        raise UserError(
            f"runs of one learning rate differ in {listed(names)}, and no column of seeds says which are repeats: "
            "settings would be taken for seeds, and their spread for noise. To compare the values of one give "
            f"--columns variant={names[0]}; for the others judge a table for each value. If a column numbers repeats, "
            "give --columns seed=NAME. If it is a result, leave it out of the table"
        )


def differing(rows: pd.DataFrame) -> dict[tuple[str, str, str], list[str]]:
    """Find the settings that differ between the seeds of a learning rate, by cell; not what a seed decides."""
    runs = rows.drop_duplicates("run_id")
    names = [name for name in _settings(runs) if runs.groupby("seed")[UNREAD + name].nunique().gt(1).any()]
    found: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        numbers = runs.groupby(RATE, sort=False)[UNREAD + name].nunique()
        for task, model, variant in dict.fromkeys(key[:3] for key in numbers[numbers > 1].index):
            found.setdefault((task, model, variant), []).append(name)
    return found


def _settings(runs: pd.DataFrame) -> list[str]:
    names = [str(name).removeprefix(UNREAD) for name in runs if str(name).startswith(UNREAD)]
    return [name for name in names if _is_varied(name, runs)]


def _is_varied(name: str, runs: pd.DataFrame) -> bool:
    """Return whether a column was varied on purpose: it has the same few values at most learning rates.

    Results, such as times, have others at each.
    """
    column = UNREAD + name
    pairs = runs[[*RATE, column]].drop_duplicates().dropna()
    rates = pairs.groupby(RATE, sort=False)[column]
    if is_setting(name) or rates.size().le(1).all():
        return bool(rates.size().gt(1).any())
    number = rates.ngroups
    if number == 1:
        return bool(len(pairs) <= len(runs) / 2)
    common = Counter(map(frozenset, rates.agg(list)[rates.size() > 1])).most_common(1)
    return common[0][1] >= max(2, number / 2)
