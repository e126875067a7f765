"""Which pairs may get another look, and how many seeds that takes."""

from __future__ import annotations

import numpy as np
import pytest

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.statistics.comparisons.decide import Pairs, Settings
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.noise import Noise

A, B = ("task", "model", "a"), ("task", "model", "b")


def decision(num_values: tuple[int, int], num_used: tuple[int, int], max_seeds: int = 8) -> Decision:
    """Two equal variants of much noise: no look decides them."""
    values = np.full((2, max(num_values)), np.nan)
    for row, number in zip(values, num_values, strict=True):
        row[:number] = np.resize([0.0, 1.0], number)
    nothing = np.zeros(2)
    return Decision(
        cells=(A, B),
        rates=(1e-3, 1e-3),
        values=values,
        num_used=np.array(num_used),
        pairs=Pairs.named([(0, 1)]),
        known=Noise(nothing, nothing, nothing),
        known_means=np.full(2, 0.5),
        settings=Settings(max_seeds=max_seeds),
        metric=ACCURACY,
    )


@pytest.mark.parametrize(
    ("num_values", "num_used", "next_", "next_four"),
    [
        ((0, 0), (0, 0), {A: 2, B: 2}, {A: 4, B: 4}),
        ((3, 3), (3, 3), {A: 1, B: 1}, {A: 4, B: 4}),
        ((5, 3), (5, 3), {B: 1}, {A: 2, B: 4}),
        ((6, 6), (6, 6), {A: 1, B: 1}, {A: 2, B: 2}),
        ((8, 4), (8, 4), {B: 1}, {B: 4}),  # the first has no seed left, and the second can catch up
        ((8, 4), (8, 6), {B: 1}, {B: 2}),  # two runs had no value
        ((8, 4), (8, 8), {}, {}),
        ((6, 6), (8, 6), {}, {}),
        ((8, 8), (8, 8), {}, {}),
    ],
)
def test_the_cell_with_fewer_values_gets_the_next_seeds(
    num_values: tuple[int, int],
    num_used: tuple[int, int],
    next_: dict[tuple[str, str, str], int],
    next_four: dict[tuple[str, str, str], int],
) -> None:
    found = decision(num_values, num_used)
    assert found.next_seeds() == next_
    assert found.next_seeds(4) == next_four
    assert found.outcomes == ["open" if next_ else "undecided"]
