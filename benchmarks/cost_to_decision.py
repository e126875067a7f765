"""What conclusions cost: `python -m benchmarks.cost_to_decision` prints runs, right and false conclusions of policies.

Studies are drawn with known truth: four variants, nine rates around a peak that lies anywhere between the third and the
seventh, noise of one standard deviation. All runs have one length, so that run-steps are runs. A conclusion on a pair
is that it differs, or that it is equal within `EQUAL_WITHIN`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from lr_sweep.analysis.statistics.comparisons import LEVEL, choice_factor, choice_is_open
from lr_sweep.analysis.statistics.decide import EQUAL, FIRST, SECOND, UNDECIDED, Pairs, Settings, judge_pairs
from lr_sweep.analysis.statistics.families import shaffer
from lr_sweep.analysis.statistics.noise import WINDOW, cell_noise, welch
from lr_sweep.analysis.statistics.uncertainty import Floats
from lr_sweep.benchmarks.verdict_simulation import seeds_used

NUM_RATES, MOST_SEEDS = 9, 20
EQUAL_WITHIN = 1.5
"""In standard deviations of a run."""
BEND = 1.0
"""A rate one step from the peak is worse by this, two steps by four times as much."""
TRUTHS = {
    "all equal": (0.0, 0.0, 0.0, 0.0),
    "one 2 sd ahead": (2.0, 0.0, 0.0, 0.0),
    "one 5 sd ahead": (5.0, 0.0, 0.0, 0.0),
    "each 3 sd ahead of the next": (9.0, 6.0, 3.0, 0.0),
    "each 10 sd ahead of the next": (30.0, 20.0, 10.0, 0.0),
}
"""Means of the variants at their best rates."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Drawn variants of a study."""

    means: Floats
    """Variants x rates."""
    best: Floats
    """Of each variant's best rate."""

    @classmethod
    def drawn(cls, best: Floats, rng: np.random.Generator) -> Truth:
        """Draw where the peaks are."""
        peaks = rng.integers(2, NUM_RATES - 2, len(best))
        return cls(means=best[:, None] - BEND * (np.arange(NUM_RATES) - peaks[:, None]) ** 2.0, best=best)

    def runs(self, seeds: int, rng: np.random.Generator) -> Floats:
        """Train every variant at every rate: variants x rates x seeds; validation and test are alike."""
        return self.means[..., None] + rng.standard_normal((*self.means.shape, seeds))


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a policy concluded on a study."""

    runs: float
    outcome: np.ndarray
    """Of each pair, as of `decide`."""
    chosen: np.ndarray
    """Index of each variant's rate."""


Policy = Callable[[Truth, np.random.Generator], Found]
PAIRS = Pairs.all_of("tttt")


def grid(seeds: int) -> Policy:
    """Train all rates with so many seeds, and compare at the chosen ones."""
    return lambda truth, rng: _compared(truth.runs(seeds, rng))


def winners(number: int, seeds: int) -> Policy:
    """Train all rates with one seed, the best of each variant with all."""
    return lambda truth, rng: _compared(_without_losers(truth.runs(seeds, rng), number))


def decide(before: Callable[[Truth, np.random.Generator], Floats]) -> Policy:
    """Choose the rates on runs, then train fresh seeds there until all pairs are decided."""

    def policy(truth: Truth, rng: np.random.Generator) -> Found:
        runs = before(truth, rng)
        chosen = _chosen(runs)
        each = np.arange(len(chosen))
        fresh = truth.means[each, chosen][:, None] + rng.standard_normal((len(chosen), MOST_SEEDS))
        settings = Settings(min_difference=EQUAL_WITHIN, max_seeds=MOST_SEEDS)
        found = judge_pairs(fresh, PAIRS, settings, cell_noise(_windows(runs, chosen)))
        used = seeds_used(found, PAIRS, len(chosen), MOST_SEEDS)
        return Found(runs=float((~np.isnan(runs)).sum() + used.sum()), outcome=found.outcome, chosen=chosen)

    return policy


POLICIES: dict[str, Policy] = {
    "grid, 3 seeds": grid(3),
    "grid, 5 seeds": grid(5),
    "grid, 10 seeds": grid(10),
    "winners 2, 5 seeds": winners(2, 5),
    "decide after a grid of 2 seeds": decide(lambda truth, rng: truth.runs(2, rng)),
    "decide after winners 3 of 2 seeds": decide(lambda truth, rng: _without_losers(truth.runs(2, rng), 3)),
    "decide after winners 2 of 3 seeds": decide(lambda truth, rng: _without_losers(truth.runs(3, rng), 2)),
}


