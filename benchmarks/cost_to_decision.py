"""The cost of conclusions: `python -m benchmarks.cost_to_decision`.

Prints the run-steps of policies, and their right and false conclusions, on studies of known truth.
Of the synthetic ones four variants have nine rates around a peak anywhere between the third and the
seventh, and noise of one standard deviation. The recorded ones are drawn anew around the means of
the reports' runs (docs/results), with the deviations over seeds that these have. A run's validation
and test value are one. A conclusion on a pair is that it differs, or that it is equal within
`Truth.within`; it is right if that is true of the variants' best rates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.comparisons.correction import Pairs, pairs_within
from lr_sweep.analysis.statistics.selection.best import Bools, Floats, Ints
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.benchmarks.shared import options, percent, print_table
from lr_sweep.benchmarks.simulated_studies import (
    RESULTS,
    Runs,
    exceeds_cost,
    leaders,
    report_runs,
    seeds_used,
    tested,
)

NUM_RATES, REFERENCE_SEEDS = 9, 5
BEND = 1.0
"""A rate one step from the peak is worse by this, two steps by four times as much."""
RUNG = 1 / 9
"""Share of its steps that a stopped run trains: the first rung of `stop_early`."""
BEST_RATES = {
    "all equal": (0.0, 0.0, 0.0, 0.0),
    "one 2 sd ahead": (2.0, 0.0, 0.0, 0.0),
    "one 5 sd ahead": (5.0, 0.0, 0.0, 0.0),
    "each 3 sd ahead of the next": (9.0, 6.0, 3.0, 0.0),
    "each 10 sd ahead of the next": (30.0, 20.0, 10.0, 0.0),
}
"""Means of the variants at their best rates."""
UNDECIDED, FIRST, SECOND, EQUAL = 0, 1, -1, 2
"""Conclusions on a pair: none, either variant leads, or the two are equal."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The variants of a study."""

    means: Floats
    """Variants x rates."""
    deviations: Floats
    """Standard deviations of a run, variants x rates."""
    within: float
    """Variants that differ by less are equal."""

    @classmethod
    def drawn(cls, best: Floats, rng: np.random.Generator) -> Truth:
        """Draw where the peaks are; `best`: means there."""
        peaks = rng.integers(2, NUM_RATES - 2, len(best))
        means = best[:, None] - BEND * (np.arange(NUM_RATES) - peaks[:, None]) ** 2.0
        return cls(means=means, deviations=np.ones_like(means), within=1.5)

    def runs(self, seeds: int, rng: np.random.Generator) -> Floats:
        """Train every variant at every rate: variants x rates x seeds."""
        noise = rng.standard_normal((*self.means.shape, seeds))
        return self.means[..., None] + self.deviations[..., None] * noise

    def pairs(self) -> Pairs:
        """Return the pairs of variants."""
        return Pairs(*pairs_within(["study"] * len(self.means)))

    def is_false(self, outcome: Ints) -> Bools:
        """Return which conclusions contradict the means at the best rates, one a pair."""
        first, second, _ = self.pairs()
        difference = self.means.max(-1)[first] - self.means.max(-1)[second]
        differs = (outcome == FIRST) | (outcome == SECOND)
        is_wrong = differs & (np.sign(difference) != outcome)
        return is_wrong | ((outcome == EQUAL) & (np.abs(difference) >= self.within))


def recorded(runs: pd.DataFrame) -> Iterator[Truth]:
    """Read the truth of each task and model of a report's runs: what its seeds show, within 1 point.

    A variant without a value at a rate, as where all runs diverged, has the worst mean. A rate of
    one seed has the median noise of its variant.
    """
    for _, rows in runs.groupby(GROUP, sort=False):
        by_rate = rows.groupby(["variant", "learning_rate"])["test"].agg(["mean", "std"])
        means, deviations = (by_rate[name].unstack() for name in ("mean", "std"))
        if min(means.shape) > 1:
            deviations = deviations.apply(lambda row: row.fillna(row.median()), axis=1)
            yield Truth(
                means=means.fillna(means.min().min()).to_numpy(float),
                deviations=deviations.to_numpy(float),
                within=0.01,
            )


