"""The order of the variants when tuned, and what each learning rate alone would have shown.

A higher mean at one of nine rates is no conclusion: of equal variants, the one that is worse when
tuned is ahead at some rate in nearly every study. So every pair is tested at every rate, with one
error rate for all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Literal

import numpy as np
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.selection.best import CELL, comparable
from lr_sweep.analysis.statistics.selection.summary import (
    OUTCOMES,
    StudySummary,
    computed_once,
)

from .correction import compared_pairs, levels_of
from .noise import cell_values, sampled
from .pair_tests import PairTests, at_once
from .pairs import numbers_of

Order = tuple[tuple[str, ...], ...]
"""Variants from best to worst; those in one inner tuple are equal."""
MOST_ROWS = 100_000
"""Rows of `comparisons_at_rates`: about 15 MB as CSV."""
Kind = Literal["same", "order", "winner", "unknown"]
"""Conclusion at a learning rate: the tuned order, another order, another winner, or not comparable."""
Differences = Mapping[tuple[str, str], float]
"""Significant differences at a learning rate, of each pair in both directions."""


@computed_once
def comparisons_at_rates(summary: StudySummary) -> pd.DataFrame:
    """Compare variants (`compared_pairs`) at every learning rate that both tried, by their own seeds.

    Returns:
        One row a pair and learning rate: `task`, `model`, `variant`, `other`, `learning_rate`,
        `num_seeds` (the fewer), and as of `comparisons` `difference` to `distinguishable`, corrected
        over all pairs and rates of the study; at most `MOST_ROWS`, those with the smallest p.
    """
    cells = summary.cells
    values = cell_values(summary)
    pairs = compared_pairs(cells, summary.metric.sign)
    first, second, num_untested = pairs
    variants = cells["variant"].to_numpy()
    names = cells.iloc[first][CELL].assign(other=variants[second])
    rates = sorted({float(rate) for cell in values for rate in cell.rates})
    tests = []
    for rate in rates:
        at_rate = sampled(values, [rate] * len(values))
        tests.append(at_once(at_rate, pairs, None))
    tested = PairTests(*map(np.concatenate, zip(*tests, strict=True)))
    tested = tested._replace(level=levels_of(tested.p, num_untested * len(rates)))
    frame = pd.concat([names] * len(rates), ignore_index=True).assign(
        learning_rate=np.repeat(rates, len(names)),
        num_seeds=tested.num_seeds,
        **numbers_of(tested),
    )
    frame = frame[frame["num_seeds"] > 0]
    if len(frame) > MOST_ROWS:
        frame = frame.nsmallest(MOST_ROWS, "p").sort_index()
    return frame.reset_index(drop=True)


@computed_once
def orders(summary: StudySummary) -> pd.DataFrame:
    """Order the variants by mean test value, tuned and at every learning rate that was tried.

    Returns:
        One row a task, model and learning rate, rising, the tuned conclusion first:

        - `task`, `model`, `learning_rate` (NaN: tuned, each variant at its own);
        - `means`: mean test value by variant, of those with a value, best first;
        - `order`: an `Order` of these;
        - `incomplete`: for each variant with runs there that are not complete, how many have each
          other status, and `num_lacking`;
        - `kind`: a `Kind`;
        - `sure`: whether that is the tuned conclusion, or a significant lead is behind it. A tuned
          winner whose runs all diverged there needs no test;
        - `significant`: the differences of the pairs that differ significantly there, both ways.
    """
    metric = summary.metric
    significant = _significant(comparisons_at_rates(summary))
    counted = list(OUTCOMES[1:])
    if summary.winners is None:
        counted.append("num_lacking")
    rows: list[dict[str, Any]] = []
    for labels, group in summary.groups():
        cells: list[Row] = list(group.cells.to_dict("records"))
        tuned = order_of(ranked_means(cells, metric))
        for rate, cells_at_rate in {math.nan: cells, **_cells_by_rate(group)}.items():
            means = ranked_means(cells_at_rate, metric)
            incomplete = _incomplete(cells_at_rate, counted)
            order = order_of(means)
            pairs = significant.get((*labels.values(), rate), {})
            kind = "same" if math.isnan(rate) else kind_of(order, tuned, incomplete)
            sure = _is_sure(kind, order, tuned, pairs, metric.sign)
            conclusion = {
                "learning_rate": rate,
                "means": means,
                "order": order,
                "kind": kind,
                "incomplete": incomplete,
                "sure": sure,
                "significant": pairs,
            }
            rows.append(labels | conclusion)
    return pd.DataFrame(rows)


def _cells_by_rate(group: StudySummary) -> dict[float, list[Row]]:
    """Return the cells of a task and model at each learning rate, rates rising: a frame a rate would take longer."""
    cells = defaultdict[float, list[Row]](list)
    for row in group.learning_rates.to_dict("records"):
        cells[row["learning_rate"]].append(row)
    return dict(sorted(cells.items()))


def _significant(
    tested: pd.DataFrame,
) -> Mapping[tuple[Any, ...], Differences]:
    """Return the significant differences by task, model and learning rate."""
    by_rate = defaultdict[tuple[Any, ...], dict[tuple[str, str], float]](dict)
    for row in tested[tested["distinguishable"]].to_dict("records"):
        at_rate = by_rate[row["task"], row["model"], row["learning_rate"]]
        pair = row["variant"], row["other"]
        at_rate[pair] = row["difference"]
        at_rate[pair[::-1]] = -row["difference"]
    return by_rate


def ranked_means(cells: Iterable[Row], metric: Metric) -> dict[str, float]:
    """Return the mean test value of each variant with one, best first; equal ones in the study's order.

    Means are rounded, so that equal ones are equal.
    """
    means = {row["variant"]: comparable(row["test_mean"]) for row in cells}
    known = {variant: mean for variant, mean in means.items() if not math.isnan(mean)}
    return dict(sorted(known.items(), key=lambda item: -metric.sign * item[1]))


def order_of(means: Mapping[str, float]) -> Order:
    """Return the order of variants whose means are ranked, those of one mean by name."""
    levels = groupby(means, key=lambda variant: means[variant])
    return tuple(tuple(sorted(level)) for _, level in levels)


def kind_of(
    order: Order,
    tuned: Order,
    incomplete: Mapping[str, Mapping[str, int]],
) -> Kind:
    """Compare the conclusion at one learning rate with the tuned order.

    A variant without both values does not count. A tuned winner that diverged at this rate has lost
    there; of one whose runs are missing or failed that is not known.
    """
    if not order or not tuned:
        return "unknown"
    here = _among(order, tuned)
    there = _among(tuned, order)
    winners = tuned[0]
    if not set(winners) & set(chain(*order)):
        lost = all(_only_diverged(incomplete.get(variant, {})) for variant in winners)
        return "winner" if lost else "unknown"
    if not set(here[0]) & set(winners):
        return "winner"
    return "same" if here == there else "order"


def _among(order: Order, other: Order) -> Order:
    """Return the order of the variants that another order has, too."""
    known = set(chain(*other))
    levels = (tuple(variant for variant in level if variant in known) for level in order)
    return tuple(filter(None, levels))


def _is_sure(
    kind: Kind,
    order: Order,
    tuned: Order,
    significant: Differences,
    sign: int,
) -> bool:
    """Return whether a conclusion is the tuned one, or rests on a significant lead at the rate."""
    if kind in ("same", "unknown"):
        return True
    place = {variant: level for level, variants in enumerate(tuned) for variant in variants}
    reversed_pairs = [
        (better, worse)
        for (better, worse), difference in significant.items()
        if sign * difference > 0 and place.get(better, -1) > place.get(worse, len(place))
    ]
    if kind == "order":
        return bool(reversed_pairs)
    winner_has_value = set(tuned[0]) & set(chain(*order))
    return not winner_has_value or any(worse in tuned[0] for _, worse in reversed_pairs)


def _only_diverged(counts: Mapping[str, int]) -> bool:
    num_diverged = counts.get("diverged", 0)
    return 0 < num_diverged == sum(counts.values())


def _incomplete(cells: Iterable[Row], counted: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = {row["variant"]: {name: row[name] for name in counted} for row in cells}
    return {variant: numbers for variant, numbers in counts.items() if any(numbers.values())}
