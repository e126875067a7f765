"""How often verdicts are wrong, and how often they find a lead: `python -m benchmarks.verdict_simulation`.

Studies of known truth (`benchmarks.simulated_studies`) are judged by the report's own functions. Prints
the tables of docs/statistics.md; numbers depend on `--seed` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from lr_sweep.analysis.statistics.comparisons import noise
from lr_sweep.analysis.statistics.comparisons.correction import LEVEL, holm
from lr_sweep.analysis.statistics.comparisons.power import POWER, findable
from lr_sweep.analysis.statistics.selection.best import Bools
from lr_sweep.benchmarks.shared import options, print_table
from lr_sweep.benchmarks.simulated_studies import (
    COLLAPSES,
    CURVES,
    FAILURES,
    FAMILIES,
    REAL,
    Compared,
    Setting,
    by_all_seeds,
    compared,
    drawn,
    windows_of,
)


@dataclass(frozen=True)
class Design:
    """Rates and seeds of a study."""

    seeds: int
    """Seeds at every rate, which choose the rates."""
    fresh: int = 0
    """Fresh seeds at the chosen rates, or the most of them; 0: the first seeds are compared."""
    until_decided: bool = False
    num_rates: int = 5
    is_conditional: bool = True
    """Whether a lead counts only if it exceeds the cost of the choice, and no failure is unexplained."""

    def __str__(self) -> str:
        fresh = f" choose, {'4 to ' * self.until_decided}{self.fresh} fresh" if self.fresh else ""
        uncounted = "" if self.is_conditional else ", any lead"
        return f"{self.num_rates} rates, {self.seeds}{fresh or ' seeds'}{uncounted}"


GRIDS = (Design(3), Design(5), Design(10))
FRESH = (Design(2, 5), Design(3, 5))
UNTIL_DECIDED = Design(2, 20, until_decided=True)
DESIGNS = (*GRIDS, *FRESH)
ANY_LEAD = tuple(replace(design, is_conditional=False) for design in FRESH)
ALL_DESIGNS = (*DESIGNS, UNTIL_DECIDED, *ANY_LEAD)


def judged(
    setting: Setting, design: Design, number: int, rng: np.random.Generator
) -> tuple[Compared, Bools]:
    """Train studies and compare their variants; also return which leads are false of the best rates, a pair each."""
    truth = drawn(setting, design.num_rates, number, rng)
    choosing = truth.runs(design.seeds)
    fresh = truth.runs(design.fresh).at(choosing.chosen)
    rules = {name: getattr(design, name) for name in ("until_decided", "is_conditional")}
    claims = compared(truth, choosing, fresh, **rules)
    is_false = (claims.leader != 0) & (claims.leader != np.sign(truth.differences))
    return claims, is_false


Measure = Callable[[Setting, Design, int, np.random.Generator], float]


def share(setting: Setting, design: Design, number: int, rng: np.random.Generator) -> float:
    """Return the share of studies with a false claim; with a lead, that of its pairs in which it is found."""
    claims, is_false = judged(setting, design, number, rng)
    if not setting.ahead:
        return 100 * float(is_false.any(-1).mean())
    return 100 * float((claims.leader[:, : setting.num_variants - 1] == 1).mean())


def differs_at_a_rate(
    setting: Setting, design: Design, number: int, rng: np.random.Generator
) -> float:
    """Return the share of studies of equal variants with a significant difference at some fixed rate."""
    truth = drawn(setting, design.num_rates, number, rng)
    runs = truth.runs(design.seeds).test
    rates = [np.full(runs.shape[:2], rate) for rate in range(design.num_rates)]
    p = [by_all_seeds(windows_of(runs, rate), truth.pairs, None).p for rate in rates]
    corrected = np.apply_along_axis(holm, -1, np.concatenate(p, axis=-1))
    return 100 * float((corrected < LEVEL).any(-1).mean())


def _settings(**choices: Sequence[Any]) -> list[Setting]:
    """Return a setting for each combination."""
    return [
        Setting(**dict(zip(choices, values, strict=True))) for values in product(*choices.values())
    ]


class Table(NamedTuple):
    """A table with a row a setting and a column a design."""

    settings: Sequence[Setting]
    designs: Sequence[Design] = DESIGNS
    measure: Measure = share

    def rows(self, number: int, rng: np.random.Generator) -> Iterator[list[str]]:
        """Yield the rows, the header first."""
        yield ["noise", "variants", "curve", "lead, sd", *map(str, self.designs)]
        for setting in self.settings:
            labels = [setting.noise, str(setting.num_variants), setting.curve, f"{setting.ahead:g}"]
            numbers = (self.measure(setting, design, number, rng) for design in self.designs)
            yield [*labels, *(f"{value:.3g}" for value in numbers)]


SIZES, LEADS = (2, 4), (1.0, 2.0, 3.0, 5.0)
ON_REAL_NOISE = Table(_settings(noise=[REAL], num_variants=SIZES), ALL_DESIGNS)
COLLAPSING = _settings(noise=tuple(COLLAPSES), num_variants=SIZES, ahead=(0.0, 5.0))
FLAT = _settings(noise=FAMILIES[:3], num_variants=SIZES, curve=["flat"])
BY_SETTING = {
    "claims": Table(_settings(noise=FAMILIES, num_variants=SIZES, curve=tuple(CURVES))),
    "power": Table(
        _settings(num_variants=SIZES, curve=tuple(CURVES), ahead=LEADS), (*DESIGNS, *ANY_LEAD)
    ),
    "collapses": Table(COLLAPSING),
    "failures": Table(_settings(noise=tuple(FAILURES), num_variants=SIZES), ALL_DESIGNS),
    "flips": Table(FLAT, GRIDS, differs_at_a_rate),
}
DROPPED = {
    "all rules": ("WINDOW", noise.WINDOW),
    "no pooled noise": ("ENOUGH_SEEDS", 0),
    "no F test of the cell": ("NOISIER_THAN_CELL", 1.0),
    "no F test of the study": ("NOISIER_THAN_STUDY", 1.0),
    "noise of all three rates": ("NOISIER_THAN_CELL", 0.0),
}
"""Values of constants of `noise` that take a rule away."""


def _real_rows(number: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yield the table of false claims on real noise, with all rules and without each of them."""
    for rule, (constant, value) in DROPPED.items():
        with mock.patch.object(noise, constant, value):
            header, *rows = ON_REAL_NOISE.rows(number, rng)
        yield from ([rule, *row] for row in ([header] * (rule == "all rules") + rows))


