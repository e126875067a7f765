"""Studies drawn at random with known truth, as arrays, and how a report compares their variants.

The noise is either that of recorded runs, drawn anew, or of an invented family. The unit is the
standard deviation of a run, except where runs have two modes. Shapes are studies x variants x rates
x seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.comparisons.choice import choice_cost
from lr_sweep.analysis.statistics.comparisons.correction import Pairs, pairs_within
from lr_sweep.analysis.statistics.comparisons.failures import failures_among
from lr_sweep.analysis.statistics.comparisons.noise import WINDOW, Sampled, cell_noise, num_known
from lr_sweep.analysis.statistics.comparisons.pair_tests import (
    PairTests,
    after_every_seed,
    at_once,
)
from lr_sweep.analysis.statistics.selection.best import Bools, Floats, Ints
from lr_sweep.analysis.statistics.selection.summary import GROUP

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
"""Draws the noise of an array of runs."""
SPLITS = ["validation", "test"]
RESULTS = Path(__file__).parent.parent / "docs" / "results"
REAL = "real"
"""Name of the noise that is drawn from recorded runs."""
CURVES = {"flat": 0.0, "round": 0.5, "peaked": 2.0}
"""How much worse a rate one step from the peak is, by the name of the curve."""
FAR_BELOW = -30.0
"""Mean of the rates beside the middle one, where noise depends on the rate."""
DEPTH = 5.0
"""Loss of a run in the lower of two modes."""
WIDTH = 0.3
"""Standard deviation of the runs in one of two modes."""


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw normal noise."""
    return rng.standard_normal(shape)


def two_modes(share: float) -> Draw:
    """Return noise of runs of which a share loses `DEPTH`."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        is_lost = rng.random(shape) < share
        return WIDTH * rng.standard_normal(shape) - DEPTH * is_lost

    return draw


def _unequal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise that grows tenfold from the first variant to the last."""
    deviations = np.geomspace(0.1, 1.0, shape[1])
    return normal(rng, shape) * deviations[:, None, None]


