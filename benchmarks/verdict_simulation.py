"""How often verdicts are wrong, and how often they find what is there: `python -m benchmarks.verdict_simulation`.

Studies are drawn with known truth (`benchmarks.drawn_variants`), and judged by the report's own functions. Prints the
tables of docs/statistics.md; numbers depend on `--seed` alone.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.special import stdtr

from lr_sweep.analysis.statistics.checks.variants import QUIETER, UNEQUAL
from lr_sweep.analysis.statistics.comparisons.correction import shaffer
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
from lr_sweep.analysis.statistics.comparisons.noise import (
    WINDOW,
    Noise,
    cell_noise,
    quiet_neighbours,
    welch,
)
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL, choice_luck, without_luck
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.benchmarks.drawn_variants import CURVES, Setting, Studies, drawn, windows
from lr_sweep.benchmarks.gating import FAILING, GATED, NOISES, Rows, gate_table, percent


def compared(
    found: Floats, noise: Noise, pairs: Pairs, behind: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return t and its degrees of freedom, studies x pairs, from windows; `behind`: take the luck of the choice off."""
    means, counts = found[:, :, 0].mean(-1), np.full(found.shape[1], found.shape[-1], float)
    sem, dof = welch(noise, counts, pairs.first, pairs.second)
    difference = means[:, pairs.first] - means[:, pairs.second]
    if behind is not None:
        luck = choice_luck(behind.reshape(*found.shape[:2], -1), noise, counts)
        difference = np.sign(difference) * without_luck(difference, luck, pairs.first, pairs.second)
    return difference / sem, dof


def pairs_of_study(setting: Setting) -> Pairs:
    """Return all pairs of variants of each task."""
    return Pairs.all_of(np.repeat(np.arange(setting.num_tasks), setting.num_variants).tolist())


def distinguished(p: Floats, pairs: Pairs) -> np.ndarray:
    """Return which pairs differ significantly, studies x pairs, as `shaffer` corrects them."""
    order = np.argsort(p, axis=-1)
    corrected = np.maximum.accumulate(np.take_along_axis(p, order, -1) * pairs.most_equal, axis=-1)
    found = np.zeros(p.shape, bool)
    np.put_along_axis(found, order, corrected < LEVEL, -1)
    return found


def significant(studies: Studies, pairs: Pairs) -> tuple[Floats, Noise, np.ndarray]:
    """Return the windows of studies, the noise of their cells, and which pairs differ significantly."""
    found = windows(studies, studies.chosen)
    noise = cell_noise(found)
    t, dof = compared(found, noise, pairs, studies.behind)
    return found, noise, distinguished(2 * stdtr(dof, -np.abs(t)), pairs)


def claims(
    setting: Setting, number: int, rng: np.random.Generator, plain: bool = False
) -> np.ndarray:
    """Return which pairs of drawn studies are distinguishable; `plain`: Welch's test with Holm's correction."""
    studies, pairs = drawn(setting, number, rng), pairs_of_study(setting)
    if not plain:
        return significant(studies, pairs)[-1]
    found = windows(studies, studies.chosen)
    noise = Noise(found[:, :, 0].var(-1, ddof=1), np.full(found.shape[:2], found.shape[-1] - 1.0))
    t, dof = compared(found, noise, pairs)
    return distinguished(
        2 * stdtr(dof, -np.abs(t)), replace(pairs, most_equal=np.arange(t.shape[-1], 0, -1))
    )


def false_claims(setting: Setting, number: int, rng: np.random.Generator) -> float:
    """Return the share of studies of equal variants with any distinguishable pair, on the worse of both curves."""
    return max(
        float(claims(replace(setting, curve=curve), number, rng).any(-1).mean()) for curve in CURVES
    )


def power(setting: Setting, number: int, rng: np.random.Generator, plain: bool = False) -> float:
    """Return the share of pairs with the leading variant that are found."""
    return float(claims(setting, number, rng, plain)[:, pairs_of_study(setting).first == 0].mean())


