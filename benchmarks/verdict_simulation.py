"""How often verdicts are wrong, and how often they find what is there: `python -m benchmarks.verdict_simulation`.

Studies are drawn with known truth, as arrays, and judged by the report's own functions. A study has tasks x variants x
five learning rates x seeds. A run's validation and test value share its noise, so the rate is chosen by luck, too. The
unit is the standard deviation of a run. Prints the tables of docs/statistics.md; numbers depend on `--seed` alone.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.special import stdtr

from lr_sweep.analysis.statistics.comparisons.decide import (
    EQUAL,
    FIRST,
    SECOND,
    UNDECIDED,
    Decided,
    Pairs,
    Settings,
    judge_pairs,
)
from lr_sweep.analysis.statistics.comparisons.noise import WINDOW, Noise, cell_noise, welch
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL, choice_factor, choice_is_open, shaffer
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.benchmarks.gating import FAILING, GATED, NOISES, Rows, gate_table, percent, ratios

NUM_RATES = 5
SPLIT = 0.3
"""Standard deviation of a split's examples, in each of validation and test, times the variant's noise."""
CURVES = {"flat": np.zeros(NUM_RATES), "peak": np.array([-30.0, -30.0, 0.0, -30.0, -30.0])}
"""Mean at each rate; on a flat curve the chosen rate is the luckiest, on a peak always the middle one."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the simulated studies are like."""

    num_tasks: int = 1
    num_variants: int = 4
    num_seeds: int = 3
    noise: str = "normal"
    curve: str = "peak"
    ahead: float = 0.0
    """By how much the first variant is better than the others at its best rate, and wherever they are not equal."""
    equal_at: int | None = None
    """Index of a rate at which all variants are equal, whatever they are elsewhere."""
    beside: float = 1.0
    """Noise at the rates beside the middle one, as a share of that there."""
    shared: float = 0.0
    """Share of the variance that is of the seed, and so equal at all rates of a cell."""


@dataclass(frozen=True, kw_only=True)
class Studies:
    """Drawn studies, studies x tasks x variants."""

    tests: Floats
    """x rates x seeds."""
    chosen: np.ndarray
    """Index of the chosen rate."""
    margin: Floats
    """Of the chosen rate's validation mean to the second best."""


