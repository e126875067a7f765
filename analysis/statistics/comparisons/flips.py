"""Where a comparison at one learning rate would have concluded the opposite of the tuned one, tested.

A higher mean at one of nine rates is no conclusion: of equal variants the one that is worse when tuned is ahead at some
rate in nearly every study. A flip is one where its lead at that rate can be distinguished from none.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.families import shaffer
from lr_sweep.analysis.statistics.comparisons.noise import Ints, welch
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL
from lr_sweep.analysis.statistics.comparisons.uncertainty import CONFIDENCE
from lr_sweep.analysis.statistics.selection.grid_values import Sampled, cell_values, sampled
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary

NAMES = ("variant", "other")
COLUMNS = ["better", "worse", "learning_rate", "difference", "low", "high", "num_seeds", "p"]


def flips(summary: StudySummary, compared: pd.DataFrame) -> pd.DataFrame:
    """Test at every learning rate whether the variant that is worse when tuned is ahead.

    Tested are the pairs that are distinguishable when tuned, at all rates that both tried with two seeds or more: by
    Welch's t with the noise of the rate and of those beside it, one-sided, with Holm's correction over all of them.

    Args:
        summary: of the study.
        compared: the result of `comparisons.comparisons` of it.

    Returns:
        One row a task, model, distinguishable pair and learning rate: `better` and `worse` (tuned), `learning_rate`,
        `difference` (of `worse` less `better` there, fraction), `low` and `high` (its 95% interval, for this pair and
        rate alone), `num_seeds` (the fewer), `p` (one-sided, that `worse` is not the better one there; NaN: not
        tested), `flips` (whether that is refuted over the whole family).
    """
    pairs = _turned(compared[compared["distinguishable"]], summary.metric.sign)
    cells, values = summary.cells, cell_values(summary)
    keys = cells[[*GROUP, "variant"]].itertuples(index=False, name=None)
    at = {key: index for index, key in enumerate(keys)}
    ones, others = (
        np.array([at[key] for key in pairs[[*GROUP, name]].itertuples(index=False, name=None)], int)
        for name in ("worse", "better")
    )
    rates = sorted({float(rate) for cell in values for rate in cell.rates})
    tested = [_at(rate, sampled(values, [rate] * len(values)), pairs, ones, others, summary.metric) for rate in rates]
    found = pd.concat(tested, ignore_index=True) if tested else pairs.reindex(columns=[*GROUP, *COLUMNS])
    return found.assign(flips=shaffer(found["p"].to_numpy(float), range(len(found))) < LEVEL)


def _turned(compared: pd.DataFrame, sign: int) -> pd.DataFrame:
    """Return the pairs as `better` and `worse`."""
    ahead = sign * compared["difference"] > 0
    better, worse = (compared[name].where(ahead, compared[other]) for name, other in (NAMES, NAMES[::-1]))
    return compared[GROUP].assign(better=better, worse=worse)


def _at(rate: float, here: Sampled, pairs: pd.DataFrame, ones: Ints, others: Ints, metric: Metric) -> pd.DataFrame:
    """Test the pairs of which both have a value at a rate."""
    counts = np.minimum(here.counts[ones], here.counts[others]).astype(int)
    difference = here.means[ones] - here.means[others]
    with np.errstate(invalid="ignore", divide="ignore"):
        sem, dof = welch(here.noise, here.counts, ones, others)
        p = stdtr(dof, -metric.sign * difference / sem)
    half = stdtrit(dof, (1 + CONFIDENCE) / 2) * sem
    ends = {"difference": difference, "low": difference - half, "high": difference + half}
    return pairs.assign(learning_rate=rate, **ends, num_seeds=counts, p=p)[counts > 0]