def named_flips(setting: Setting, number: int, rng: np.random.Generator) -> float:
    """Return the share of studies with a false flip: at `equal_at`, or without it at any rate."""
    studies, pairs = drawn(setting, number, rng), pairs_of_study(setting)
    at_chosen = windows(studies, studies.chosen)
    t, dof = compared(at_chosen, cell_noise(at_chosen), pairs, studies.behind)
    sure, sign = distinguished(2 * stdtr(dof, -np.abs(t)), pairs), np.sign(t)
    one_sided = np.full((number, setting.num_rates, sure.shape[-1]), np.nan)
    for rate in range(setting.num_rates):
        found = windows(studies, np.full_like(studies.chosen, rate))
        t, dof = compared(found, cell_noise(found), pairs)
        one_sided[:, rate] = np.where(sure, stdtr(dof, t * sign), np.nan)
    every = one_sided.reshape(number, -1)
    flips = np.array([shaffer(row, range(len(row))) < LEVEL for row in every]).reshape(
        one_sided.shape
    )
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
        np.where(np.arange(settings.max_seeds) < used[..., None], values, np.nan),
        pairs,
        settings,
        known,
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
    noise = Noise(values.var(-1, ddof=1), np.full(values.shape[:2], number - 1.0)).pooled_with(
        known
    )
    means = values.mean(-1)
    difference = means[:, pairs.first] - means[:, pairs.second]
    sem, dof = welch(noise, np.full(values.shape[1], float(number)), pairs.first, pairs.second)
    different = distinguished(2 * stdtr(dof, -np.abs(difference) / sem), pairs)
    p_equal = stdtr(dof, (np.abs(difference) - settings.min_difference) / sem)
    return different | (p_equal < settings.error / len(pairs.first))


NUM_TASKS, NUM_SEEDS, NUM_VARIANTS = (1, 2, 4, 6), (2, 3, 5, 10), (2, 4, 8)


def _claims_table(number: int, rng: np.random.Generator) -> Rows:
    columns = list(product(NUM_SEEDS, NUM_TASKS))
    yield [
        "false claims, %: noise",
        "variants",
        *(f"{seeds} seeds, {tasks} tasks" for seeds, tasks in columns),
    ]
    for noise, variants in product(NOISES, NUM_VARIANTS):
        settings = (
            Setting(noise=noise, num_variants=variants, num_seeds=s, num_tasks=t)
            for s, t in columns
        )
        yield [
            noise,
            str(variants),
            *(percent(false_claims(setting, number, rng)) for setting in settings),
        ]


def _power_table(number: int, rng: np.random.Generator) -> Rows:
    aheads = (1, 2, 3, 5)
    yield ["power, %: test", "variants", "seeds", *(f"{ahead} sd" for ahead in aheads)]
    for plain, variants, seeds in product((True, False), (2, 4), NUM_SEEDS):
        settings = (
            Setting(ahead=ahead, num_variants=variants, num_seeds=seeds) for ahead in aheads
        )
        found = [percent(power(setting, number, rng, plain)) for setting in settings]
        yield [
            "Welch, Holm" if plain else "noise of three rates, Shaffer",
            str(variants),
            str(seeds),
            *found,
        ]


def _collapses_table(number: int, rng: np.random.Generator) -> Rows:
    yield [
        "40% collapse at the next rate, %",
        "variants",
        "by, sd",
        *(f"{seeds} seeds" for seeds in NUM_SEEDS),
    ]
    for variants, depth in product((2, 4), (10.0, 30.0, 100.0)):
        settings = [
            Setting(num_variants=variants, num_seeds=s, collapses=0.4, depth=depth)
            for s in NUM_SEEDS
        ]
        labels, ahead = (
            [str(variants), f"{depth:g}"],
            (replace(each, ahead=5.0) for each in settings),
        )
        yield [
            "false claims",
            *labels,
            *(percent(claims(each, number, rng).any(-1).mean()) for each in settings),
        ]
        yield ["5 sd found", *labels, *(percent(power(each, number, rng)) for each in ahead)]


def _flat_table(number: int, rng: np.random.Generator) -> Rows:
    yield [
        "flat tops, false claims, %: noise",
        "variants",
        "seeds",
        *(f"{rates} rates" for rates in (3, *MANY_RATES)),
    ]
    for noise, variants, seeds in product(ON_FLAT_TOPS, (2, 4), (3, 5)):
        same = Setting(noise=noise, num_variants=variants, num_seeds=seeds, curve="flat")
        settings = (replace(same, num_rates=rates) for rates in (3, *MANY_RATES))
        yield [
            noise,
            str(variants),
            str(seeds),
            *(percent(claims(s, number, rng).any(-1).mean()) for s in settings),
        ]


MANY_RATES = (5, 7, 9, 13)
ON_FLAT_TOPS = ("normal", "unequal", "skewed, unequal", "lognormal, unequal")

WEAK = {
    "the rates beside 30% quieter": {"beside": 0.7},
    "half as noisy": {"beside": 0.5},
    "a fifth as noisy": {"beside": 0.2},
    "70% of the variance of the seed": {"shared": 0.7},
    "90% of it": {"shared": 0.9},
}


def _weak_table(number: int, rng: np.random.Generator) -> Rows:
    columns = list(product((3, 5), NUM_TASKS))
    yield [
        "weak spots, false claims, %",
        *(f"{seeds} seeds, {tasks} tasks" for seeds, tasks in columns),
    ]
    for name, weak in WEAK.items():
        settings = (Setting(num_seeds=seeds, num_tasks=tasks, **weak) for seeds, tasks in columns)
        yield [
            name,
            *(percent(claims(setting, number, rng).any(-1).mean()) for setting in settings),
        ]


