from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.report.tables import interval_table
from lr_sweep.analysis.statistics.comparisons.uncertainty import intervals, overall, t_factor
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


@pytest.mark.parametrize(("num_seeds", "factor"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262)])
def test_t_factors_are_those_of_printed_tables(num_seeds: int, factor: float) -> None:
    assert t_factor(num_seeds) == pytest.approx(factor, abs=5e-4)


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


def test_cells_get_their_intervals_or_the_reason(tmp_path: Path) -> None:
    numbers = intervals(summary_of(small_record(tmp_path).write()))
    found = numbers.set_index("variant")
    three, one, none = (found.loc[name] for name in ("frozen-random", "frozen-pretrained", "unfrozen-random"))
    # 0.6 ± 4.3027 x 0.1 / sqrt(3).
    assert [round(three[x], 4) for x in ("low", "high")] == [0.3516, 0.8484]
    assert three["note"] == ""
    assert found.loc[["frozen-pretrained", "unfrozen-random"], ["low", "high"]].isna().all(axis=None)
    assert one["note"] == "one seed: no interval; runs missing or failed, all of this may change"
    assert none["note"].startswith("no value: no interval")
    assert found.loc["unfrozen-pretrained", "note"] == "no spread between seeds"
    rows = {row[2]: row[3:] for row in interval_table(numbers).rows}
    assert rows["frozen-pretrained"][:4] == ("1e-3", "1 of 2", "75.0", "–")
    assert rows["unfrozen-random"][:4] == ("–", "0 of 3", "–", "–")


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
