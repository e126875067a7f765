"""What fresh seeds decided: the sentence that opens a report, and a figure with more pairs than it has marks."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.decided import _figure, decided_texts


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


def test_the_best_variant_s_lead_over_the_closest_comes_first() -> None:
    """by hand, losses: c leads all, a leads b and d; c's leads are 0.1, 0.3 and one unknown."""
    pairs = [("a", "b", -0.2), ("a", "c", 0.1), ("a", "d", -0.4), ("b", "c", 0.3), ("c", "d", math.nan)]
    table = pd.DataFrame(
        [
            {
                "task": "text",
                "model": "tiny",
                "variant": one,
                "other": other,
                "difference": difference,
                "low": difference - 0.05,
                "high": difference + 0.05,
                "outcome": "open" if math.isnan(difference) else "ahead",
                "num_seeds": 0 if math.isnan(difference) else 3,
            }
            for one, other, difference in pairs
        ]
    )
    settings = SimpleNamespace(min_difference=0.0)
    decision: Any = SimpleNamespace(
        metric=Metric(name="loss", higher_is_better=False, is_fraction=False), settings=settings, table=lambda: table
    )
    assert decided_texts(decision)["text", "tiny"] == (
        "By fresh seeds, which chose nothing, c beats a by 0.100 (95% interval 0.050 to 0.150): decided with 3 seeds; "
        "c beats b by 0.300 (95% interval 0.250 to 0.350): decided with 3 seeds; c and d are not compared yet; "
        "and 2 more pairs."
    )
