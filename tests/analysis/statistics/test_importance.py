"""Shares of the variance: worked out by hand, unbiased by simulation, and fast."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.report.further_tables import importance_table
from lr_sweep.analysis.statistics.importance import AXES, COMPONENTS, importances
from lr_sweep.analysis.statistics.uncertainty import Floats

RATES = (1e-5, 1e-4, 1e-3, 1e-2)


def runs(grid: Floats) -> pd.DataFrame:
    """Runs of one task and model with these accuracies, rates x variants x seeds."""
    levels = [RATES[: len(grid)], [f"v{i}" for i in range(grid.shape[1])], range(grid.shape[2])]
    frame = pd.MultiIndex.from_product(levels, names=AXES).to_frame(index=False)
    return frame.assign(task="mnist", model="gpt2", validation_accuracy=grid.ravel())


def test_shares_by_hand() -> None:
    """Two rates, one variant, two seeds: 0, 2 and 4, 8.

    Total: mean 3.5, 12.25 + 2.25 + 0.25 + 20.25 = 35. Rates: means 1 and 6, 4 x 2.5^2 = 25. Seeds: 2 and 5,
    4 x 1.5^2 = 9. Noise: 35 - 25 - 9 = 1, of one degree of freedom. Shares: 24 / 36, 8 / 36, and 4 / 36 left.
    """
    (row,) = importances(runs(np.array([[[0.0, 2.0]], [[4.0, 8.0]]]))).to_dict("records")
    assert [row[name] for name in COMPONENTS] == pytest.approx([24 / 36, 0, 0, 8 / 36, 4 / 36])
    assert (row["num_runs"], row["note"]) == (4, "")


def test_an_interaction_by_hand() -> None:
    """Variant 0 is 1 ahead at one rate and 1 behind at the other, in both seeds: nothing else varies."""
    (row,) = importances(runs(np.array([[[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]]))).to_dict("records")
    assert [row[name] for name in COMPONENTS] == pytest.approx([0, 0, 1, 0, 0])


@pytest.mark.parametrize("unit", [1e-13, 2.0**40])
def test_shares_are_those_of_any_unit(unit: float) -> None:
    """As by hand above; runs that are all 0.1 have no shares, though their mean has another last bit."""
    (row,) = importances(runs(unit * np.array([[[0.0, 2.0]], [[4.0, 8.0]]]))).to_dict("records")
    assert [row[name] for name in COMPONENTS] == pytest.approx([24 / 36, 0, 0, 8 / 36, 4 / 36])
    (row,) = importances(runs(unit * np.full((3, 1, 2), 0.1))).to_dict("records")
    assert row["note"] == "every run has the same value"


@pytest.mark.parametrize("num_seeds", [3, 10])
def test_noise_is_not_blamed_on_the_seed(num_seeds: int) -> None:
    """Accuracy follows the rate, and noise that is as large: over 300 studies the mean share of the seed is 0."""
    rng = np.random.default_rng(0)
    by_rate = np.array([0.2, 0.4, 0.6, 0.4])[:, None, None]
    drawn = [importances(runs(by_rate + rng.normal(0, 0.15, (4, 4, num_seeds)))) for _ in range(300)]
    shares = pd.concat(drawn)[COMPONENTS]
    assert shares["seed"].mean() == pytest.approx(0, abs=3 * shares["seed"].sem())
    assert shares["variant"].mean() == pytest.approx(0, abs=3 * shares["variant"].sem())
    assert shares["seed"].sem() < 0.005
    # Of the variance 0.02 are the rate's and 0.0225 noise.
    assert shares["learning_rate"].mean() == pytest.approx(0.02 / 0.0425, abs=0.02)
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1)


def test_500_seeds_take_milliseconds() -> None:
    frame = runs(np.random.default_rng(0).normal(size=(4, 4, 500)))
    began = time.process_time()
    (row,) = importances(frame).to_dict("records")
    assert time.process_time() - began < 1
    assert row["num_runs"] == 8000


def test_what_makes_the_grid_incomplete_is_left_out_and_named() -> None:
    """A rate lacks one of six runs, a seed one of eight: leaving out the rate costs the least."""
    grid = np.random.default_rng(0).normal(size=(4, 2, 3))
    full = importances(runs(grid[:3])).to_dict("records")[0]
    grid[3, 1, 2] = math.nan
    (row,) = importances(runs(grid)).to_dict("records")
    assert row["note"] == "left out, as runs of it have no value: 1e-2"
    assert row["num_runs"] == 18
    assert [row[name] for name in COMPONENTS] == pytest.approx([full[name] for name in COMPONENTS])


def test_why_there_is_no_share() -> None:
    flat = importances(runs(np.full((2, 2, 2), 0.5)))
    assert flat["note"].tolist() == ["every run has the same value"]
    one_seed = importances(runs(np.random.default_rng(0).normal(size=(3, 2, 1))))
    assert one_seed["note"].tolist() == ["noise is not known: two seeds and two learning rates or variants are needed"]
    none = importances(runs(np.full((2, 2, 2), math.nan)))
    assert none["num_runs"].tolist() == [0]
    assert none[COMPONENTS].isna().all(axis=None)


def test_the_table_writes_no_negative_share() -> None:
    shares = pd.DataFrame(
        [{"task": "mnist", "model": "gpt2", "num_runs": 4, "note": ""} | dict.fromkeys(COMPONENTS, 0.0)]
    )
    frame = runs(np.zeros((2, 2, 2))).assign(data_origin=None, pretrained_on=None)
    table = importance_table(frame, shares.assign(seed=-0.004, noise=math.nan))
    assert table.rows == (("mnist", "gpt2", "4", "0", "0", "0", "0", "–", ""),)
