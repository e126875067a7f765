"""What fresh seeds have decided of a study, which cells need more of them, and how many more it may take.

The rates were chosen by other runs, so the means of fresh seeds are not optimistic. Test values are read here: they end
the comparison of two variants, and choose no rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.study import Deciding
from lr_sweep.analysis.statistics.comparisons.decide import (
    EQUAL,
    FIRST,
    FIRST_LOOK,
    SECOND,
    UNDECIDED,
    Decided,
    Pairs,
    Settings,
    judge_pairs,
    noise_of,
    num_failed,
)
from lr_sweep.analysis.statistics.comparisons.noise import Noise, at_chosen, num_known, padded
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, Floats, Ints, tuples_in
from lr_sweep.analysis.statistics.selection.summary import StudySummary

OUTCOMES = {FIRST: "ahead", SECOND: "behind", EQUAL: "equal", UNDECIDED: "undecided"}
"""What becomes of a pair's first variant, by the outcomes of `judge_pairs`."""
OPEN = "open"
"""Outcome of a pair that is undecided and may get more seeds."""
UNSEEN = 0.05
"""Probability that no run of a variant has failed yet, at the failure rate that is still possible."""
UNEQUAL_FROM = 1.5
"""Ratio of two standard deviations from which it is worth a warning."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The fresh seeds of a study's cells, and what they say of its pairs. Arrays are over `cells`, or over pairs."""

    cells: tuple[Cell, ...]
    """Those that are compared and have a chosen rate."""
    rates: tuple[float, ...]
    values: Floats
    """Cells x seeds, more is better; NaN after the last one."""
    num_used: Ints
    """Fresh seeds of each cell that have ended, with a value or without."""
    pairs: Pairs
    known: Noise
    """What the runs that chose the rates say of each cell's noise."""
    tuned: Floats
    """Values at the chosen rates of the runs that chose them, a little optimistic: cells x seeds, more is better."""
    settings: Settings
    metric: Metric
    is_choosing: bool = False
    """Whether runs that choose the rates are left to train, so that rates may change."""

    @cached_property
    def found(self) -> Decided:
        """State of each pair, by its values."""
        return judge_pairs(self.values, self.pairs, self.settings, self.known)

    @property
    def num_values(self) -> Ints:
        """Fresh seeds of each cell with a value."""
        return num_known(self.values)

    @property
    def num_failed(self) -> Ints:
        """Runs of each cell far below its others, among fresh ones and those that chose the rate."""
        return num_failed(np.concatenate([self.tuned, self.values], -1), self.metric.is_fraction)

    def failures(self) -> str:
        """Say how many runs failed, or how many may fail unseen, and what a comparison then means; empty: no run."""
        counts = num_known(self.tuned) + self.num_values
        if not (least := int(counts.min())):
            return ""
        if not self.num_failed.any():
            rest = f"a variant with {least} runs may still fail in up to {1 - UNSEEN ** (1 / least):.0%}"
            return f"no run is far below the others, but {rest}; a lead may be one of the runs that work"
        each = zip(self.cells, self.num_failed.tolist(), counts.tolist(), strict=True)
        rates = ", ".join(f"{cell[-1]} {failed} of {count}" for cell, failed, count in each)
        return f"runs far below the others: {rates}; a lead may be one of the runs that work"

    def unequal(self) -> str:
        """Say whose runs are much noisier than the least noisy ones; empty: none are, or it is not known."""
        deviations = np.sqrt(noise_of(self.values, self.known).variance)
        if not deviations.max() >= UNEQUAL_FROM * deviations.min() > 0:
            return ""
        ratio = deviations.max() / deviations.min()
        return f"the runs of the {self.cells[deviations.argmax()][-1]} are {ratio:.1f} times as noisy as the others"

    @property
    def left(self) -> Mapping[Cell, int]:
        """How many seeds each cell may still get; none for one whose pairs are settled."""
        left = self.settings.max_seeds - self.num_used
        wanted = {cell for pair in self._open() for cell in pair}
        return {cell: int(left[index]) for index, cell in enumerate(self.cells) if index in wanted}

    def next_seeds(self, num_looks: int = 1) -> Mapping[Cell, int]:
        """Return how many seeds each cell gets in the next round, which brings open pairs `num_looks` further looks.

        The cell of an undecided pair that has fewer values gets the next ones, both if they have as many; at first both
        get those of the first look.
        """
        counts, found = self.num_values, dict[Cell, int]()
        for pair in self._open():
            target = min(int(counts[list(pair)].min()) + num_looks, self._reachable(pair))
            for index in pair:
                if (lacking := target - int(counts[index])) > 0:
                    least = max(lacking, FIRST_LOOK - int(self.num_used[index]))
                    found[self.cells[index]] = max(least, found.get(self.cells[index], 0))
        return found

    @property
    def outcomes(self) -> list[str]:
        """Those of each pair: one of `OUTCOMES`, or `OPEN`."""
        open_ = set(self._open())
        return [
            OPEN if pair in open_ else OUTCOMES[int(outcome)]
            for pair, outcome in zip(self._pairs(), self.found.outcome, strict=True)
        ]

    def table(self) -> pd.DataFrame:
        """Return a row a pair.

        `task`, `model`, `variant`, `other`, `learning_rate`, `other_rate`; `outcome` (as of `outcomes`); `num_seeds`
        (of the deciding look, else of the last one), `num_fresh` and `num_other_fresh` (with a value), `num_lost` (of
        both, without one); `num_failed` and `num_other_failed` (those far below the others, with those that chose the
        rate); `difference`, `low`, `high` (95% for this pair alone, over all fresh seeds, of the metric itself).
        """
        first, second, found, counts = (
            self.pairs.first,
            self.pairs.second,
            self.found,
            self.num_values,
        )
        lost, rates = self.num_used - counts, np.array(self.rates)
        low, high = np.sort(self.metric.sign * np.array([found.low, found.high]), axis=0)
        frame = pd.DataFrame([self.cells[index] for index in first], columns=CELL)
        return frame.assign(
            other=[self.cells[index][2] for index in second],
            learning_rate=rates[first],
            other_rate=rates[second],
            outcome=self.outcomes,
            num_seeds=found.num_seeds,
            num_fresh=counts[first],
            num_other_fresh=counts[second],
            num_lost=lost[first] + lost[second],
            num_failed=self.num_failed[first],
            num_other_failed=self.num_failed[second],
            difference=self.metric.sign * found.difference,
            low=low,
            high=high,
        )

    def looks(self) -> pd.DataFrame:
        """Return a row a pair and number of seeds, from the first look on: what `table` said then."""
        found = [self.table().head(0)]
        for look in range(FIRST_LOOK, self.values.shape[-1] + 1):
            rows = replace(self, values=self.values[:, :look]).table().assign(num_seeds=look)
            found.append(rows[rows[["num_fresh", "num_other_fresh"]].min(axis=1) == look])
        return pd.concat(found, ignore_index=True)

    def progress(self) -> str:
        """Return `3 of 6 pairs decided, 11 runs to go at most`."""
        outcomes = self.outcomes
        decided = sum(each not in (OPEN, "undecided") for each in outcomes)
        given_up, left = outcomes.count("undecided"), sum(self.left.values())
        return (
            f"{decided} of {len(outcomes)} pairs decided"
            f"{f', {given_up} undecided after all its seeds' if given_up else ''}, "
            f"{left} run{'s' if left != 1 else ''} to go{' at most' if left else ''}"
        )

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.pairs.first.tolist(), self.pairs.second.tolist(), strict=True))

    def _open(self) -> list[tuple[int, int]]:
        counts, open_ = self.num_values, self.found.outcome == UNDECIDED
        pairs = [pair for pair, each in zip(self._pairs(), open_, strict=True) if each]
        return [pair for pair in pairs if self._reachable(pair) > counts[list(pair)].min()]

    def _reachable(self, pair: tuple[int, int]) -> int:
        """Return how many values both cells can have, as runs without a value use up seeds, too."""
        lost = self.num_used - self.num_values
        return self.settings.max_seeds - int(lost[list(pair)].max())


