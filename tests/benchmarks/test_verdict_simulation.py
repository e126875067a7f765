"""Verdicts are seldom wrong: the short form of the simulation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lr_sweep.analysis.statistics.comparisons.decide import Settings
from lr_sweep.benchmarks.drawn_variants import Setting, drawn
from lr_sweep.benchmarks.gating import FAILING
from lr_sweep.benchmarks.verdict_simulation import (
    DECIDED,
    NOISES,
    TABLES,
    claims,
    deciding,
    false_claims,
    main,
    named_flips,
    power,
)

NUMBER = 1000
ERROR = 0.05 + 3 * 0.0069
"""Three standard errors of a share of 5% above it."""


def some_slow(noises: Iterable[str]) -> list[Any]:
    """All but two kinds of noise are of the slow tests."""
    quick = ("normal", "two modes, 50%")
    return [pytest.param(each, marks=[] if each in quick else pytest.mark.slow) for each in noises]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("noise", some_slow(NOISES))
@pytest.mark.parametrize(("num_variants", "num_tasks"), [(2, 1), (4, 2)])
def test_equal_variants_are_seldom_told_apart(
    noise: str, num_variants: int, num_tasks: int, rng: np.random.Generator
) -> None:
    assert false_claims(Setting(noise=noise, num_variants=num_variants, num_tasks=num_tasks), NUMBER, rng) < ERROR


def test_a_collapse_at_the_next_rate_neither_hides_a_lead_nor_makes_one(rng: np.random.Generator) -> None:
    setting = Setting(num_variants=2, collapses=0.4)
    assert power(replace(setting, ahead=5.0), NUMBER, rng) > 0.95
    assert power(replace(setting, ahead=5.0, depth=10.0), NUMBER, rng) > 0.85
    assert claims(setting, NUMBER, rng).any(-1).mean() < ERROR


def test_a_noisier_variant_does_not_win_on_a_flat_top_of_many_rates(rng: np.random.Generator) -> None:
    setting = Setting(num_variants=2, noise="unequal", curve="flat", num_rates=13)
    assert claims(setting, NUMBER, rng).any(-1).mean() < ERROR


@pytest.mark.parametrize("noise", [noise for noise in NOISES if "of the seed" not in noise])
def test_two_seeds_of_many_variants_are_seldom_told_apart(noise: str, rng: np.random.Generator) -> None:
    """Seeds in two modes at all rates alike are told apart: the check `two-seeds` says so."""
    assert false_claims(Setting(noise=noise, num_variants=8, num_seeds=2), NUMBER, rng) < ERROR


def test_quieter_rates_beside_the_chosen_one_are_seen(rng: np.random.Generator) -> None:
    assert claims(Setting(beside=0.7), NUMBER, rng).any(-1).mean() < ERROR


def test_the_noise_of_three_rates_doubles_the_power(rng: np.random.Generator) -> None:
    setting = Setting(ahead=3.0)
    assert power(setting, NUMBER, rng) > 0.5 > 0.3 > power(setting, NUMBER, rng, plain=True)
    assert power(Setting(ahead=2.0, num_variants=2), NUMBER, rng) > 0.39


@pytest.mark.parametrize(("ahead", "equal_at"), [(0.0, None), (5.0, 1)])
def test_flips_are_seldom_named_where_variants_are_equal(
    ahead: float, equal_at: int | None, rng: np.random.Generator
) -> None:
    setting = Setting(ahead=ahead, equal_at=equal_at, curve="flat")
    assert named_flips(setting, NUMBER, rng) < ERROR


@pytest.mark.parametrize(("noise", "beside"), [("normal", 1.0), ("two modes, 50%", 1.0), ("normal", 10.0)])
@pytest.mark.parametrize("means", ["4 equal", "two 1.5 ahead"])
def test_decide_is_seldom_wrong_and_its_intervals_hold(
    means: str, noise: str, beside: float, rng: np.random.Generator
) -> None:
    found = deciding(np.array(DECIDED[means]), noise, Settings(min_difference=1.5), NUMBER, rng, beside=beside)
    assert found.wrong_difference + found.wrong_equality < ERROR
    assert 0.92 < found.coverage[0] < found.coverage[1] < 0.99  # 93.8 to 97.5%, and three standard errors


@pytest.mark.parametrize("num_variants", [2, 4])
@pytest.mark.parametrize("noise", [each for each in FAILING if "quiet" not in each])
def test_decide_is_seldom_wrong_where_runs_of_one_variant_fail(
    noise: str, num_variants: int, rng: np.random.Generator
) -> None:
    assert deciding(np.zeros(num_variants), noise, Settings(), NUMBER, rng).wrong_difference < ERROR


def test_the_chosen_rate_is_the_best_on_a_peak(rng: np.random.Generator) -> None:
    assert (drawn(Setting(curve="peak"), 10, rng).chosen == 2).all()


@pytest.mark.slow
def test_every_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--studies", "2", *(f"--table={name}" for name in TABLES)])
    assert capsys.readouterr().out.count("|---") > len(TABLES)
