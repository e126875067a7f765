"""Which runs of a bundle are trained again: half of them are drawn from those that decide the verdict."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from lr_sweep.analysis.statistics.comparisons.verdicts import verdicts
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary

ALTERED = 0.2
"""Share of the runs for which the chance of finding an altered one is printed."""


class Stratum(NamedTuple):
    """Runs of which some are drawn, each with the same chance."""

    run_ids: Sequence[str]
    num_drawn: int


def sides(summary: StudySummary) -> pd.DataFrame:
    """Return the variants that the verdict's first sentences name: `CELL` and `side`.

    `side` is 1 where the sentence gains from a better value, and -1 where it gains from a worse one.
    """
    rows = []
    for row in verdicts(summary).to_dict("records"):
        settled = [lead.over for lead in row["leads"] if lead.distinguishable or lead.equal]
        others = settled[:1] or [lead.over for lead in row["leads"]]
        winners, losers = row["certain"][:2] if row["certain"] else (row["best"][:1], others)
        of_side = [*((name, 1) for name in winners), *((name, -1) for name in losers)]
        rows += [(row["task"], row["model"], name, side) for name, side in of_side]
    return pd.DataFrame(rows, columns=[*CELL, "side"])


def deciding_runs(summary: StudySummary) -> list[str]:
    """Return the runs whose values the verdict's first sentences compare, in the summary's order."""
    return list(summary.chosen_runs.merge(sides(summary)[CELL], on=CELL)["run_id"])


def strata(deciding: Sequence[str], wanted: Sequence[str], number: int) -> list[Stratum]:
    """Share out a number of draws: half of them, rounded up, are of runs that decide; all are of distinct runs."""
    others = sorted(set(wanted) - set(deciding))
    number = min(number, len(deciding) + len(others))
    half = max(math.ceil(number / 2), number - len(others))
    num_deciding = min(len(deciding), half)
    return [Stratum(sorted(deciding), num_deciding), Stratum(others, number - num_deciding)]


def drawn(parts: Sequence[Stratum], seed: int) -> list[str]:
    """Draw runs of each stratum."""
    generator = random.Random(seed)
    return [run_id for part in parts for run_id in generator.sample(part.run_ids, part.num_drawn)]


def chance(parts: Sequence[Stratum], share: float = ALTERED) -> float:
    """Return how likely a draw has an altered run, if so many of each stratum were altered (hypergeometric)."""
    return 1 - math.prod(_missed(part, round(share * len(part.run_ids))) for part in parts)


def _missed(part: Stratum, num_altered: int) -> float:
    size = len(part.run_ids)
    return math.comb(size - num_altered, part.num_drawn) / math.comb(size, part.num_drawn)
