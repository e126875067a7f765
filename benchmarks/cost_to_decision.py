"""What conclusions cost: `python -m benchmarks.cost_to_decision [--figure docs/images/cost-to-decision]`.

Prints the run-steps, right and false conclusions of policies, on studies of known truth. Of the synthetic ones four
variants have nine rates around a peak that lies anywhere between the third and the seventh, and noise of one standard
deviation. The recorded ones are drawn anew around the means of the reports' runs (docs/results), with the deviations
over seeds that these have. A run's validation and test value are one. A conclusion on a pair is that it differs, or
that it is equal within `Truth.within`. The variants of collapsing studies are equal and get better with the rate, but
at the two largest rates runs fail.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtr

from lr_sweep.analysis.statistics.comparisons.correction import shaffer
from lr_sweep.analysis.statistics.comparisons.decide import (
    EQUAL,
    FIRST,
    SECOND,
    UNDECIDED,
    Pairs,
    Settings,
    judge_pairs,
)
from lr_sweep.analysis.statistics.comparisons.noise import cell_noise, welch
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL, choice_luck, without_luck
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.benchmarks.drawn_variants import windows_of
from lr_sweep.benchmarks.verdict_simulation import seeds_used

RESULTS = Path(__file__).parent.parent / "docs" / "results"
NUM_RATES, REFERENCE_SEEDS = 9, 5
BEND = 1.0
"""A rate one step from the peak is worse by this, two steps by four times as much."""
RUNG = 1 / 9
"""Share of its steps that a stopped run trains: the first rung of `stop_early`."""
TRUTHS = {
    "all equal": (0.0, 0.0, 0.0, 0.0),
    "one 2 sd ahead": (2.0, 0.0, 0.0, 0.0),
    "one 5 sd ahead": (5.0, 0.0, 0.0, 0.0),
    "each 3 sd ahead of the next": (9.0, 6.0, 3.0, 0.0),
    "each 10 sd ahead of the next": (30.0, 20.0, 10.0, 0.0),
}
"""Means of the variants at their best rates."""
RISE, LOSS = 0.5, 5.0
"""Gain from one rate to the next, and what a failed run loses, where variants tune themselves into collapse."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The variants of a study."""

    means: Floats
    """Variants x rates."""
    deviations: Floats
    """Of a run, variants x rates."""
    within: float
    """Variants that differ by less are equal."""
    fails: Floats | float = 0.0
    """Share of runs that lose `LOSS`, variants x rates; `means` are of the others."""

    @classmethod
    def drawn(cls, best: Floats, rng: np.random.Generator) -> Truth:
        """Draw where the peaks are; `best`: means there."""
        peaks = rng.integers(2, NUM_RATES - 2, len(best))
        means = best[:, None] - BEND * (np.arange(NUM_RATES) - peaks[:, None]) ** 2.0
        return cls(means=means, deviations=np.ones_like(means), within=1.5)

    @classmethod
    def collapsing(cls, num_variants: int, share: float) -> Truth:
        """Return equal variants that get better up to the largest rate, but at the last two a share of runs fails."""
        means = np.tile(RISE * np.arange(NUM_RATES), (num_variants, 1))
        fails = np.tile(
            np.where(np.arange(NUM_RATES) < NUM_RATES - 2, 0.0, share), (num_variants, 1)
        )
        fails[:, -1] *= 2
        return cls(means=means, deviations=np.full_like(means, 0.3), within=1.5, fails=fails)

    @property
    def expected(self) -> Floats:
        """Means over all runs, variants x rates."""
        return self.means - LOSS * self.fails

    @property
    def pairs(self) -> Pairs:
        """All of them."""
        return Pairs.all_of(["study"] * len(self.means))

    def runs(self, seeds: int, rng: np.random.Generator) -> Floats:
        """Train every variant at every rate: variants x rates x seeds."""
        noise = rng.standard_normal((*self.means.shape, seeds))
        lost = rng.random(noise.shape) < np.broadcast_to(self.fails, self.means.shape)[..., None]
        return self.means[..., None] + self.deviations[..., None] * noise - LOSS * lost

    def fresh(self, chosen: np.ndarray, seeds: int, rng: np.random.Generator) -> Floats:
        """Train fresh seeds at the chosen rates: variants x seeds."""
        return self.runs(seeds, rng)[np.arange(len(chosen)), chosen]