def _plan_rows(number: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yield the lead that would be found in 80% of studies, and the share in which it is."""
    yield ["variants", "seeds", "lead, sd", "found, %", "wanted, %"]
    for variants, seeds, is_fresh in product((2, 3), (3, 5, 7, 10), (False, True)):
        num_pairs = variants * (variants - 1) // 2
        lead = float(findable(1.0, seeds, num_pairs, is_fresh=is_fresh))
        setting = Setting(num_variants=variants, ahead=lead, curve="peaked")
        design = Design(1, seeds, num_rates=1) if is_fresh else Design(seeds)
        kind = "fresh" if is_fresh else "own"
        percent = share(setting, design, number, rng)
        yield [
            str(variants),
            f"{seeds} {kind}",
            f"{lead:.2f}",
            f"{percent:.1f}",
            f"{100 * POWER:g}",
        ]


TABLES: dict[str, Callable[[int, np.random.Generator], Iterator[list[str]]]] = {
    "real": _real_rows,
    **{name: table.rows for name, table in BY_SETTING.items()},
    "plan": _plan_rows,
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    given = options(__doc__, arguments, studies=2000, seed=0, table=TABLES)
    for name in given.table:
        print_table(TABLES[name](given.studies, np.random.default_rng(given.seed)))
        print()


if __name__ == "__main__":
    main()
