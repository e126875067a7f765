"""The noise of recorded runs, worked out by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from lr_sweep.analysis.recorded_noise import noise_by_group
from lr_sweep.analysis.statistics.selection.best import CELL


def test_noise_is_pooled_over_the_cells_of_a_task_and_model() -> None:
    """The variances are 2 of two seeds and 1 of three: the root of (2 + 2) / 3."""
    cells = [("digits", "tiny", "a", 0.0), ("digits", "tiny", "a", 2.0)]
    cells += [("digits", "tiny", "b", value) for value in (4.0, 5.0, 6.0)]
    cells += [("other", "tiny", "a", 7.0), ("other", "tiny", "b", 1.0)]  # one seed each says nothing
    runs = pd.DataFrame(cells, columns=[*CELL, "test"])
    assert noise_by_group(runs) == {("digits", "tiny"): pytest.approx(math.sqrt(4 / 3))}
