"""The cost of conclusions: `python -m benchmarks.cost_to_decision`.

Prints the run-steps of policies, and their right and false conclusions, on studies of known truth
(`benchmarks.simulated_studies`). Of the synthetic ones four variants have nine rates around a peak,
and noise of one standard deviation. The recorded ones are drawn anew around the means of the
reports' runs (docs/results), with the deviations over seeds that these have. A run's validation and
test value are one. A conclusion on a pair is that it differs, or that it is equal within a limit;
it is right if that is true of the variants' best rates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.selection.best import Bools, Floats, Ints
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.benchmarks.shared import options, percent, print_table
from lr_sweep.benchmarks.simulated_studies import (
    RESULTS,
    Runs,
    Setting,
    Truth,
    compared,
    drawn,
    report_runs,
)

NUM_RATES, REFERENCE_SEEDS = 9, 5
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


def synthetic(best: tuple[float, ...], number: int, rng: np.random.Generator) -> Truth:
    """Draw studies of variants with these means at their best rates."""
    truth = drawn(Setting(num_variants=len(best)), NUM_RATES, number, rng)
    return replace(truth, means=truth.means + np.array(best)[:, None])


def recorded(runs: pd.DataFrame, number: int, rng: np.random.Generator) -> Iterator[Truth]:
    """Draw studies of each task and model of a report's runs: what its seeds show, within 1 point.

    A variant without a value at a rate, as where all runs diverged, has the worst mean. A rate of
    one seed has the median noise of its variant.
    """
    for _, rows in runs.groupby(GROUP, sort=False):
        by_rate = rows.groupby(["variant", "learning_rate"])["test"].agg(["mean", "std"])
        means, deviations = (by_rate[name].unstack() for name in ("mean", "std"))
        if min(means.shape) > 1:
            deviations = deviations.apply(lambda row: row.fillna(row.median()), axis=1)
            means = means.fillna(means.min().min())
            yield _normal(means.to_numpy(float), deviations.to_numpy(float), number, rng)


def _normal(means: Floats, deviations: Floats, number: int, rng: np.random.Generator) -> Truth:
    """Return studies with normal noise of these deviations; both: variants x rates."""

    def noise(num_seeds: int) -> tuple[Floats, Floats]:
        normal = rng.standard_normal((number, *means.shape, num_seeds))
        values: Floats = deviations[..., None] * normal
        return values, values

    return Truth(means=np.tile(means, (number, 1, 1)), noise=noise, within=0.01)


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

    def train(self, truth: Truth) -> tuple[Runs, Floats]:
        """Return the runs that choose rates, NaN: no value; and what they cost, in whole runs a study."""
        values = truth.runs(self.seeds).validation
        first = values[..., :1]
        is_stopped = self.stops & (first < np.median(first, axis=2, keepdims=True))
        ranks = (-first).argsort(2).argsort(2)
        is_winner = ranks < (self.winners or values.shape[2])
        is_trained = is_winner | (np.arange(self.seeds) == 0)
        cost = is_trained.sum((1, 2, 3)) - (1 - RUNG) * is_stopped.sum((1, 2, 3))
        known = np.where(is_trained & ~is_stopped, values, np.nan)
        return Runs(known, known), cost

    def conclude(self, truth: Truth) -> tuple[Floats, Ints]:
        """Return the cost of each study, and conclusions of a report, studies x pairs."""
        choosing, cost = self.train(truth)
        fresh = truth.runs(self.fresh).at(choosing.chosen)
        claims = compared(truth, choosing, fresh, until_decided=self.until_decided)
        if self.fresh:
            cost = cost + claims.num_seeds.sum(-1)
        return cost, np.where(claims.is_equal & (claims.leader == 0), EQUAL, claims.leader)


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


def is_false(truth: Truth, outcome: Ints) -> Bools:
    """Return which conclusions contradict the means at the best rates, studies x pairs."""
    is_lead = (outcome == FIRST) | (outcome == SECOND)
    is_wrong = is_lead & (np.sign(truth.differences) != outcome)
    return is_wrong | ((outcome == EQUAL) & (np.abs(truth.differences) >= truth.within))


def score(truth: Truth, policy: Policy) -> dict[str, float]:
    """Return the cost as a share of a grid of 5 seeds, right pairs, and studies with a false pair."""
    cost, outcome = policy.conclude(truth)
    is_wrong = is_false(truth, outcome)
    return {
        "runs": float(cost.mean()) / (REFERENCE_SEEDS * truth.means[0].size),
        "right": float(((outcome != UNDECIDED) & ~is_wrong).mean()),
        "false": float(is_wrong.any(-1).mean()),
    }


def all_studies(number: int, rng: np.random.Generator) -> Iterator[tuple[str, str, Truth]]:
    """Yield kind, name and studies: synthetic ones, and recorded ones, a fifth as many of each truth."""
    for name, best in BEST_RATES.items():
        yield "synthetic", name, synthetic(best, number, rng)
    for path in sorted(RESULTS.glob("*/runs.csv")):
        if "test_loss" not in pd.read_csv(path, nrows=0):  # equal within a point says nothing of it
            for truth in recorded(report_runs(path), -(-number // 5), rng):
                yield "recorded", path.parent.name, truth


def table(number: int, seed: int) -> pd.DataFrame:
    """Return a row a study and policy, with the means of `score`."""
    rows = [
        {"kind": kind, "study": name, "policy": name_of_policy, **score(truth, policy)}
        for kind, name, truth in all_studies(number, np.random.default_rng(seed))
        for name_of_policy, policy in POLICIES.items()
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
    given = options(__doc__, studies=400, seed=0)
    by_study = table(given.studies, given.seed)
    means = by_study.groupby(["kind", "policy"], sort=False).mean(numeric_only=True)
    print_table(rows(pd.concat([by_study, means.reset_index().assign(study="all")])))


if __name__ == "__main__":
    main()
