"""Planted loops that are killed: what their outcome is called, and two of them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.benchmarks.preempted.harness import Kill, Outcome, Result, kills_of, results_of
from lr_sweep.benchmarks.preempted.table import LOOPS

BY_NAME = {loop.name: loop for loop in LOOPS}


@pytest.mark.parametrize(
    ("equal", "resumed", "not_saved", "outcome"),
    [
        (True, "exactly", (), "equal"),
        (True, "inexactly", ("epoch in train",), "equal"),
        (False, "inexactly", ("epoch in train",), "named"),
        (False, "inexactly", (), "silent"),
        (False, "unchecked", (), "unchecked"),
        (False, "exactly", (), "silent"),
    ],
)
def test_a_difference_is_named_or_silent(
    equal: bool, resumed: str, not_saved: tuple[str, ...], outcome: Outcome
) -> None:
    kill = Kill(saved_at=3, lost=None)
    assert Result(kill=kill, equal=equal, resumed=resumed, not_saved=not_saved).outcome == outcome


def test_kills_are_of_both_kinds_and_before_the_end() -> None:
    kills = list(kills_of(BY_NAME["loader"], 0))
    assert [kill.lost is None for kill in kills] == [False, True, False, True, False]
    assert all(1 <= kill.saved_at + (kill.lost or 0) < BY_NAME["loader"].num_steps for kill in kills)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "outcome"), [("accumulate-16", "equal"), ("epoch-counter", "named")])
def test_a_killed_loop_is_equal_or_named(name: str, outcome: Outcome, tmp_path: Path) -> None:
    first = next(results_of(BY_NAME[name], tmp_path, seed=0))
    assert first.outcome == outcome