def recorded(runs: pd.DataFrame) -> Iterator[Truth]:
    """Read the truth of each task and model of a report's runs: what its seeds show, within 1 point.

    A variant without a value at a rate, as where all runs diverged, has the worst mean; of one seed, its median noise.
    """
    for _, rows in runs.groupby(GROUP, sort=False):
        found = rows.groupby(["variant", "learning_rate"])["test_accuracy"].agg(["mean", "std"])
        means, deviations = (found[name].unstack() for name in ("mean", "std"))
        if min(means.shape) > 1:
            deviations = deviations.apply(lambda row: row.fillna(row.median()), axis=1)
            yield Truth(
                means=means.fillna(means.min().min()).to_numpy(float),
                deviations=deviations.to_numpy(float),
                within=0.01,
            )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A way to train a study."""

    seeds: int
    winners: int | None = None
    """Rates of each variant that get all seeds, the best by the first; None: all."""
    stops: bool = False
    """Whether first runs below the median of a variant's rates stop at a rung, as by `stop_early: {rule: median}`."""
    fresh: int = 0
    """Fresh seeds at the chosen rates, at most, that decide; 0: none."""

    def train(self, truth: Truth, rng: np.random.Generator) -> tuple[Floats, float]:
        """Return runs, variants x rates x seeds, NaN: not trained; and what they cost, in whole runs."""
        runs = truth.runs(self.seeds, rng)
        first = runs[..., 0]
        if self.winners:
            lost = (-first).argsort(-1).argsort(-1) >= self.winners
            runs = np.where(lost[..., None] & (np.arange(self.seeds) > 0), np.nan, runs)
        stopped = (first < np.median(first, -1, keepdims=True)).sum() if self.stops else 0
        return runs, float((~np.isnan(runs)).sum() - (1 - RUNG) * stopped)

    def conclude(self, truth: Truth, rng: np.random.Generator) -> Found:
        """Train a study and judge it."""
        runs, cost = self.train(truth, rng)
        chosen, pairs = _chosen(runs), truth.pairs
        if not self.fresh:
            return Found(runs=cost, outcome=_compared(runs, chosen, truth), chosen=chosen)
        settings = Settings(min_difference=truth.within, max_seeds=self.fresh)
        fresh = truth.fresh(chosen, self.fresh, rng)
        found = judge_pairs(fresh, pairs, settings, cell_noise(windows_of(runs, chosen)))
        used = seeds_used(found, pairs, len(chosen), self.fresh).sum()
        return Found(runs=cost + float(used), outcome=found.outcome, chosen=chosen)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a policy concluded on a study."""

    runs: float
    """What it cost, in whole runs."""
    outcome: np.ndarray
    """Of each pair, as of `decide`."""
    chosen: np.ndarray
    """Index of each variant's rate."""


POLICIES = {
    "grid, 3 seeds": Policy(seeds=3),
    "grid, 5 seeds": Policy(seeds=REFERENCE_SEEDS),
    "grid, 10 seeds": Policy(seeds=10),
    "winners 3 of 5 seeds, stop_early": Policy(seeds=5, winners=3, stops=True),
    "grid, 2 seeds, then decide": Policy(seeds=2, fresh=20),
    "winners 2 of 2 seeds, stop_early, then decide, at most 3": Policy(
        seeds=2, winners=2, stops=True, fresh=3
    ),
    "the same, at most 5": Policy(seeds=2, winners=2, stops=True, fresh=5),
    "the same, at most 20": Policy(seeds=2, winners=2, stops=True, fresh=20),
    "winners 3 of 3 seeds, stop_early, then decide, at most 20": Policy(
        seeds=3, winners=3, stops=True, fresh=20
    ),
    "winners 3 of 8 seeds, stop_early, then decide, at most 20": Policy(
        seeds=8, winners=3, stops=True, fresh=20
    ),
}


def _chosen(runs: Floats) -> np.ndarray:
    """Return the best rate of each variant, of those with all seeds."""
    return np.where(np.isnan(runs).any(-1), -np.inf, runs.mean(-1)).argmax(-1)


def _compared(runs: Floats, chosen: np.ndarray, truth: Truth) -> np.ndarray:
    """Compare the variants as a report does."""
    windows, pairs = windows_of(runs, chosen), truth.pairs
    noise, counts = cell_noise(windows), (~np.isnan(windows[:, 0])).sum(-1).astype(float)
    eligible = runs.mean(-1)  # NaN: a rate that lacks seeds
    behind = np.nanmax(eligible, -1, keepdims=True) - eligible
    means = windows[:, 0].mean(-1)
    difference = means[pairs.first] - means[pairs.second]
    sem, dof = welch(noise, counts, pairs.first, pairs.second)
    luck = choice_luck(behind, noise, counts)
    lead = without_luck(difference, luck, pairs.first, pairs.second)
    differs = shaffer(2 * stdtr(dof, -lead / sem), ["study"] * len(difference)) < LEVEL
    most = np.abs(difference) + np.abs(luck[pairs.first] - luck[pairs.second])
    p_equal = stdtr(dof, (most - truth.within) / sem)
    equal = (shaffer(p_equal, range(len(p_equal))) < LEVEL) & ~differs
    return np.where(
        differs, np.where(difference > 0, FIRST, SECOND), np.where(equal, EQUAL, UNDECIDED)
    )