class Concluded(NamedTuple):
    """Cost of a policy in whole runs, and its conclusion on each pair."""

    num_runs: float
    outcome: Ints


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A way to train a study."""

    seeds: int
    winners: int | None = None
    """Rates of each variant that get all seeds, the best by the first; None: all."""
    stops: bool = False
    """Whether first runs below the median of a variant's rates stop at a rung, as by `stop_early`."""
    fresh: int = 0
    """Fresh seeds at the chosen rates, or the most of them; 0: none."""
    until_decided: bool = False

    def train(self, truth: Truth, rng: np.random.Generator) -> tuple[Floats, float]:
        """Return runs, variants x rates x seeds, NaN: no value; and what they cost, in whole runs."""
        runs = truth.runs(self.seeds, rng)
        first = runs[..., :1]
        is_stopped = self.stops & (first < np.median(first, axis=1, keepdims=True))
        ranks = (-first).argsort(1).argsort(1)
        is_winner = ranks < (self.winners or NUM_RATES**2)
        is_trained = np.where(np.arange(self.seeds) > 0, is_winner, True)
        cost = is_trained.sum() - (1 - RUNG) * is_stopped.sum()
        return np.where(is_trained & ~is_stopped, runs, np.nan), float(cost)

    def conclude(self, truth: Truth, rng: np.random.Generator) -> Concluded:
        """Train a study, and compare its variants as a report does."""
        runs, cost = self.train(truth, rng)
        pairs, choosing = truth.pairs(), Runs(runs[None], runs[None])
        further = truth.runs(self.fresh, rng)[None]
        fresh = Runs(further, further).at(choosing.chosen)
        tests = tested(choosing, fresh, pairs, truth.within, until_decided=self.until_decided)
        leader = leaders(tests)
        if self.fresh:
            used = seeds_used(tests, pairs, len(truth.means))
            leader = leader * exceeds_cost(choosing, fresh.first(used), pairs)
            cost += float(used.sum())
        (outcome,) = np.where(tests.is_equal & (leader == 0), EQUAL, leader)
        return Concluded(cost, outcome)


CHEAP = {"seeds": 2, "winners": 2, "stops": True}
POLICIES = {
    "grid, 3 seeds": Policy(seeds=3),
    "grid, 5 seeds": Policy(seeds=REFERENCE_SEEDS),
    "grid, 10 seeds": Policy(seeds=10),
    "winners 3 of 5 seeds, stop_early": Policy(seeds=5, winners=3, stops=True),
    "grid, 2 seeds, then 5 fresh": Policy(seeds=2, fresh=5),
    "winners 2 of 2 seeds, stop_early, then 4 fresh": Policy(**CHEAP, fresh=4),
    "winners 2 of 2 seeds, stop_early, then 5 fresh": Policy(**CHEAP, fresh=5),
    "winners 2 of 2 seeds, stop_early, then 7 fresh": Policy(**CHEAP, fresh=7),
    "winners 2 of 2 seeds, stop_early, then 4 to 20 fresh": Policy(
        **CHEAP, fresh=20, until_decided=True
    ),
}


def score(truth: Truth, concluded: Concluded) -> dict[str, float]:
    """Return the cost as a share of a grid of 5 seeds, right pairs, and whether a pair is false."""
    is_false = truth.is_false(concluded.outcome)
    return {
        "runs": concluded.num_runs / (REFERENCE_SEEDS * truth.means.size),
        "right": float(((concluded.outcome != UNDECIDED) & ~is_false).mean()),
        "false": float(is_false.any()),
    }


def studies(number: int, rng: np.random.Generator) -> Iterator[tuple[str, str, Truth]]:
    """Yield kind, name and truth: synthetic ones of many truths, and recorded ones, a fifth as often."""
    for name, best in BEST_RATES.items():
        for _ in range(number):
            yield "synthetic", name, Truth.drawn(np.array(best), rng)
    for path in sorted(RESULTS.glob("*/runs.csv")):
        if "test_loss" not in pd.read_csv(path, nrows=0):  # equal within a point says nothing of it
            for truth in recorded(report_runs(path)):
                for _ in range(-(-number // 5)):
                    yield "recorded", path.parent.name, truth


def table(number: int, seed: int) -> pd.DataFrame:
    """Return a row a study and policy, with the means of `score`."""
    rng = np.random.default_rng(seed)
    rows = [
        {"kind": kind, "study": name, "policy": policy, **score(truth, how.conclude(truth, rng))}
        for kind, name, truth in studies(number, rng)
        for policy, how in POLICIES.items()
    ]
    return pd.DataFrame(rows).groupby(["kind", "study", "policy"], sort=False).mean().reset_index()


def rows(means: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the printed table."""
    yield ["studies", "policy", "runs, %", "right, %", "false, %"]
    for row in means.to_dict("records"):
        numbers = [percent(row[name]) for name in ("runs", "right", "false")]
        yield [f"{row['kind']}, {row['study']}", row["policy"], *numbers]


def main() -> None:
    """Print a row a study and policy."""
    given = options(__doc__, studies=40, seed=0)
    by_study = table(given.studies, given.seed)
    means = by_study.groupby(["kind", "policy"], sort=False).mean(numeric_only=True)
    print_table(rows(pd.concat([by_study, means.reset_index().assign(study="all")])))


if __name__ == "__main__":
    main()
