"""Seeds in two groups, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.statistics.checks.significance import Modes, two_modes
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

STEADY = (0.80, 0.81, 0.82, 0.805, 0.815)
STUCK = (0.50, 0.81, 0.82, 0.51, 0.815)


def swept(folder: Path, chosen: Sequence[float], beside: Sequence[float]) -> Path:
    made = SyntheticRecord(folder)
    for rate, tests, validation in ((1e-4, beside, 0.5), (1e-3, chosen, 0.9), (1e-2, STEADY, 0.5)):
        for seed, test in enumerate(tests):
            made.add(rate, seed, [(300, validation, test)], variant="a")
    return made.write()


def test_two_groups_of_seeds_are_named(tmp_path: Path) -> None:
    found = two_modes(summary_of(swept(tmp_path, STUCK, STEADY)))
    assert list(found.values()) == [Modes(1e-3, low=(0.50, 0.51), high=(0.81, 0.815, 0.82))]


def test_they_are_seen_at_a_rate_beside_the_chosen_one(tmp_path: Path) -> None:
    (found,) = two_modes(summary_of(swept(tmp_path, STEADY, STUCK))).values()
    assert found.learning_rate == 1e-4


@pytest.mark.parametrize("chosen", [STEADY, (0.80, 0.80, 0.80, 0.81, 0.81), (0.8, 0.8)])
def test_seeds_around_one_mean_are_not(tmp_path: Path, chosen: Sequence[float]) -> None:
    assert two_modes(summary_of(swept(tmp_path, chosen, STEADY))) == {}


def test_noise_that_grows_with_the_rate_is_no_second_mode(tmp_path: Path) -> None:
    """Each rate is 4 times as noisy as the last, in all of 8 cells: the widest gaps are all at the largest one."""
    made, rng = SyntheticRecord(tmp_path), np.random.default_rng(0)
    for cell in range(8):
        for rate, noise, validation in ((1e-4, 0.0025, 0.5), (1e-3, 0.01, 0.9), (1e-2, 0.04, 0.5)):
            for seed, test in enumerate(0.5 + noise * rng.normal(size=5)):
                made.add(rate, seed, [(300, validation, test)], variant=f"v{cell}")
    assert two_modes(summary_of(made.write())) == {}


def test_the_check_prints_the_seeds(tmp_path: Path) -> None:
    read = read_summary(swept(tmp_path, STUCK, STEADY), "small")
    (found,) = [each for each in check_sweep(read.summary, read.curves) if each.check == "two-modes"]
    assert found.message == "at 1e-3 its seeds fall into two groups, 50.0 51.0 and 81.0 81.5 82.0"
