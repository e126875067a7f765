from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.statistics.comparisons.uncertainty import overall, with_interval
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


def small_record(results: Path) -> SyntheticRecord:
    """Three seeds of one variant, one of another, none of a third, equal ones of a fourth."""
    made = SyntheticRecord(results)
    for seed, test in enumerate((0.5, 0.6, 0.7)):
        made.add(1e-4, seed, [(300, 0.3, 0.2)])
        made.add(1e-3, seed, [(300, 0.8, test)])
        made.add(1e-2, seed, [(300, 0.1, 0.1)])
        made.want(1e-3, seed, variant="unfrozen-random")
        made.add(1e-3, seed, [(300, 0.8, 0.5)], variant="unfrozen-pretrained")
    made.add(1e-3, 0, [(300, 0.8, 0.75)], variant="frozen-pretrained")
    made.want(1e-3, 1, variant="frozen-pretrained")
    return made


def test_cells_get_their_intervals(tmp_path: Path) -> None:
    """The t factor of 3 seeds is 4.3027: 0.6 ± 4.3027 x 0.1 / sqrt(3)."""
    intervals = with_interval(summary_of(small_record(tmp_path).write()).cells).set_index("variant")[["low", "high"]]
    assert intervals.loc["frozen-random"].round(4).tolist() == [0.3516, 0.8484]
    assert intervals.loc[["frozen-pretrained", "unfrozen-random"]].isna().all(axis=None)
    assert intervals.loc["unfrozen-pretrained"].tolist() == [0.5, 0.5]


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
