"""Tested flips, from records made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.statistics.comparisons.orders import flips
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

RATES = (1e-4, 1e-3, 1e-2)
SHIFTS = {"a": (-0.01, 0.0, 0.01), "b": (0.005, -0.01, 0.005)}


def flips_of(folder: Path, means: Mapping[str, Sequence[float]], seeds_at_last: int = 3) -> pd.DataFrame:
    """Three seeds at each rate, or fewer at the last one; `a` is tuned at 1e-4, `b` at 1e-3."""
    made = SyntheticRecord(folder)
    for variant, values in means.items():
        for rate, mean in zip(RATES, values, strict=True):
            for seed, shift in list(enumerate(SHIFTS[variant]))[: seeds_at_last if rate == RATES[-1] else 3]:
                made.add(rate, seed, [(300, mean, mean + shift)], variant=variant)
    summary = summary_of(made.write())
    return flips(summary).set_index("learning_rate")


def test_a_flip_is_a_lead_that_is_distinguishable(tmp_path: Path) -> None:
    """Tuned, a leads by 20 points. At 1e-3 b leads by 10, at 1e-2 by 1, of standard errors of about 0.8."""
    found = flips_of(tmp_path, {"a": (0.9, 0.6, 0.49), "b": (0.3, 0.7, 0.50)})
    assert found["flips"].to_dict() == {1e-4: False, 1e-3: True, 1e-2: False}
    row = found.loc[1e-3]
    assert (row["better"], row["worse"], row["num_seeds"]) == ("a", "b", 3)
    assert row["difference"] == pytest.approx(0.1)
    assert row["low"] < 0.1 < row["high"]


def test_a_rate_with_one_seed_is_not_tested(tmp_path: Path) -> None:
    found = flips_of(tmp_path, {"a": (0.9, 0.6, 0.1), "b": (0.3, 0.7, 0.5)}, seeds_at_last=1)
    assert found["p"].isna().to_dict() == {1e-4: False, 1e-3: False, 1e-2: True}
    assert not found.loc[1e-2, "flips"]


def test_of_pairs_that_are_open_when_tuned_nothing_can_flip(tmp_path: Path) -> None:
    assert flips_of(tmp_path, {"a": (0.705, 0.2, 0.1), "b": (0.3, 0.7, 0.5)}).empty
