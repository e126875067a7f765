"""The curves that the live page gets: few points, and those that have changed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.sweep.live import curves
from lr_sweep.sweep.live.curves import Curves
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import SyntheticRecord


@pytest.fixture
def made(tmp_path: Path) -> SyntheticRecord:
    """Three runs: 1,000 evaluations, beyond the budget of 300 steps as well; one; none."""
    made = SyntheticRecord(tmp_path)
    for seed, number in enumerate((1000, 1, 0)):
        made.write_curve(made.want(1e-3, seed), [(step, step / 1000, 0.0) for step in range(1, number + 1)])
    return made


def test_a_curve_has_a_hundred_points_within_its_budget(made: SyntheticRecord) -> None:
    _, found = Curves(Results(made.results)).since(0, made.wanted, ACCURACY)
    assert [len(each["steps"]) for each in found] == [30, 1]  # of a hundred over a thousand steps
    assert (found[0]["steps"][0], found[0]["values"][0], found[1]["last"]) == (1, 0.1, "0.1%")
    assert len(Curves(Results(made.results)).read([made.wanted[0]["run_id"]])[made.wanted[0]["run_id"]].points) == 100


def test_many_runs_share_the_points_and_lowest_seeds_come_first(
    made: SyntheticRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "ALL_POINTS", 14)
    monkeypatch.setattr(curves, "MOST_CURVES", 2)
    _, found = Curves(Results(made.results)).since(0, made.wanted[::-1], ACCURACY)
    assert [(each["seed"], len(each["steps"])) for each in found] == [(0, 7), (1, 1)]


def test_a_value_that_is_no_number_is_left_out(made: SyntheticRecord) -> None:
    run = made.wanted[1]
    made.write_curve(run["run_id"], [(1, 0.5, 0.0), (2, math.nan, 0.0), (3, math.inf, 0.0)])
    read = Curves(Results(made.results))
    version, (found,) = read.since(0, [run], ACCURACY)
    assert found["steps"] == [1]
    assert read.since(version, [run], ACCURACY) == (version, [])
