"""The fitted peak of a sweep, and the learning rates that a refinement adds to a grid."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.statistics.rates.further_rates import three_digits
from lr_sweep.analysis.statistics.rates.refinement import (
    LARGEST,
    Curve,
    Observation,
    observations,
    refined_rates,
)
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.tests.support.records import SyntheticRecord


def measured(values: dict[float, float | None]) -> list[Observation]:
    return [Observation(rate, "diverged" if value is None else "measured", value) for rate, value in values.items()]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({1e-4: 0.5, 1e-3: 0.7, 1e-2: 0.6}, [3.16e-3, 3.16e-4]),  # equal steps: the better neighbour first
        ({1e-4: 0.6, 1e-3: 0.7, 1e-2: None}, [3.16e-4, 3.16e-3]),
        ({1e-4: 0.6, 1e-3: 0.7, 2e-3: 0.69}, [3.16e-4, 1.41e-3]),  # the wider interval first
        ({1e-3: 0.5, 1e-2: 0.6, 1e-1: 0.7}, [1.0, 10.0]),  # beyond the edge, in the grid's step
        ({1e-3: 0.7, 3e-3: 0.6, 1e-2: 0.5}, [3e-4, 1e-4]),
        ({1.0: 0.5, 4.0: 0.6, 8.0: 0.7}, [5.66]),  # no rate above 10: the interval inside is halved
        ({1e-3: 0.7, 1e-2: 0.7, 1e-1: 0.6}, [3.16e-3, 3.16e-2]),  # of equals the inner one: no edge
        ({1e-3: None, 1e-2: None}, [1e-4, 1e-5]),
    ],
)
def test_by_hand(values: dict[float, float | None], wanted: list[float]) -> None:
    assert refined_rates(measured(values), 2, maximise=True) == wanted
    assert refined_rates(measured(values), 1, maximise=True) == wanted[:1]


def test_a_loss_is_minimised() -> None:
    values = measured({1e-4: 0.5, 1e-3: 0.4, 1e-2: 0.6})
    assert refined_rates(values, 2, maximise=False) == [3.16e-4, 3.16e-3]


def test_lost_runs_say_nothing() -> None:
    lost = [Observation(rate, "lost", None) for rate in (1e-3, 1e-2, 1e-1)]
    assert refined_rates(lost, 2, maximise=True) == []
    assert refined_rates([*lost, Observation(1.0, "measured", 0.5)], 1, maximise=True) == [10.0]


@given(st.lists(st.integers(-60, 0), min_size=3, max_size=8, unique=True), st.floats(-16, 1), st.integers(1, 12))
def test_a_peak_is_enclosed_ever_more_narrowly(exponents: list[int], peak: float, num_rounds: int) -> None:
    """Whatever the grid: rates are new, within bounds, and the best comes no further from the peak."""
    values = {three_digits(10 ** (each / 4)): 0.0 for each in exponents}
    values = {rate: -abs(math.log10(rate) - peak) for rate in values}
    for _ in range(num_rounds):
        found = refined_rates(measured(dict(values)), 2, maximise=True)
        assert not set(found) & values.keys()
        assert all(0 < rate <= LARGEST and rate == three_digits(rate) for rate in found)
        best = max(values.values())
        values |= {rate: -abs(math.log10(rate) - peak) for rate in found}
        assert max(values.values()) >= best


def test_observations(tmp_path: Path) -> None:
    """Mean over seeds; a rate where a seed has no value diverged, or its run was lost."""
    made = SyntheticRecord(tmp_path)
    for rate, accuracies in ((1e-4, (0.4, 0.6)), (1e-3, (0.6, None)), (1e-2, (0.7, None))):
        for seed, accuracy in enumerate(accuracies):
            if accuracy is not None:
                made.add(rate, seed, [(100, accuracy - 0.1, 0.9), (300, accuracy, 0.1)])
            elif rate == 1e-3:
                made.add(rate, seed, [], status="diverged")
            else:
                made.add(rate, seed, [], status="failed")
    results = made.write()
    wanted = record.read_wanted(results, record.recorded_studies(results)[0])
    curves = record.read_curves(results, names=["run_id", "step", "validation"])
    (found,) = observations(wanted, record.read_runs(results), curves, ACCURACY).values()
    assert found == [
        Observation(1e-4, "measured", 0.5),
        Observation(1e-3, "diverged", None),
        Observation(1e-2, "lost", None),
    ]


def curve(means: list[float] | Floats, sem: float = 0.0) -> Curve:
    """A curve over 1e-5, 1e-4 and so on, with three seeds."""
    size = len(means)
    return Curve(np.arange(size) - 5.0, np.asarray(means), np.full(size, 3 * sem**2), np.full(size, 3))


def test_the_best_rate_is_the_lowest_of_those_equal_but_for_summation_error() -> None:
    assert curve([0.1, 0.3, 0.1 + 0.2, 0.2]).best == 1
