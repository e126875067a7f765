"""Conclusions that a comparison at one fixed learning rate would have given, beside the tuned conclusion.

The point of Rothermel et al. 2021 (sections 3 and 4): at 1e-3 the variants ranked in another order than at their own
best learning rates. The verdict, the chart's handle and the table of orders read one frame, that of `orders`. Test
accuracies are read here; nothing is chosen by them.

A higher mean at one of nine rates is no conclusion: of equal variants the one that is worse when tuned is ahead at some
rate in nearly every study. A flip is one where its lead at that rate can be distinguished from none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.families import shaffer
from lr_sweep.analysis.statistics.comparisons.noise import Ints, welch
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL, comparisons
from lr_sweep.analysis.statistics.comparisons.uncertainty import CONFIDENCE
from lr_sweep.analysis.statistics.selection.best import rounded
from lr_sweep.analysis.statistics.selection.grid_values import Sampled, cell_values, sampled
from lr_sweep.analysis.statistics.selection.summary import GROUP, OUTCOMES, StudySummary

Order = tuple[tuple[str, ...], ...]
"""Variants from best to worst; those in one inner tuple are equal."""
Kind = Literal["same", "order", "winner", "unknown"]
"""Conclusion at a learning rate: the tuned order, another order, another winner, or not comparable with the tuned."""


class Flip(NamedTuple):
    """A pair at a learning rate where the variant that is worse when tuned has a significant lead."""

    learning_rate: float
    better: str
    """When tuned."""
    worse: str
    difference: float
    """Mean of `worse` less that of `better` there, with its 95% interval."""
    low: float
    high: float


@lru_cache(maxsize=2)
def flips(summary: StudySummary) -> pd.DataFrame:
    """Test at every learning rate whether the variant that is worse when tuned is ahead.

    Tested are the pairs that are distinguishable when tuned, at all rates that both tried with two seeds or more: by
    Welch's t with the noise of the rate and of those beside it, one-sided, with Holm's correction over all of them.

    Returns:
        One row a task, model, distinguishable pair and learning rate: `better` and `worse` (tuned), `learning_rate`,
        `difference` (of `worse` less `better` there, fraction), `low` and `high` (its 95% interval, for this pair and
        rate alone), `num_seeds` (the fewer), `p` (one-sided, that `worse` is not the better one there; NaN: not
        tested), `flips` (whether that is refuted over the whole family).
    """
    compared = comparisons(summary)
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
    found = pd.concat(tested, ignore_index=True)
    return found.assign(flips=shaffer(found["p"].to_numpy(float), range(len(found))) < LEVEL)


def _turned(compared: pd.DataFrame, sign: int) -> pd.DataFrame:
    """Return the pairs as `better` and `worse`."""
    ahead = sign * compared["difference"] > 0
    names = ("variant", "other")
    better, worse = (compared[name].where(ahead, compared[other]) for name, other in (names, names[::-1]))
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


@lru_cache(maxsize=2)
def orders(summary: StudySummary) -> pd.DataFrame:
    """Order the variants by mean test accuracy, tuned and at every learning rate that was tried.

    Returns:
        One row a task, model and learning rate, rising, the tuned conclusion first:

        - `task`, `model`, `learning_rate` (NaN: tuned, each variant at its own);
        - `means`: mean test accuracy (fraction) by variant, of those with a value, best first;
        - `order`: an `Order` of these;
        - `incomplete`: for each variant with runs there that are not complete, how many have each other status, and
          `num_lacking`;
        - `kind`: a `Kind`;
        - `sure`: whether that is the tuned conclusion, or a flip is behind it: of the tuned winner, for another winner.
          A tuned winner whose runs all diverged there needs no test;
        - `flips`: the `Flip`s there.
    """
    keys, tested = [*GROUP, "learning_rate"], flips(summary)
    flipped = {key: flips_of(rows) for key, rows in tested[tested["flips"]].groupby(keys)}
    counted = [*OUTCOMES[1:], *(["num_lacking"] if summary.winners is None else [])]
    rows: list[dict[str, Any]] = []
    for labels, group in summary.groups():
        tuned = order_of(ranked_means(group.cells, summary.metric))
        at_rates = group.learning_rates.groupby("learning_rate")
        for rate, found in [(math.nan, group.cells), *((float(str(rate)), each) for rate, each in at_rates)]:
            means, incomplete = ranked_means(found, summary.metric), _incomplete(found[["variant", *counted]])
            order, turned = order_of(means), flipped.get((labels["task"], labels["model"], rate), ())
            kind = "same" if math.isnan(rate) else kind_of(order, tuned, incomplete)
            here = {"learning_rate": rate, "means": means, "order": order, "incomplete": incomplete, "kind": kind}
            rows.append(labels | here | {"sure": _is_sure(kind, order, tuned, turned), "flips": turned})
    return pd.DataFrame(rows)


def ranked_means(rows: pd.DataFrame, metric: Metric) -> dict[str, float]:
    """Return the mean test accuracy of each variant with a value, best first; equal ones in the study's order.

    Means are rounded, so that equal ones are equal.
    """
    means = zip(rows["variant"], rounded(rows["test_mean"].to_numpy(float)).tolist(), strict=True)
    known = {str(variant): mean for variant, mean in means if not math.isnan(mean)}
    return dict(sorted(known.items(), key=lambda item: -metric.sign * item[1]))


def order_of(means: Mapping[str, float]) -> Order:
    """Return the order of variants whose means are ranked, those of one mean by name."""
    return tuple(tuple(sorted(level)) for _, level in groupby(means, key=lambda variant: means[variant]))


def flips_of(rows: pd.DataFrame) -> tuple[Flip, ...]:
    """Read rows of `flips`."""
    return tuple(Flip(*row) for row in rows[list(Flip._fields)].itertuples(index=False, name=None))


def kind_of(order: Order, tuned: Order, incomplete: Mapping[str, Mapping[str, int]]) -> Kind:
    """Compare the conclusion at one learning rate with the tuned order; a variant without both values does not count.

    A tuned winner that diverged at this rate has lost there; one whose runs are missing or failed is not known to.
    """
    if not order or not tuned:
        return "unknown"
    here, there, winners = _among(order, tuned), _among(tuned, order), tuned[0]
    if not set(winners) & set(chain(*order)):
        lost = all(_only_diverged(incomplete.get(variant, {})) for variant in winners)
        return "winner" if lost else "unknown"
    if not set(here[0]) & set(winners):
        return "winner"
    return "same" if here == there else "order"


def _among(order: Order, other: Order) -> Order:
    """Return the order of the variants that another one has, too."""
    known = set(chain(*other))
    levels = (tuple(variant for variant in level if variant in known) for level in order)
    return tuple(filter(None, levels))


def _is_sure(kind: Kind, order: Order, tuned: Order, flips: Sequence[Flip]) -> bool:
    if kind == "winner":
        no_value = not set(tuned[0]) & set(chain(*order))
        return no_value or any(flip.better in tuned[0] for flip in flips)
    return kind != "order" or bool(flips)


def _only_diverged(counts: Mapping[str, int]) -> bool:
    return bool(counts.get("diverged")) and not any(number for name, number in counts.items() if name != "diverged")


def _incomplete(rows: pd.DataFrame) -> dict[str, dict[Any, int]]:
    counts = rows.set_index("variant").to_dict("index")
    return {str(variant): dict(found) for variant, found in counts.items() if any(found.values())}
