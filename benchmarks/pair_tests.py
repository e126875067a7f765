"""Which of five tests should compare variants, by errors and power with Holm's correction.

`python -m benchmarks.pair_tests` prints the table of docs/statistics.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import combinations

import numpy as np
from scipy.special import digamma, polygamma, stdtr

from lr_sweep.analysis.statistics.comparisons import LEVEL
from lr_sweep.analysis.statistics.uncertainty import Floats

PairTest = Callable[[Floats], tuple[Floats, Floats]]
"""Takes accuracies, studies x tasks x variants x seeds; returns t and degrees of freedom, studies x tasks x pairs."""

PAIRS = np.array(list(combinations(range(4), 2)))
EQUAL, UNEQUAL = (1.0, 1.0, 1.0, 1.0), (0.5, 1.0, 1.0, 2.0)
"""Standard deviations of a run of each variant."""
NUM_TASKS, NUM_SEEDS = (1, 2, 4), (2, 3, 5, 10)
AHEAD = 3.0
"""Of the first variant in a study that has a difference, in standard deviations of a run."""


def _pairs(values: Floats) -> tuple[Floats, Floats]:
    """Split ... x variants into the first and the second of each pair, ... x pairs."""
    return values[..., PAIRS[:, 0]], values[..., PAIRS[:, 1]]


def _difference(drawn: Floats) -> Floats:
    ones, others = _pairs(drawn.mean(-1))
    return ones - others


def _variances(drawn: Floats) -> Floats:
    return drawn.var(-1, ddof=1)


def welch(drawn: Floats) -> tuple[Floats, Floats]:
    """Each variant has its own variance (Welch 1947)."""
    num_seeds = drawn.shape[-1]
    ones, others = _pairs(_variances(drawn) / num_seeds)
    dof = (ones + others) ** 2 * (num_seeds - 1) / (ones**2 + others**2)
    return _difference(drawn) / np.sqrt(ones + others), dof


def by_seed(drawn: Floats) -> tuple[Floats, Floats]:
    """The differences of runs of one seed: a paired t test."""
    num_seeds = drawn.shape[-1]
    ones, others = _pairs(np.moveaxis(drawn, -1, 0))
    sem = np.sqrt((ones - others).var(0, ddof=1) / num_seeds)
    return _difference(drawn) / sem, np.full(sem.shape, num_seeds - 1.0)


def pooled(drawn: Floats, axes: tuple[int, ...]) -> tuple[Floats, Floats]:
    """One variance for all cells along `axes`."""
    variance = _variances(drawn).mean(axes, keepdims=True)
    num_cells = np.prod([drawn.shape[axis] for axis in axes])
    difference = _difference(drawn)
    dof = np.full(difference.shape, num_cells * (drawn.shape[-1] - 1.0))
    return difference / np.sqrt(2 * variance / drawn.shape[-1]), dof


def shrunk(drawn: Floats) -> tuple[Floats, Floats]:
    """Shrink the variances of a study's cells to a common one (Smyth 2004, section 6.2)."""
    dof, variances = drawn.shape[-1] - 1.0, _variances(drawn)
    logs = np.log(variances) - digamma(dof / 2) + np.log(dof / 2)
    spread = logs.var((1, 2), ddof=1) - polygamma(1, dof / 2)
    prior_dof = 2 * _trigamma_inverse(np.maximum(spread, 1e-3))[:, None, None]
    prior = np.exp(logs.mean((1, 2), keepdims=True) + digamma(prior_dof / 2) - np.log(prior_dof / 2))
    ones, others = _pairs((prior_dof * prior + dof * variances) / (prior_dof + dof))
    difference = _difference(drawn)
    return difference / np.sqrt((ones + others) / drawn.shape[-1]), np.broadcast_to(dof + prior_dof, difference.shape)


def _trigamma_inverse(values: Floats) -> Floats:
    """Solve polygamma(1, x) = value by Newton's method (Smyth 2004, appendix)."""
    found = 0.5 + 1 / values
    for _ in range(20):
        trigamma = polygamma(1, found)
        found = found + trigamma * (1 - trigamma / values) / polygamma(2, found)
    return np.asarray(found, dtype=float)


TESTS: dict[str, PairTest] = {
    "Welch's t": welch,
    "t of the differences by seed": by_seed,
    "variance pooled over a task's variants": lambda drawn: pooled(drawn, (2,)),
    "variance pooled over the study": lambda drawn: pooled(drawn, (1, 2)),
    "variances shrunk to a common one (Smyth 2004)": shrunk,
}


def distinguished(test: PairTest, drawn: Floats) -> np.ndarray:
    """Return which pairs differ by a test with Holm's correction over the study, studies x (tasks x pairs)."""
    t, dof = test(drawn)
    p = (2 * stdtr(dof, -np.abs(t))).reshape(len(drawn), -1)
    order = p.argsort(-1)
    ranked = np.maximum.accumulate(np.take_along_axis(p, order, -1) * np.arange(p.shape[-1], 0, -1), -1)
    holm = np.empty_like(p)
    np.put_along_axis(holm, order, ranked, -1)
    return holm < LEVEL


def family_wise_errors(test: PairTest, noise: tuple[float, ...], num_studies: int, rng: np.random.Generator) -> Floats:
    """Return the share of studies of equal variants in which any pair differs, for each number of tasks and seeds."""
    shares = []
    for num_tasks in NUM_TASKS:
        for num_seeds in NUM_SEEDS:
            drawn = rng.normal(size=(num_studies, num_tasks, 4, num_seeds)) * np.array(noise)[:, None]
            shares.append(distinguished(test, drawn).any(-1).mean())
    return np.array(shares)


def power(test: PairTest, num_tasks: int, num_seeds: int, num_studies: int, rng: np.random.Generator) -> float:
    """Return the share found of the pairs of the first task's one better variant."""
    drawn = rng.normal(size=(num_studies, num_tasks, 4, num_seeds))
    drawn[:, 0, 0] += AHEAD
    return float(distinguished(test, drawn)[:, np.flatnonzero(PAIRS[:, 0] == 0)].mean())


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and the power of the test that was chosen in larger studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000, help="in each setting")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    rng = np.random.default_rng(args.seed)
    print("| test | equal noise | noise 0.5, 1, 1, 2 | power, 3 seeds, 1 task |", "|---|---|---|---|", sep="\n")
    for name, test in TESTS.items():
        errors = (family_wise_errors(test, noise, args.studies, rng) for noise in (EQUAL, UNEQUAL))
        ranges = (f"{100 * each.min():.1f} to {100 * each.max():.1f}%" for each in errors)
        print(f"| {name} | {' | '.join(ranges)} | {100 * power(test, 1, 3, args.studies, rng):.0f}% |")
    found = (f"{100 * power(welch, 4, seeds, args.studies, rng):.0f}% with {seeds} seeds" for seeds in (3, 5, 10))
    print(f"\n{next(iter(TESTS))}, four tasks: {', '.join(found)}")


if __name__ == "__main__":
    main()
