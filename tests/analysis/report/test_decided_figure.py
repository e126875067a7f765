"""The figure of what fresh seeds decided, with more pairs than it has marks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.report.decided import _figure


def figure_of(num_pairs: int) -> Figure:
    row: dict[str, Any] = {
        "task": "digits",
        "model": "tiny",
        "variant": "a",
        "difference": 0.01,
        "low": 0,
        "high": 0.02,
    }
    looks = pd.DataFrame([row | {"other": f"b{i}", "num_seeds": seeds} for i in range(num_pairs) for seeds in (3, 4)])
    decision: Any = SimpleNamespace(metric=ACCURACY, settings=SimpleNamespace(min_difference=0.0))
    return _figure(looks, decision)


@pytest.mark.parametrize(("num_pairs", "num_drawn"), [(2, 2), (8, 8), (10, 8)])
def test_each_pair_that_is_drawn_has_a_mark_of_its_own(num_pairs: int, num_drawn: int) -> None:
    figure = figure_of(num_pairs)
    (legend,) = figure.legends
    marks = {(line.get_color(), line.get_marker()) for line in legend.get_lines()}
    assert len(marks) == len(legend.get_texts()) == len(figure.axes[0].containers) == num_drawn
    is_said = any("the table has all" in text.get_text().replace("\n", " ") for text in figure.texts)
    assert is_said == (num_drawn < num_pairs)