def drawn(setting: Setting, number: int, rng: np.random.Generator) -> Studies:
    """Draw studies, and choose each cell's rate on validation values."""
    shape = (number, setting.num_tasks, setting.num_variants, NUM_RATES, setting.num_seeds)
    draw = NOISES[setting.noise]
    noise = np.sqrt(1 - setting.shared) * draw(rng, shape)
    if setting.shared:
        noise = noise + np.sqrt(setting.shared) * draw(rng, (*shape[:3], 1, setting.num_seeds))
    scale = np.full(NUM_RATES, setting.beside)
    scale[NUM_RATES // 2] = 1.0
    mean = np.zeros((setting.num_variants, NUM_RATES)) + CURVES[setting.curve]
    mean[0] += setting.ahead
    if setting.equal_at is not None:
        mean[:, setting.equal_at] = CURVES[setting.curve][setting.equal_at]
    runs = mean[..., None] + noise * scale[:, None]
    splits = SPLIT * (ratios(setting.num_variants) if setting.noise == "unequal" else np.ones(setting.num_variants))
    validation, tests = (runs + splits[:, None, None] * rng.standard_normal(shape) for _ in range(2))
    means = validation.mean(-1)
    second, best = np.moveaxis(np.sort(means, axis=-1)[..., -2:], -1, 0)
    return Studies(tests=tests, chosen=means.argmax(-1), margin=best - second)


def windows_of(runs: Floats, at: np.ndarray) -> Floats:
    """Return the values of runs, ... x rates x seeds, at a rate and at those beside it: ... x `WINDOW` x seeds."""
    beyond = np.full_like(runs[..., :1, :], np.nan)
    padded = np.concatenate([beyond, runs, beyond], axis=-2)
    found: Floats = np.take_along_axis(padded, (at[..., None] + np.array([1, 0, 2]))[..., None], -2)
    assert found.shape[-2] == WINDOW
    return found


def windows(studies: Studies, at: np.ndarray) -> Floats:
    """Return the windows of each cell, studies x cells x `WINDOW` x seeds."""
    found = windows_of(studies.tests, at)
    return found.reshape(len(found), -1, *found.shape[-2:])


def open_choices(studies: Studies, pairs: Pairs) -> Floats:
    """Return what the p of each pair is multiplied with for the choice of its rates."""
    found = windows(studies, studies.chosen)
    counts = np.full(found.shape[1], found.shape[-1], float)
    is_open = choice_is_open(studies.margin.reshape(len(found), -1), cell_noise(found), counts)
    return choice_factor(is_open, pairs.first, pairs.second)


def compared(found: Floats, noise: Noise, pairs: Pairs) -> tuple[Floats, Floats]:
    """Return t and its degrees of freedom, studies x pairs, from windows."""
    means, counts = found[:, :, 0].mean(-1), np.full(found.shape[1], found.shape[-1], float)
    sem, dof = welch(noise, counts, pairs.first, pairs.second)
    return (means[:, pairs.first] - means[:, pairs.second]) / sem, dof


def pairs_of_study(setting: Setting) -> Pairs:
    """Return all pairs of variants of each task."""
    return Pairs.all_of(np.repeat(np.arange(setting.num_tasks), setting.num_variants).tolist())


def distinguished(p: Floats, pairs: Pairs) -> np.ndarray:
    """Return which pairs are distinguishable, studies x pairs, as `pairs.shaffer` corrects them."""
    order = np.argsort(p, axis=-1)
    corrected = np.maximum.accumulate(np.take_along_axis(p, order, -1) * pairs.most_equal, axis=-1)
    found = np.zeros(p.shape, bool)
    np.put_along_axis(found, order, corrected < LEVEL, -1)
    return found


def claims(setting: Setting, number: int, rng: np.random.Generator, plain: bool = False) -> np.ndarray:
    """Return which pairs of drawn studies are distinguishable; `plain`: Welch's test with Holm's correction."""
    studies, pairs = drawn(setting, number, rng), pairs_of_study(setting)
    found = windows(studies, studies.chosen)
    noise = Noise(found[:, :, 0].var(-1, ddof=1), np.full(found.shape[:2], found.shape[-1] - 1.0))
    t, dof = compared(found, noise if plain else cell_noise(found), pairs)
    p = 2 * stdtr(dof, -np.abs(t))
    if plain:
        return distinguished(p, replace(pairs, most_equal=np.arange(p.shape[-1], 0, -1)))
    return distinguished(p * open_choices(studies, pairs), pairs)


def false_claims(setting: Setting, number: int, rng: np.random.Generator) -> float:
    """Return the share of studies of equal variants with any distinguishable pair, on the worse of both curves."""
    return max(float(claims(replace(setting, curve=curve), number, rng).any(-1).mean()) for curve in CURVES)


def power(setting: Setting, number: int, rng: np.random.Generator, plain: bool = False) -> float:
    """Return the share of pairs with the leading variant that are found."""
    return float(claims(setting, number, rng, plain)[:, pairs_of_study(setting).first == 0].mean())


def named_flips(setting: Setting, number: int, rng: np.random.Generator) -> float:
    """Return the share of studies with a false flip: at `equal_at`, or without it at any rate."""
    studies, pairs = drawn(setting, number, rng), pairs_of_study(setting)
    at_chosen = windows(studies, studies.chosen)
    t, dof = compared(at_chosen, cell_noise(at_chosen), pairs)
    sure, sign = distinguished(2 * stdtr(dof, -np.abs(t)) * open_choices(studies, pairs), pairs), np.sign(t)
    one_sided = np.full((number, NUM_RATES, sure.shape[-1]), np.nan)
    for rate in range(NUM_RATES):
        found = windows(studies, np.full_like(studies.chosen, rate))
        t, dof = compared(found, cell_noise(found), pairs)
        one_sided[:, rate] = np.where(sure, stdtr(dof, t * sign), np.nan)
    every = one_sided.reshape(number, -1)
    flips = np.array([shaffer(row, range(len(row))) < LEVEL for row in every]).reshape(one_sided.shape)
    if setting.equal_at is not None:
        flips = flips[:, [setting.equal_at]]
    return float(flips.any((1, 2)).mean())


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """What `decide` did in simulated studies."""

    wrong_difference: float
    """Share of studies in which an equal pair is called different, or another one the wrong way round."""
    wrong_equality: float
    """Share of studies in which a pair that differs by the limit or more is called equal."""
    decided: float
    """Share of pairs."""
    fixed: float
    """Share of pairs that a test of all seeds at once would decide."""
    seeds: float
    """Mean over cells."""
    coverage: tuple[float, float]
    """Of the intervals: the lowest and the highest over pairs."""


def deciding(
    means: Floats,
    noise: str,
    settings: Settings,
    number: int,
    rng: np.random.Generator,
    num_tasks: int = 1,
    beside: float = 1.0,
) -> Deciding:
    """Simulate `decide`: three seeds at each of three rates tell the noise, then fresh seeds come one by one.

    `beside`: noise at the rates beside the chosen one, as a share of that there.
    """
    num_cells = num_tasks * len(means)
    pairs = Pairs.all_of(np.repeat(np.arange(num_tasks), len(means)).tolist())
    shape = (number, num_tasks, len(means), WINDOW, 3)
    earlier = GATED[noise](rng, shape) * np.array([1.0, beside, beside])[:, None]
    known = cell_noise(earlier.reshape(number, num_cells, WINDOW, 3))
    fresh = GATED[noise](rng, (*shape[:3], 1, settings.max_seeds)).reshape(number, num_cells, -1)
    values = fresh + np.tile(means, num_tasks)[:, None]
    whole = judge_pairs(values, pairs, settings, known)
    used = seeds_used(whole, pairs, num_cells, settings.max_seeds)
    seen = judge_pairs(
        np.where(np.arange(settings.max_seeds) < used[..., None], values, np.nan), pairs, settings, known
    )
    assert (seen.outcome == whole.outcome).all(), "seeds after the decision changed it"
    truth = np.tile(means, num_tasks)[pairs.first] - np.tile(means, num_tasks)[pairs.second]
    differs = np.isin(seen.outcome, [FIRST, SECOND])
    wrong = differs & (np.sign(truth) != seen.outcome)
    too_far = (seen.outcome == EQUAL) & (np.abs(truth) >= settings.min_difference)
    held = ((seen.low <= truth) & (truth <= seen.high)).mean(0)
    return Deciding(
        wrong_difference=float(wrong.any(-1).mean()),
        wrong_equality=float(too_far.any(-1).mean()),
        decided=float((seen.outcome != UNDECIDED).mean()),
        fixed=float(_at_once(values, known, pairs, settings).mean()),
        seeds=float(used.mean()),
        coverage=(float(held.min()), float(held.max())),
    )


def seeds_used(found: Decided, pairs: Pairs, num_cells: int, most: int) -> np.ndarray:
    """Return the seeds that each cell was given, ... x cells: up to the last decision on a pair of it."""
    until = np.where(found.outcome == UNDECIDED, most, found.num_seeds)
    used = np.zeros((*until.shape[:-1], num_cells), int)
    for index, cells in enumerate(zip(pairs.first, pairs.second, strict=True)):
        for cell in cells:
            used[..., cell] = np.maximum(used[..., cell], until[..., index])
    return used


def _at_once(values: Floats, known: Noise, pairs: Pairs, settings: Settings) -> np.ndarray:
    """Return which pairs a test of all seeds at once decides, with the same error."""
    number = values.shape[-1]
    noise = Noise(values.var(-1, ddof=1), np.full(values.shape[:2], number - 1.0)).pooled_with(known)
    means = values.mean(-1)
    difference = means[:, pairs.first] - means[:, pairs.second]
    sem, dof = welch(noise, np.full(values.shape[1], float(number)), pairs.first, pairs.second)
    different = distinguished(2 * stdtr(dof, -np.abs(difference) / sem), pairs)
    p_equal = stdtr(dof, (np.abs(difference) - settings.min_difference) / sem)
    return different | (p_equal < settings.error / len(pairs.first))


NUM_TASKS, NUM_SEEDS, NUM_VARIANTS = (1, 2, 4, 6), (3, 5, 10), (2, 4, 8)


def _claims_table(number: int, rng: np.random.Generator) -> Rows:
    columns = list(product(NUM_SEEDS, NUM_TASKS))
    yield ["false claims, %: noise", "variants", *(f"{seeds} seeds, {tasks} tasks" for seeds, tasks in columns)]
    for noise, variants in product(NOISES, NUM_VARIANTS):
        settings = (Setting(noise=noise, num_variants=variants, num_seeds=s, num_tasks=t) for s, t in columns)
        yield [noise, str(variants), *(percent(false_claims(setting, number, rng)) for setting in settings)]


def _power_table(number: int, rng: np.random.Generator) -> Rows:
    aheads = (1, 2, 3, 5)
    yield ["power, %: test", "seeds", *(f"{ahead} sd" for ahead in aheads)]
    for plain, seeds in product((True, False), NUM_SEEDS):
        found = [power(Setting(ahead=ahead, num_seeds=seeds), number, rng, plain) for ahead in aheads]
        yield ["Welch, Holm" if plain else "noise of three rates, Shaffer", str(seeds), *map(percent, found)]


WEAK = {
    "the rates beside 30% quieter": {"beside": 0.7},
    "half as noisy": {"beside": 0.5},
    "a fifth as noisy": {"beside": 0.2},
    "70% of the variance of the seed": {"shared": 0.7},
    "90% of it": {"shared": 0.9},
}


def _weak_table(number: int, rng: np.random.Generator) -> Rows:
    columns = list(product((3, 5), NUM_TASKS))
    yield ["weak spots, false claims, %", *(f"{seeds} seeds, {tasks} tasks" for seeds, tasks in columns)]
    for name, weak in WEAK.items():
        settings = (Setting(num_seeds=seeds, num_tasks=tasks, **weak) for seeds, tasks in columns)
        yield [name, *(percent(claims(setting, number, rng).any(-1).mean()) for setting in settings)]


def _flips_table(number: int, rng: np.random.Generator) -> Rows:
    columns = list(product(NUM_SEEDS, (1, 4)))
    yield ["false flips, %: noise", "variants", *(f"{seeds} seeds, {tasks} tasks" for seeds, tasks in columns)]
    for noise, (name, changed) in product(NOISES, FLIPS.items()):
        settings = (Setting(noise=noise, num_seeds=s, num_tasks=t, curve="flat", **changed) for s, t in columns)
        yield [noise, name, *(percent(named_flips(setting, number, rng)) for setting in settings)]


FLIPS = {"equal everywhere": {}, "one 5 sd ahead, but at one rate": {"ahead": 5.0, "equal_at": 1}}

DECIDED = {
    "4 equal": (0.0, 0.0, 0.0, 0.0),
    "one 1 ahead": (1.0, 0.0, 0.0, 0.0),
    "one 2 ahead": (2.0, 0.0, 0.0, 0.0),
    "one 5 ahead": (5.0, 0.0, 0.0, 0.0),
    "two 1.5 ahead": (1.5, 1.5, 0.0, 0.0),
    "2 equal": (0.0, 0.0),
    "of two one 1 ahead": (1.0, 0.0),
    "of two one 2 ahead": (2.0, 0.0),
}
"""Means of the variants, in standard deviations of a run."""


def _decide_table(number: int, rng: np.random.Generator) -> Rows:
    measured = ["wrong difference", "wrong equality", "decided", "of all seeds at once", "coverage"]
    yield ["decide, equal within 1.5 sd, %: variants", "noise", "beside", "tasks", *measured, "seeds a cell"]
    some, means = ("4 equal", "one 2 ahead"), {name: np.array(each) for name, each in DECIDED.items()}
    cases = [(name, "normal", tasks, 1.0) for name, tasks in product(DECIDED, (1, 4))]
    cases += [(name, noise, 1, 1.0) for name, noise in product(some, list(NOISES)[1:])]
    cases += [(name, noise, 1, 1.0) for name, noise in product(("2 equal", "4 equal"), FAILING)]
    cases += [(name, "normal", 1, beside) for name, beside in product(some, (0.3, 10.0))]
    for name, noise, tasks, beside in cases:
        found = deciding(means[name], noise, Settings(min_difference=1.5), number, rng, tasks, beside)
        shares = [found.wrong_difference, found.wrong_equality, found.decided, found.fixed]
        coverage = " to ".join(map(percent, found.coverage))
        labels = [name, noise, f"{beside:g}", str(tasks)]
        yield [*labels, *map(percent, shares), coverage, f"{found.seeds:.1f}"]


TABLES = {
    "claims": _claims_table,
    "power": _power_table,
    "weak": _weak_table,
    "flips": _flips_table,
    "decide": _decide_table,
    "gate": gate_table,
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000, help="in each entry of a table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", choices=TABLES, action="append", help="by default all")
    args = parser.parse_args(arguments)
    for name in args.table or TABLES:
        for index, row in enumerate(TABLES[name](args.studies, np.random.default_rng(args.seed))):
            print(f"| {' | '.join(row)} |", *(["|---" * len(row) + "|"] if not index else []), sep="\n", flush=True)
        print()


if __name__ == "__main__":
    main()