NAMED = {
    "unequal, 6 tasks": {"noise": "unequal", "num_tasks": 6},
    "skewed, unequal": {"noise": "skewed, unequal"},
    "lognormal, unequal": {"noise": "lognormal, unequal"},
    "skewed, unequal, flat top of 13 rates": {
        "noise": "skewed, unequal",
        "curve": "flat",
        "num_rates": 13,
    },
    "lognormal, unequal, flat top of 13 rates": {
        "noise": "lognormal, unequal",
        "curve": "flat",
        "num_rates": 13,
    },
    "the rates beside half as noisy": {"beside": 0.5},
    "the rates beside a fifth as noisy": {"beside": 0.2},
}


def named(setting: Setting, number: int, rng: np.random.Generator) -> list[float]:
    """Return the shares of studies with a false claim, and of these those in which a check says why it may be false.

    The checks are `unequal-noise` and `quiet-neighbours`, in this order.
    """
    studies, pairs = drawn(setting, number, rng), pairs_of_study(setting)
    found, noise, sure = significant(studies, pairs)
    is_false, one, other = (
        sure.any(-1),
        noise.variance[:, pairs.first],
        noise.variance[:, pairs.second],
    )
    unequal = sure & (np.maximum(one, other) > UNEQUAL**2 * np.minimum(one, other))
    quiet = [quiet_neighbours(each)[1] < QUIETER for each in found[is_false]]
    number_false = max(int(is_false.sum()), 1)
    return [
        float(is_false.mean()),
        unequal.any(-1)[is_false].sum() / number_false,
        sum(quiet) / number_false,
    ]


def _named_table(number: int, rng: np.random.Generator) -> Rows:
    yield [
        "weak spots, %",
        "variants",
        "seeds",
        "false claims",
        "named by unequal-noise",
        "by quiet-neighbours",
    ]
    for (name, weak), variants, seeds in product(NAMED.items(), (2, 4), (3, 5)):
        found = named(Setting(num_variants=variants, num_seeds=seeds, **weak), number, rng)
        yield [name, str(variants), str(seeds), *map(percent, found)]


def _flips_table(number: int, rng: np.random.Generator) -> Rows:
    columns = list(product(NUM_SEEDS, (1, 4)))
    yield [
        "false flips, %: noise",
        "variants",
        *(f"{seeds} seeds, {tasks} tasks" for seeds, tasks in columns),
    ]
    for noise, (name, changed) in product(NOISES, FLIPS.items()):
        settings = (
            Setting(noise=noise, num_seeds=s, num_tasks=t, curve="flat", **changed)
            for s, t in columns
        )
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
    yield [
        "decide, equal within 1.5 sd, %: variants",
        "noise",
        "beside",
        "tasks",
        *measured,
        "seeds a cell",
    ]
    some, means = (
        ("4 equal", "one 2 ahead"),
        {name: np.array(each) for name, each in DECIDED.items()},
    )
    cases = [(name, "normal", tasks, 1.0) for name, tasks in product(DECIDED, (1, 4))]
    cases += [(name, noise, 1, 1.0) for name, noise in product(some, list(NOISES)[1:])]
    cases += [(name, noise, 1, 1.0) for name, noise in product(("2 equal", "4 equal"), FAILING)]
    cases += [(name, "normal", 1, beside) for name, beside in product(some, (0.3, 10.0))]
    for name, noise, tasks, beside in cases:
        found = deciding(
            means[name], noise, Settings(min_difference=1.5), number, rng, tasks, beside
        )
        shares = [found.wrong_difference, found.wrong_equality, found.decided, found.fixed]
        coverage = " to ".join(map(percent, found.coverage))
        labels = [name, noise, f"{beside:g}", str(tasks)]
        yield [*labels, *map(percent, shares), coverage, f"{found.seeds:.1f}"]


TABLES = {
    "claims": _claims_table,
    "power": _power_table,
    "collapses": _collapses_table,
    "flat": _flat_table,
    "weak": _weak_table,
    "named": _named_table,
    "flips": _flips_table,
    "decide": _decide_table,
    "gate": gate_table,
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=2000, help="in each entry of a table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", choices=TABLES, action="append", help="by default all")
    args = parser.parse_args(arguments)
    for name in args.table or TABLES:
        for index, row in enumerate(TABLES[name](args.studies, np.random.default_rng(args.seed))):
            print(
                f"| {' | '.join(row)} |",
                *(["|---" * len(row) + "|"] if not index else []),
                sep="\n",
                flush=True,
            )
        print()


if __name__ == "__main__":
    main()
