"""Runs that are trained again: which are drawn, and how they compare with the claimed ones."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Sequence

import pandas as pd
from scipy.special import stdtr

from lr_sweep.analysis.record.read import read_curves, read_runs
from lr_sweep.analysis.statistics.comparisons.verdicts import ranked
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun

ALTERED = 0.2
"""Share of the runs for which the chance of finding an altered one is printed."""
ERROR = 0.01
"""One-sided error of the test of values that are not equal to the bit."""
UNCOMPARED = ["time_ms", "elapsed_s", "logged"]
"""Columns of curves that depend on the clock, or that no report reads."""
CONDITIONS = ("device", "engine", "versions", "code", "resumed")
"""Columns of runs on which rounding depends."""
Stratum = tuple[Sequence[str], int]
"""Runs, and how many of them are drawn, each with the same chance."""


def deciding_runs(summary: StudySummary) -> pd.DataFrame:
    """Return the runs that the verdict's first sentences compare: rows of `chosen_runs`, and `side`.

    `side` is 1 where the sentence gains from a better value, and -1 where it gains from a worse one.
    """
    rows = []
    for labels, best, leads, certain in ranked(summary):
        winners = best[:1]
        losers = tuple(lead.over for lead in leads)
        if certain:
            winners, losers, *_ = certain
        sides = dict.fromkeys(losers, -1) | dict.fromkeys(winners, 1)
        for name, side in sides.items():
            rows.append({**labels, "variant": name, "side": side})
    of_cells = pd.DataFrame(rows, columns=[*CELL, "side"])
    return summary.chosen_runs.merge(of_cells, on=CELL)


def strata(deciding: Collection[str], wanted: Collection[str], number: int) -> list[Stratum]:
    """Share out a number of draws of distinct runs: half of them, rounded up, are of runs that decide."""
    others = sorted({*wanted} - {*deciding})
    half = max(math.ceil(number / 2), number - len(others))
    num_deciding = min(len(deciding), half)
    num_others = min(len(others), number - num_deciding)
    return [(sorted(deciding), num_deciding), (others, num_others)]


def drawn(parts: Sequence[Stratum], seed: int) -> list[str]:
    """Draw runs of each stratum."""
    generator = random.Random(seed)
    return [run_id for part in parts for run_id in generator.sample(*part)]


def chance(parts: Sequence[Stratum]) -> float:
    """Return how likely a draw has an altered run, if `ALTERED` of each stratum were (hypergeometric)."""
    missed = 1.0
    for run_ids, num_drawn in parts:
        size = len(run_ids)
        unaltered = size - round(ALTERED * size)
        missed *= math.comb(unaltered, num_drawn) / math.comb(size, num_drawn)
    return 1 - missed


def differences_of(
    run: WantedRun, claimed: Results, again: Results
) -> Iterator[tuple[int, list[str]]]:
    """Compare the curves of a run in two results directories up to its step budget.

    Yields the first step at which these differ, and which of `CONDITIONS` do; nothing if they are equal
    to the bit. Raises UserError if the run failed in the second directory alone.
    """
    ids, places = [run.run_id], (claimed.root, again.root)
    before, now = (read_runs(place, ids).iloc[0] for place in places)
    if now["status"] == "failed" and before["status"] != "failed":
        raise UserError(f"run {run.run_id} failed here: {now['failure']}")

    last = run.num_steps
    if before["status"] == "stopped":  # by a rule of the study, or by its author
        last = min(last, before["num_steps"])
    curves = pd.concat([read_curves(place, ids) for place in places])
    compared = curves[curves["step"] <= last].drop(columns=UNCOMPARED)
    steps = compared.drop_duplicates(keep=False)["step"]
    if steps.empty:
        return

    conditions = [name for name in CONDITIONS if before[name] != now[name]]
    if not now["device"].startswith("cpu"):
        conditions.append("the order in which a GPU adds")
    yield int(steps.min()), conditions


def p_of_gain(claimed: StudySummary, again: StudySummary) -> float:
    """Return how likely further seeds would favour the verdict as much as claimed values do (Welch, one-sided).

    NaN: the noise between seeds is not known.

    A gain is a better value of a variant that the verdict puts first, and a worse one of a variant
    that it puts behind. Each run has the variance of its cell's claimed seeds. The variance of the
    mean gain has the degrees of freedom of the cell with the fewest seeds, a lower bound of Welch's.

    Args:
        claimed: of the claimed runs.
        again: of the same study, where only the runs of the second training have values.
    """
    runs = deciding_runs(claimed)
    seconds = pd.concat([again.runs, again.fresh_runs]).set_index("run_id")["test"]
    seeds = runs.groupby(CELL)["test"]
    runs["variance"] = seeds.transform("var")
    runs["dof"] = seeds.transform("count") - 1
    increase = runs["test"] - runs["run_id"].map(seconds)
    runs["gain"] = claimed.metric.sign * runs["side"] * increase
    rows = runs[runs["variance"] > 0].dropna(subset="gain")

    gain, variance, dof = rows["gain"].mean(), rows["variance"].mean(), rows["dof"].min()
    sem = (2 * variance / len(rows)) ** 0.5
    return float(stdtr(dof, -gain / sem))
