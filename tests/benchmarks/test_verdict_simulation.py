"""Verdicts are seldom wrong: the short form of the simulation, and its arithmetic by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lr_sweep.analysis.statistics.comparisons.correction import Pairs
from lr_sweep.benchmarks.simulated_studies import (
    FAMILIES,
    REAL,
    Runs,
    Setting,
    drawn,
    exceeds_cost,
    recorded_groups,
    windows_of,
)
from lr_sweep.benchmarks.verdict_simulation import (
    TABLES,
    UNTIL_DECIDED,
    Design,
    differs_at_a_rate,
    judged,
    main,
    share,
)

NUMBER = 400
ERROR = 5 + 3 * 1.09
"""Three standard errors of a share of 5%, in percent, above it."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("design", [Design(3), Design(5), Design(2, 5)], ids=str)
def test_equal_variants_are_seldom_called_different(design: Design, rng: np.random.Generator) -> None:
    assert share(Setting(), design, NUMBER, rng) < ERROR


@pytest.mark.parametrize("noise", ["unequal", "neighbours lose 30"])
def test_fresh_seeds_are_immune_to_the_noise_of_other_rates(noise: str, rng: np.random.Generator) -> None:
    assert share(Setting(noise=noise), Design(2, 5), NUMBER, rng) < ERROR
    assert share(Setting(noise="neighbours lose 30", ahead=5.0), Design(2, 5), NUMBER, rng) > 95


def test_fresh_seeds_find_more_than_the_grid_at_the_same_cost(rng: np.random.Generator) -> None:
    setting = Setting(ahead=2.0, curve="peaked", num_variants=4)
    assert share(setting, Design(2, 5), NUMBER, rng) > share(setting, Design(3), NUMBER, rng)


def test_as_many_seeds_as_it_takes_decide_and_are_seldom_wrong(rng: np.random.Generator) -> None:
    claims, is_false = judged(Setting(ahead=5.0), UNTIL_DECIDED, 50, rng)
    assert (claims.leader == 1).all()
    assert not is_false.any()
    assert (claims.num_seeds >= 4).all()
    assert claims.num_seeds.mean() < 6


def test_fixed_rates_of_equal_variants_seldom_differ(rng: np.random.Generator) -> None:
    assert differs_at_a_rate(Setting(curve="flat"), Design(5), NUMBER, rng) < ERROR


def test_recorded_residuals_have_no_mean_and_the_deviation_of_a_run() -> None:
    """A cell has its residuals at the best rate and its neighbours, which three seeds shrink by sqrt(2 / 3)."""
    cells = [cell for group in recorded_groups() for cell in group]
    assert len(cells) > 100
    assert max(abs(cell.residuals.mean()) / cell.residuals.std() for cell in cells) < 1e-9
    assert {len(cell.residuals) for cell in cells} <= {5, 6, 9, 10, 15}


def test_studies_of_recorded_noise_have_equal_best_rates(rng: np.random.Generator) -> None:
    truth = drawn(Setting(noise=REAL, num_variants=4), 5, 20, rng)
    assert truth.means.shape == (20, 4, 5)
    assert (truth.means.max(-1) == 0).all()
    assert truth.runs(3).validation.shape == (20, 4, 5, 3)


@pytest.mark.parametrize("noise", FAMILIES)
def test_every_family_draws_runs_of_one_shape(noise: str, rng: np.random.Generator) -> None:
    runs = drawn(Setting(noise=noise, num_variants=3), 5, 10, rng).runs(2)
    assert runs.test.shape == (10, 3, 5, 2)
    assert runs.chosen.shape == (10, 3)


def test_windows_and_values_at_a_rate() -> None:
    """Of rates 1, 2, 3 with one seed each, the last has no rate above it."""
    runs, last = np.array([[[[1.0], [2.0], [3.0]]]]), np.array([[2]])
    assert Runs(runs, runs).at(last).test.tolist() == [[[3.0]]]
    assert windows_of(runs, last)[0, 0, :2].tolist() == [[3.0], [2.0]]
    assert np.isnan(windows_of(runs, last)[0, 0, 2]).all()


@pytest.mark.parametrize(("beside", "expected"), [(0.0, False), (-5.0, True)])
def test_a_lead_must_exceed_what_the_choice_may_have_cost(beside: float, expected: bool) -> None:
    """The runs of the second variant at its rate are 1, -1, 1, -1; at its other rate their mean is `beside`."""
    choosing = np.array([[[[3.0, 3.0], [-9.0, -9.0]], [[1.0, -1.0], [beside - 1, beside + 0.99]]]])
    fresh = np.array([[[1.0, 1.0], [1.0, -1.0]]])
    pairs = Pairs(np.array([0]), np.array([1]))
    assert exceeds_cost(Runs(choosing, choosing), Runs(fresh, fresh), pairs).tolist() == [[expected]]


@pytest.mark.slow
def test_every_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--studies", "2", "--table", *TABLES])
    assert capsys.readouterr().out.count("|---|") >= len(TABLES)
