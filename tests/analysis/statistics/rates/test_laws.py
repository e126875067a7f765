"""Laws of the best learning rate, on lines worked out by hand and on tables of curves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.statistics.rates.laws import fitted, laws, of_contents, of_labels
from lr_sweep.benchmarks.law_simulation import Grid
from lr_sweep.benchmarks.law_simulation import laws as simulated_laws

pytestmark = pytest.mark.usefixtures("undrawn")
WIDTHS = (128, 256, 512, 1024)
MUP_ISSUE = (-8.7, -9.6, -10.7, -11.3)
"""log2 of the optima over four widths, of issue 66 of github.com/microsoft/mup."""


def found(optima: list[float], **further: object) -> pd.DataFrame:
    names = [f"v{i}" for i in range(len(optima))]
    at = np.array(optima, float)
    known = {"optimum": at, "low": at / 1.01, "high": at * 1.01, "error": 0.001, "note": ""}
    return pd.DataFrame({"task": "t", "model": "m", "variant": names} | known | further)


def test_a_line_by_hand() -> None:
    """Sizes 0, 1, 2 and optima 0, -1.2, -1.8: slope -0.9, residuals -0.1, 0.2, -0.1, squared 0.06 together.

    Errors of 0.1 count as 2 degrees of freedom, so the variance is (2 x 0.01 + 0.06) / 3, with 3 of them.
    """
    line = fitted(np.arange(3.0), np.array([0, -1.2, -1.8]), np.full(3, 0.1), 3.0)
    assert line.slope == pytest.approx(-0.9)
    assert line.half_width == pytest.approx(3.1824 * math.sqrt(0.08 / 3 / 2), rel=1e-4)
    assert line.at_next == pytest.approx(-2.8)
    assert line.half_at_next == pytest.approx(3.1824 * math.sqrt(0.08 / 3 * (1 + 1 / 3 + 4 / 2)), rel=1e-4)


def test_errors_of_optima_are_carried_on() -> None:
    """On a line, squared errors of 1, 4 and 9 are 2/3 of that; the slope has half of the ends' difference."""
    line = fitted(np.arange(3.0), np.array([0.0, -1, -2]), np.array([1.0, 2, 3]), 3.0)
    assert line.half_width == pytest.approx(3.1824 * math.sqrt((1 + 9) / 4 * 2 / 3), rel=1e-4)


def test_the_public_table_is_not_mup() -> None:
    """muP keeps the optimum where it is; the standard parametrization moves it as 1 / width."""
    table = found([2.0**at for at in MUP_ISSUE], error=0.3 / math.sqrt(12), low=math.nan, high=math.nan)
    (law,) = laws(table, pd.DataFrame({"width": WIDTHS})).to_dict("records")
    assert law["slope"] == pytest.approx(-0.89)
    assert law["low"] < -0.89 < law["high"] < 0
    assert law["next_size"] == 2048
    assert law["next_rate"] == pytest.approx(2.0**-12.3, rel=0.01)
    assert law["next_low"] < law["next_rate"] < law["next_high"]
    assert not law["note"]


def test_what_follows_from_an_axis_is_no_axis_of_its_own() -> None:
    axes = pd.DataFrame({"width": WIDTHS, "heads": [2, 4, 8, 16], "data": "d"})
    assert list(laws(found([1e-2, 5e-3, 2e-3, 1e-3]), axes)["axis"]) == ["width"]


def test_a_law_for_all_that_is_else_equal() -> None:
    axes = pd.DataFrame({"optimizer": ["adam"] * 3 + ["sgd"] * 3, "width": [16, 32, 64] * 2})
    optima = [4e-3, 2e-3, 1e-3, 0.1, 0.1, 0.1]
    rows = laws(found(optima), axes)
    assert list(rows["slope"]) == pytest.approx([-1, 0], abs=1e-9)
    assert list(rows["note"]) == ["", "the optimum may not move"]


def test_an_optimum_at_the_edge_gives_no_law() -> None:
    table = found([4e-3, math.nan, 1e-3])
    table.loc[1, "note"] = "the best learning rate is at the edge of those tried"
    (law,) = laws(table, pd.DataFrame({"width": [16, 32, 64]})).to_dict("records")
    assert math.isnan(law["slope"])
    assert law["note"] == "no law can be read: at width 32 the best learning rate is at the edge of those tried"


def test_two_sizes_are_none() -> None:
    assert laws(found([4e-3, 2e-3]), pd.DataFrame({"width": [16, 32]})).empty


def test_axes_of_labels() -> None:
    cells = pd.DataFrame({"task": ["t"], "model": ["width=64"], "variant": ["adam, gamma=0.9"]})
    assert of_labels(cells).to_dict("records") == [
        {"task": "t", "width": 64.0, "model": "", "gamma": 0.9, "variant": "adam"}
    ]


def test_axes_of_contents() -> None:
    cell = {"task": "t", "model": "m", "variant": "v"}
    content = '{"model": {"width": 64}, "seed": 1, "learning_rate": 0.1, "trained": ["a"], "weights_checksum": "x"}'
    wanted = pd.DataFrame([cell | {"run_id": "a", "num_steps": 500}])
    axes = of_contents(pd.DataFrame([cell]), wanted, pd.DataFrame({"run_id": ["a"], "content": [content]}))
    assert axes.to_dict("records") == [{"width": 64, "trained": '["a"]', "num_steps": 500}]


def test_one_command_on_a_table_of_widths(tmp_path: Path) -> None:
    """20 losses: parabolas in log2 of the rate around optima that halve as the width doubles.

    Errors of log10(2) / sqrt(12), squared times 2/4; 2.7764 of the slope's are 0.25.
    """
    rows = ["width,lr,loss"]
    for width in WIDTHS:
        top = -1.0 * math.log2(width)
        rows += [f"{width},{2.0**at},{3 + 0.02 * (at - top) ** 2}" for at in np.arange(top - 2, top + 2.5)]
    (tmp_path / "widths.csv").write_text("\n".join(rows) + "\n")
    reading = Reading(columns={"variant": "width", "validation": "loss"})
    report = write_judged(judged([tmp_path / "widths.csv"], reading).study, tmp_path / "out")
    assert "The best learning rate falls as width^−1.00 (−1.25 to −0.75): at 2048 start at 4.9e-4" in report.text
    assert {"laws.csv", "optima.csv", "law-0-width.png"} <= {path.name for path in report.files}
    page = report.page.read_text()
    assert "How the best learning rate moves" in page


@pytest.mark.slow  # 200 simulated laws each
@pytest.mark.parametrize(("slope", "least", "most"), [(0.0, 0.0, 0.08), (-0.5, 0.5, 1.0), (-1.0, 0.9, 1.0)])
def test_intervals_of_slopes_hold(slope: float, least: float, most: float) -> None:
    """In at least 95% of 200 laws, whose two standard errors are 3%. At a slope of 0 a claimed law is false."""
    grid = Grid(0.5 * np.arange(-3.0, 4), noise=1.0)
    held, claimed = simulated_laws(grid, "asymmetric", slope, 200, np.random.default_rng(0))
    assert held >= 0.92
    assert least <= claimed <= most
