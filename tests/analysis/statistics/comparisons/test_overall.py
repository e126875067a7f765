"""Variants over several tasks, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata, trim_mean

from lr_sweep.analysis.statistics.comparisons.overall import QUARTER, _middle, _ranks, overall
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

TESTS = {
    ("mnist", "a"): (0.9, 0.9),
    ("mnist", "b"): (0.8, 0.6),
    ("cifar10", "a"): (0.4, 0.4),
    ("cifar10", "b"): (0.5, 0.7),
    ("listops", "a"): (0.6, 0.6),
    ("listops", "b"): (0.1, 0.1),
}


def two_variants(folder: Path) -> Path:
    made = SyntheticRecord(folder)
    for (task, variant), tests in TESTS.items():
        for seed, test in enumerate(tests):
            made.add(1e-3, seed, [(300, 0.5, test)], task=task, variant=variant)
    made.add(1e-3, 0, [(300, 0.5, 0.5)], task="mnist", variant="c")  # without a value on the others
    return made.write()


def test_ranks_and_interquartile_means(tmp_path: Path) -> None:
    """a is first, second, first. Of its six values 0.4, 0.4, 0.6, 0.6, 0.9, 0.9 the middle four average 0.625."""
    found = overall(summary_of(two_variants(tmp_path)), np.random.default_rng(0)).set_index("variant")
    assert list(found.index) == ["a", "b"]
    assert found["mean_rank"].tolist() == pytest.approx([4 / 3, 5 / 3])
    assert found.loc["a", ["rank_low", "rank_high"]].tolist() == pytest.approx([4 / 3, 4 / 3])  # no draw changes it
    assert found["iqm"].tolist() == pytest.approx([(0.4 + 0.6 + 0.6 + 0.9) / 4, (0.1 + 0.5 + 0.6 + 0.7) / 4])
    assert found.loc["b", "iqm_low"] < found.loc["b", "iqm"] < found.loc["b", "iqm_high"]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 12])
def test_ranks_and_middles_are_those_of_scipy(number: int) -> None:
    values = np.random.default_rng(0).integers(0, 5, (6, 3, number)).astype(float)
    assert np.array_equal(_ranks(values), rankdata(values, axis=0))
    assert np.allclose(_middle(values), trim_mean(values, QUARTER, axis=-1))