def _noisy_peak(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise that is 3.3 times as large at the middle rate as at the others."""
    is_middle = np.arange(shape[-2]) == shape[-2] // 2
    return normal(rng, shape) * np.where(is_middle, 1.0, 0.3)[:, None]


def _collapsing(rng: np.random.Generator, shape: tuple[int, ...], depth: float) -> Floats:
    """Draw noise of which 40% of the runs on both sides of the middle rate lose `depth`."""
    is_neighbour = np.abs(np.arange(shape[-2]) - shape[-2] // 2) == 1
    return normal(rng, shape) - depth * (rng.random(shape) < 0.4) * is_neighbour[:, None]


def _failing(rng: np.random.Generator, shape: tuple[int, ...], share: float, loss: float) -> Floats:
    """Draw noise of variants of one mean, of which all but the first lose `loss` in some runs."""
    noise, is_lost = normal(rng, shape), rng.random(shape) < share
    noise[:, 1:] -= loss * (is_lost[:, 1:] - share)
    return noise


COLLAPSES: dict[str, Draw] = {
    f"neighbours lose {depth:g}": partial(_collapsing, depth=depth) for depth in (10.0, 30.0, 100.0)
}
FAILURES: dict[str, Draw] = {
    f"{share:.0%} lose {loss:g}": partial(_failing, share=share, loss=loss)
    for share, loss in product((0.15, 0.3), (5.0, 50.0))
}
INVENTED: dict[str, Draw] = {
    "normal": normal,
    "unequal": _unequal,
    "two modes": two_modes(0.3),
    "noisy peak": _noisy_peak,
    **COLLAPSES,
    **FAILURES,
}
"""Noise by the name of its family."""
DEPENDS_ON_RATE = ("noisy peak", *COLLAPSES)
FAMILIES = ("normal", "unequal", "two modes", "noisy peak", "neighbours lose 30", "15% lose 5")


class Runs(NamedTuple):
    """Values of runs, studies x cells x rates x seeds; NaN: not trained."""

    validation: Floats
    test: Floats

    @property
    def chosen(self) -> Ints:
        """Index of the best rate of those with all seeds, studies x cells."""
        means = self.validation.mean(-1)
        return np.where(np.isnan(means), -np.inf, means).argmax(-1)

    def at(self, rates: Ints) -> Runs:
        """Return the runs of each cell at one of its rates, studies x cells x seeds."""
        index = rates[..., None, None]
        return Runs(*(np.take_along_axis(values, index, 2)[:, :, 0] for values in self))

    def first(self, numbers: Ints) -> Runs:
        """Return the first seeds of runs at one rate, so many of each cell; NaN: the others."""
        is_kept = np.arange(self.test.shape[-1]) < numbers[..., None]
        return Runs(*(np.where(is_kept, values, np.nan) for values in self))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The truth of many studies of one kind."""

    means: Floats
    """Means of the runs, studies x cells x rates."""
    noise: Callable[[int], tuple[Floats, Floats]]
    """Draws a number of seeds: the noise of validation and of test, of the shape of `Runs`."""
    within: float = 1.5
    """Variants that differ by less are equal."""

    @property
    def pairs(self) -> Pairs:
        """The pairs of variants of a study."""
        return Pairs(*pairs_within(["study"] * self.means.shape[1]))

    @property
    def differences(self) -> Floats:
        """By how much the first variant of each pair is better at its best rate, studies x pairs."""
        best = self.means.max(-1)
        differences: Floats = best[:, self.pairs.first] - best[:, self.pairs.second]
        return differences

    def runs(self, num_seeds: int) -> Runs:
        """Train all rates with new seeds."""
        return Runs(*(self.means[..., None] + noise for noise in self.noise(num_seeds)))


def windows_of(runs: Floats, at: Ints) -> Floats:
    """Return the values at a rate and at its neighbours: ... x `WINDOW` x seeds; NaN: no such rate."""
    beyond = np.full_like(runs[..., :1, :], np.nan)
    padded = np.concatenate([beyond, runs, beyond], axis=-2)
    index = at[..., None] + np.array([1, 0, 2])
    windows: Floats = np.take_along_axis(padded, index[..., None], -2)
    assert windows.shape[-2] == WINDOW
    return windows


def tested(
    choosing: Runs, fresh: Runs, pairs: Pairs, within: float, *, until_decided: bool
) -> PairTests:
    """Test the pairs of each study by its fresh seeds; without fresh seeds, by those that chose the rates.

    `within`: limit of equality. `until_decided`: after every fresh seed, until a pair is decided.
    """
    max_seeds = fresh.test.shape[-1]
    if until_decided:
        return _stacked(after_every_seed(study, pairs, within, max_seeds) for study in fresh.test)
    if max_seeds:
        alone = fresh.test[:, :, None]  # one rate, which has no neighbours
        return by_all_seeds(windows_of(alone, np.zeros_like(choosing.chosen)), pairs, within)
    return by_all_seeds(windows_of(choosing.test, choosing.chosen), pairs, within)


def by_all_seeds(windows: Floats, pairs: Pairs, within: float | None) -> PairTests:
    """Test the pairs of each study by all seeds; `windows`: studies x cells x `WINDOW` x seeds."""
    return _stacked(
        at_once(Sampled(study[:, 0], cell_noise(study)), pairs, within) for study in windows
    )


def _stacked(tests: Iterable[PairTests]) -> PairTests:
    return PairTests(*map(np.stack, zip(*tests, strict=True)))


def seeds_used(tests: PairTests, pairs: Pairs, num_cells: int) -> Ints:
    """Return the fresh seeds that the tests of each cell took."""
    used = np.zeros((len(tests.num_seeds), num_cells), int)
    for cells in (pairs.first, pairs.second):
        for study, numbers in zip(used, tests.num_seeds, strict=True):
            np.maximum.at(study, cells, numbers)
    return used


def exceeds_cost(choosing: Runs, fresh: Runs, pairs: Pairs) -> Bools:
    """Return whether a lead is larger than what the choice of the other variant's rate may have cost."""
    counts = np.maximum(num_known(choosing.validation), 1)
    means = np.nansum(choosing.validation, -1) / counts
    is_chosen = np.arange(means.shape[-1]) == choosing.chosen[..., None]
    is_known = ~np.isnan(choosing.validation).all(-1)
    others = np.where(is_known & ~is_chosen, means, -np.inf)
    costs = choice_cost(_at_chosen(choosing, fresh), others, counts, means.shape[1])
    tests = np.nanmean(fresh.test, -1)
    lead = tests[:, pairs.first] - tests[:, pairs.second]
    return np.abs(lead) > np.where(lead > 0, costs[:, pairs.second], costs[:, pairs.first])


def has_failures(choosing: Runs, fresh: Runs) -> Bools:
    """Return the cells with failed runs that those at the chosen rate do not explain."""
    rates = np.repeat(np.arange(choosing.test.shape[2]), choosing.test.shape[3])
    at_chosen = _at_chosen(choosing, fresh)
    has_failed = np.zeros(at_chosen.shape[:2], bool)
    for cell in np.ndindex(has_failed.shape):
        values = choosing.validation[cell].ravel()
        is_known = ~np.isnan(values)
        known_at_chosen = at_chosen[cell][~np.isnan(at_chosen[cell])]
        failures = failures_among(rates[is_known], values[is_known], known_at_chosen, 0.0)
        has_failed[cell] = failures.num_failed > 0
    return has_failed


def _at_chosen(choosing: Runs, fresh: Runs) -> Floats:
    """Return the validation values of all runs at the chosen rates, studies x cells x seeds."""
    return np.concatenate([choosing.at(choosing.chosen).validation, fresh.validation], axis=-1)


class Compared(NamedTuple):
    """A report's conclusions on the variants of studies."""

    leader: Ints
    """1: the first variant of the pair leads; -1: the second one; 0: no certain lead. Studies x pairs."""
    is_equal: Bools
    """Whether the two are equal within a limit, studies x pairs."""
    num_seeds: Ints
    """Fresh seeds that were trained, studies x cells."""


def compared(
    truth: Truth,
    choosing: Runs,
    fresh: Runs,
    *,
    until_decided: bool = False,
    is_conditional: bool = True,
) -> Compared:
    """Compare the variants of each study as a report does.

    Args:
        truth: gives the limit of equality.
        choosing: runs that choose the rates.
        fresh: fresh runs at the chosen rates; without seeds, those that chose are compared.
        until_decided: whether fresh seeds are added one by one until a pair is decided.
        is_conditional: whether a lead on fresh seeds must exceed the cost of the choice, and be no luck.
    """
    pairs = truth.pairs
    tests = tested(choosing, fresh, pairs, truth.within, until_decided=until_decided)
    leader = np.sign(tests.difference).astype(int) * tests.is_different
    num_seeds = seeds_used(tests, pairs, choosing.test.shape[1])
    if fresh.test.shape[-1] and is_conditional:
        fresh = fresh.first(num_seeds)
        has_failed = has_failures(choosing, fresh)
        rests_on_luck = np.where(
            leader > 0, has_failed[:, pairs.first], has_failed[:, pairs.second]
        )
        leader = leader * exceeds_cost(choosing, fresh, pairs) * ~rests_on_luck
    return Compared(leader, tests.is_equal, num_seeds)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of simulated studies."""

    noise: str = "normal"
    """A key of `INVENTED`, or `REAL`."""
    num_variants: int = 2
    curve: str = "round"
    """A key of `CURVES`; recorded cells have curves of their own."""
    ahead: float = 0.0
    """Lead of the first variant at its best rate; the others are equal."""


def drawn(setting: Setting, num_rates: int, number: int, rng: np.random.Generator) -> Truth:
    """Draw studies."""
    if setting.noise == REAL:
        return _recorded(setting, num_rates, number, rng)
    cells = (number, setting.num_variants)
    rates = np.arange(num_rates)
    peaks = rng.uniform(1.0, max(num_rates - 2.0, 1.0), (*cells, 1))
    curves = -CURVES[setting.curve] * (rates - peaks) ** 2
    if setting.noise in DEPENDS_ON_RATE:
        curves = np.tile(FAR_BELOW * (rates != num_rates // 2), (*cells, 1))

    def noise(num_seeds: int) -> tuple[Floats, Floats]:
        values = INVENTED[setting.noise](rng, (*cells, num_rates, num_seeds))
        return values, values

    return Truth(means=_with_lead(curves, setting), noise=noise)


def _with_lead(curves: Floats, setting: Setting) -> Floats:
    means: Floats = curves - curves.max(-1, keepdims=True)
    means[:, 0] += setting.ahead
    return means


class RecordedCell(NamedTuple):
    """A cell of a recorded grid; more is better."""

    curve: Floats
    """Mean of each rate in validation."""
    residuals: Floats
    """Validation and test value of each run at the best rate and its neighbours, less their means."""


def _recorded(setting: Setting, num_rates: int, number: int, rng: np.random.Generator) -> Truth:
    """Draw studies of variants that have one recorded curve, and the residuals of different cells."""
    groups, studies = recorded_groups(), []
    for group in rng.integers(len(groups), size=number):
        size = len(groups[group])
        cells = rng.choice(size, setting.num_variants, replace=size < setting.num_variants)
        studies.append([groups[group][cell] for cell in cells])
    variances = [[cell.residuals[:, 1].var() for cell in cells] for cells in studies]
    units = np.sqrt(np.mean(variances, axis=-1))[:, None, None, None]
    curves = [[_around_best(cells[0].curve, num_rates)] * len(cells) for cells in studies]

    def noise(num_seeds: int) -> tuple[Floats, Floats]:
        size = (num_rates, num_seeds)
        values = np.array(
            [[rng.choice(cell.residuals, size) for cell in cells] for cells in studies]
        )
        return values[..., 0] / units, values[..., 1] / units

    return Truth(means=_with_lead(np.array(curves) / units[..., 0], setting), noise=noise)


def _around_best(curve: Floats, num_rates: int) -> Floats:
    """Return the means of so many rates around the best one; those beyond the grid are the worst."""
    padded = np.pad(curve, num_rates // 2, constant_values=curve.min())
    best = int(curve.argmax())
    return padded[best : best + num_rates]


@cache
def recorded_groups() -> list[list[RecordedCell]]:
    """Read the cells of docs/results with three seeds or more, by task and model."""
    tables = [_read(path) for path in sorted(RESULTS.glob("*/runs.csv"))]
    runs = pd.concat(tables).drop_duplicates("run_id").dropna()
    groups = []
    for _, group in runs.groupby(["report", *GROUP]):
        cells = [_recorded_cell(rows) for _, rows in group.groupby("variant")]
        groups.append([cell for cell in cells if len(cell.curve) > 2 and cell.residuals.any()])
    return [cells for cells in groups if len(cells) > 1]


def report_runs(path: Path) -> pd.DataFrame:
    """Read a report's `runs.csv`, with the study's metric as `validation` and `test`, of which more is better."""
    runs = pd.read_csv(path)
    metric = next(name for name in runs if name.startswith("test_")).removeprefix("test_")
    sign = -1 if metric == "loss" else 1
    return runs.assign(**{split: sign * runs[f"{split}_{metric}"] for split in SPLITS})


def _read(path: Path) -> pd.DataFrame:
    kept = ["run_id", *GROUP, "variant", "learning_rate", *SPLITS]
    return report_runs(path)[kept].assign(report=path.parent.name)


def _recorded_cell(rows: pd.DataFrame) -> RecordedCell:
    by_rate = rows.groupby("learning_rate")[SPLITS]
    counts, means = by_rate.size(), by_rate.mean()
    num_seeds = counts.max()
    best = means["validation"].where(counts == num_seeds).argmax()
    near = counts.index[max(best - 1, 0) : best + 2]
    is_counted = rows["learning_rate"].isin(near[counts[near] == num_seeds]) & (num_seeds > 2)
    away = (rows[SPLITS] - by_rate.transform("mean"))[is_counted].to_numpy(float)
    return RecordedCell(means["validation"].to_numpy(float), away * (1 - 1 / num_seeds) ** -0.5)
