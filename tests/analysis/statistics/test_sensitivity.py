"""Learning-rate sensitivity by hand; cells: `test_golden_report`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.statistics.sensitivity import mean_shortfall, sensitivities
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


@pytest.mark.parametrize(
    ("rates", "accuracies", "expected"),
    [
        ((1e-4, 1e-3, 1e-2), (0.4, 0.8, 0.6), 0.15),  # 0.4, 0 and 0.2 below the best: per decade 0.2 and 0.1
        ((1e-5, 1e-3, 1e-2), (0.4, 0.8, 0.6), 0.5 / 3),  # two decades at 0.2 on average, one at 0.1
        ((1e-4, 1e-2), (0.4, 0.8), 0.2),
        ((1e-4, 1e-3, 1e-2), (0.4, 0.6, 0.8), 0.2),  # a finer grid on the same line
        ((1e-3,), (0.5,), math.nan),
    ],
)
def test_shortfall_by_hand(rates: tuple[float, ...], accuracies: tuple[float, ...], expected: float) -> None:
    assert mean_shortfall(np.array(rates), np.array(accuracies)) == pytest.approx(expected, nan_ok=True)


def test_missing_rates_are_left_out(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-4, 0, [(300, 0.4, 0.4)])
    made.add(1e-3, 0, [(300, 0.8, 0.8)])
    made.want(1e-2, 0)
    cell = sensitivities(summary_of(made.write())).to_dict("records")[0]
    assert cell["sensitivity"] == pytest.approx(0.2)
    assert (cell["high"], cell["num_rates"]) == (1e-3, 2)