def decide(summary: StudySummary, fresh: pd.DataFrame, deciding: Deciding) -> Decision:
    """Compare variants on fresh seeds.

    Args:
        summary: of the runs that choose the rates, without fresh ones.
        fresh: rows as of `StudySummary.runs` of fresh runs, at any rate: those at the chosen rates count.
        deciding: pairs and limits.
    """
    metric, chosen = summary.metric, summary.cells["learning_rate"].notna().to_numpy()
    rows = summary.cells[chosen]
    cells = tuple(tuples_in(rows[CELL]))
    groups = [cell[:2] for cell in cells]
    named = Pairs.named(deciding.pairs_among(cells))
    pairs = Pairs.all_of(groups) if deciding.pairs == "all" else named
    sampled = at_chosen(summary)
    known = Noise(*(each[chosen] for each in sampled.noise))
    rates = tuple(rows["learning_rate"].tolist())
    used = [_ended(fresh, cell, rate) for cell, rate in zip(cells, rates, strict=True)]
    settings = Settings(
        min_difference=deciding.min_difference / metric.scale,
        max_seeds=deciding.max_seeds,
        error=deciding.error,
    )
    return Decision(
        cells=cells,
        rates=rates,
        values=padded([metric.sign * each[~np.isnan(each)] for each in used]),
        num_used=np.array([len(each) for each in used], int),
        pairs=pairs,
        known=known,
        tuned=metric.sign * sampled.values[chosen],
        settings=settings,
        metric=metric,
        is_choosing=bool(summary.runs["status"].eq("missing").any()),
    )


def _ended(fresh: pd.DataFrame, cell: Cell, rate: float) -> Floats:
    """Return the test values of a cell's ended fresh runs at a rate, in the order of their seeds; NaN: none."""
    here = np.logical_and.reduce(
        [fresh[name].eq(value).to_numpy() for name, value in zip(CELL, cell, strict=True)]
    )
    here &= fresh["learning_rate"].eq(rate).to_numpy() & fresh["status"].ne("missing").to_numpy()
    return fresh[here].sort_values("seed")["test_accuracy"].to_numpy(float)