def _without_losers(runs: Floats, number: int) -> Floats:
    """Leave out the later seeds of rates that are not among the best of the first seed."""
    rank = (-runs[..., 0]).argsort(-1).argsort(-1)
    later = np.arange(runs.shape[-1]) > 0
    return np.where((rank >= number)[..., None] & later, np.nan, runs)


def _chosen(runs: Floats) -> np.ndarray:
    """Return the best rate of each variant, of those with all seeds."""
    return np.where(np.isnan(runs).any(-1), -np.inf, runs.mean(-1)).argmax(-1)


def _windows(runs: Floats, chosen: np.ndarray) -> Floats:
    beyond = np.full((len(runs), 1, runs.shape[-1]), np.nan)
    padded = np.concatenate([beyond, runs, beyond], axis=1)
    found = padded[np.arange(len(runs))[:, None], chosen[:, None] + np.array([1, 0, 2])]
    assert found.shape[1] == WINDOW
    return found


def _compared(runs: Floats) -> Found:
    """Compare the variants as a report does."""
    chosen = _chosen(runs)
    windows = _windows(runs, chosen)
    noise, counts = cell_noise(windows), (~np.isnan(windows[:, 0])).sum(-1).astype(float)
    eligible = np.sort(np.where(np.isnan(runs).any(-1), -np.inf, runs.mean(-1)), axis=-1)
    is_open = choice_is_open(eligible[:, -1] - eligible[:, -2], noise, counts)
    means = windows[:, 0].mean(-1)
    difference = means[PAIRS.first] - means[PAIRS.second]
    sem, dof = welch(noise, counts, PAIRS.first, PAIRS.second)
    factor = choice_factor(is_open, PAIRS.first, PAIRS.second)
    differs = shaffer(factor * 2 * stdtr(dof, -np.abs(difference) / sem), ["t"] * len(difference)) < LEVEL
    p_equal = factor * stdtr(dof, (np.abs(difference) - EQUAL_WITHIN) / sem)
    equal = (shaffer(p_equal, range(len(p_equal))) < LEVEL) & ~differs
    outcome = np.where(differs, np.where(difference > 0, FIRST, SECOND), np.where(equal, EQUAL, UNDECIDED))
    return Found(runs=float((~np.isnan(runs)).sum()), outcome=outcome, chosen=chosen)


def is_false(found: Found, means: Floats) -> np.ndarray:
    """Return which conclusions are false of variants with these means, a pair each; undecided ones are not."""
    truth = means[PAIRS.first] - means[PAIRS.second]
    wrong_way = np.isin(found.outcome, [FIRST, SECOND]) & (np.sign(truth) != found.outcome)
    return wrong_way | ((found.outcome == EQUAL) & (np.abs(truth) >= EQUAL_WITHIN))


def main(arguments: list[str] | None = None) -> None:
    """Print a row a truth and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=500, help="of each truth")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    of_studies = ["false at the chosen rates", "false at the best ones"]
    header = ["variants", "policy", "runs", "of a grid of 5 seeds, %", "pairs right there, %", *of_studies]
    print(f"| {' | '.join(header)} |\n{'|---' * len(header)}|")
    for name, means in TRUTHS.items():
        rng, best = np.random.default_rng(args.seed), np.array(means)
        truths = [Truth.drawn(best, rng) for _ in range(args.studies)]
        for policy, conclude in POLICIES.items():
            print(_row(name, policy, truths, [conclude(truth, rng) for truth in truths]), flush=True)


def _row(name: str, policy: str, truths: list[Truth], found: list[Found]) -> str:
    runs = float(np.mean([each.runs for each in found]))
    pairs = list(zip(found, truths, strict=True))
    here = np.array([is_false(each, truth.means[np.arange(len(each.chosen)), each.chosen]) for each, truth in pairs])
    at_best = np.array([is_false(each, truth.best) for each, truth in pairs])
    right = np.array([each.outcome != UNDECIDED for each in found]) & ~here
    shares = [runs / (5 * NUM_RATES * len(truths[0].best)), right.mean(), here.any(-1).mean(), at_best.any(-1).mean()]
    return f"| {name} | {policy} | {runs:.0f} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |"


if __name__ == "__main__":
    main()