def is_false(outcome: np.ndarray, means: Floats, truth: Truth) -> np.ndarray:
    """Return which conclusions are false of variants with these means, a pair each; undecided ones are not."""
    difference = means[truth.pairs.first] - means[truth.pairs.second]
    wrong_way = np.isin(outcome, [FIRST, SECOND]) & (np.sign(difference) != outcome)
    return wrong_way | ((outcome == EQUAL) & (np.abs(difference) >= truth.within))


def scores(truth: Truth, found: Sequence[Found]) -> dict[str, float]:
    """Return shares: of the runs of a grid of 5 seeds, of right pairs, of studies with a false one."""
    each = np.arange(len(truth.means))
    here = np.array(
        [is_false(one.outcome, truth.expected[each, one.chosen], truth) for one in found]
    )
    at_best = np.array([is_false(one.outcome, truth.expected.max(-1), truth) for one in found])
    decided = np.array([one.outcome for one in found]) != UNDECIDED
    return {
        "runs": float(np.mean([one.runs for one in found])) / (REFERENCE_SEEDS * truth.means.size),
        "right": float((decided & ~here).mean()),
        "false": float(here.any(-1).mean()),
        "false of the best rates": float(at_best.any(-1).mean()),
    }


def studies(number: int, rng: np.random.Generator) -> Iterator[tuple[str, str, Truth, int]]:
    """Yield kind, name, truth and number of draws: synthetic ones of many truths each, recorded ones."""
    for name, best in TRUTHS.items():
        yield from (("synthetic", name, Truth.drawn(np.array(best), rng), 1) for _ in range(number))
    for variants, share in product((2, 4), (0.15, 0.3)):
        name = f"{variants} variants, {share:.0%} fail"
        yield from (
            ("collapsing", name, Truth.collapsing(variants, share), 1) for _ in range(number)
        )
    for path in sorted(RESULTS.glob("*/runs.csv")):
        if "test_accuracy" in (
            runs := pd.read_csv(path)
        ):  # equal within a point says nothing of a loss
            yield from (
                ("recorded", path.parent.name, truth, -(-number // 5)) for truth in recorded(runs)
            )


def table(number: int, seed: int) -> pd.DataFrame:
    """Return a row a study and policy, with the means of `scores`."""
    rng, rows = np.random.default_rng(seed), []
    for kind, name, truth, draws in studies(number, rng):
        for policy, how in POLICIES.items():
            found = [how.conclude(truth, rng) for _ in range(draws)]
            rows.append({"kind": kind, "study": name, "policy": policy, **scores(truth, found)})
    return pd.DataFrame(rows).groupby(["kind", "study", "policy"], sort=False).mean().reset_index()


def draw(found: pd.DataFrame, stem: Path) -> None:
    """Draw right pairs against run-steps, a mark a policy, a panel a kind of study."""
    from matplotlib import pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"
    figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.6), sharey=True, layout="constrained")
    means = found.groupby(["kind", "policy"], sort=False)[["runs", "right"]].mean() * 100
    for panel, kind in zip(panels, ("synthetic", "recorded"), strict=True):
        for (policy, row), mark in zip(means.loc[kind].iterrows(), "osDv^P*Xhp", strict=True):
            panel.plot(
                row["runs"],
                row["right"],
                mark,
                label=policy,
                color="C0" if POLICIES[policy].fresh else "C1",
            )
        panel.axvline(20, color="0.6", linestyle=":")
        panel.set(
            title=f"{kind} studies", xlabel="run-steps, % of a grid of 5 seeds", xlim=(0, 210)
        )
    panels[0].set_ylabel("pairs decided rightly, %")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8
    )
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})


def main(arguments: list[str] | None = None) -> None:
    """Print a row a study and policy, and draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--studies",
        type=int,
        default=500,
        help="synthetic ones of each truth; a fifth of recorded ones",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, help="stem of an .svg")
    args = parser.parse_args(arguments)
    found = table(args.studies, args.seed)
    every = (
        found.groupby(["kind", "policy"], sort=False)
        .mean(numeric_only=True)
        .reset_index()
        .assign(study="all")
    )
    shown = pd.concat([found, every])
    columns = ["runs", "right", "false", "false of the best rates"]
    print(f"| studies | policy | {' | '.join(f'{name}, %' for name in columns)} |\n{'|---' * 6}|")
    for row in shown.to_dict("records"):
        numbers = " | ".join(f"{100 * row[name]:.1f}" for name in columns)
        print(f"| {row['kind']}, {row['study']} | {row['policy']} | {numbers} |")
    if args.figure:
        draw(found, args.figure)


if __name__ == "__main__":
    main()
