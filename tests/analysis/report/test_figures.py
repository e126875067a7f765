"""Figures of a study: what their captions say, the curves, and PDF files for a paper."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.record.read import read_curves
from lr_sweep.analysis.report.blocks import Image
from lr_sweep.analysis.report.chart import sweep_panels
from lr_sweep.analysis.report.figure_frame import COLUMN, PAGE, write_image
from lr_sweep.analysis.report.figures import (
    curve_caption,
    curve_figure,
    curve_figures,
    sweep_caption,
    sweep_figure,
    sweep_figures,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

TITLE = "Test accuracy against the learning rate"


def record(folder: Path, seeds: int = 2, tasks: int = 1) -> SyntheticRecord:
    """Validation rises by 0.1 an evaluation; the second seed is 0.02 above the first one."""
    made = SyntheticRecord(folder)
    for task in range(tasks):
        for rate in (1e-3, 1e-2):
            for seed in range(seeds):
                curve = [(step, 0.2 + step / 1000 + seed / 50 - rate, 0.4 + seed / 50) for step in (100, 200, 300)]
                made.add(rate, seed, curve, task=f"t{task}")
    return made


def test_a_caption_says_what_is_drawn_alone(tmp_path: Path) -> None:
    two_seeds, one_seed = (summary_of(record(tmp_path / f"{seeds}", seeds).write()) for seeds in (2, 1))
    several, one = sweep_caption(two_seeds), sweep_caption(one_seed)
    assert curve_caption(one_seed) == "At each variant's chosen learning rate."
    assert curve_caption(two_seeds).endswith(": mean over seeds, and single seeds as thin lines.")
    what = "Test accuracy of each run's best model by validation accuracy,"
    assert one == f"{what} one seed."
    assert several == (
        f"{what} mean over 2 seeds. Error bars show the standard error of the mean (SEM). "
        "Small points beside a chosen rate are single seeds."
    )


@pytest.mark.usefixtures("undrawn")
def test_one_rate_has_no_figure_of_a_sweep(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(300, 0.5, 0.5)])
    assert sweep_figures(tmp_path, summary_of(made.write()), []) == []


def test_curves_are_means_of_seeds_and_single_ones(tmp_path: Path) -> None:
    """At the better rate, 1e-3, validation is 0.299 and 0.319 at step 100, and so on."""
    results = record(tmp_path).write()
    summary = summary_of(results)
    points = read_curves(results).merge(summary.chosen_runs.drop(columns=["validation", "test"]))
    figure = curve_figure(summary, points)
    (panel,) = figure.axes
    (mean,) = panel.lines
    assert np.asarray(mean.get_xydata()) == pytest.approx(np.array([[100, 30.9], [200, 40.9], [300, 50.9]]))
    assert [len(line) for line in panel.collections[0].get_segments()] == [3, 3]  # type: ignore[attr-defined]


def images_of_curves(made: SyntheticRecord) -> list[Image]:
    results = made.write()
    return curve_figures(results, summary_of(results), read_curves(results))


@pytest.mark.usefixtures("undrawn")
def test_curves_need_three_evaluations(tmp_path: Path) -> None:
    short = SyntheticRecord(tmp_path / "short")
    short.add(1e-3, 0, [(100, 0.5, 0.5), (300, 0.5, 0.5)])
    assert images_of_curves(short) == []
    (image,) = images_of_curves(record(tmp_path / "long"))
    assert image.png.name == "curves-gpt2.png"


@pytest.fixture
def summary(tmp_path: Path) -> StudySummary:
    return summary_of(record(tmp_path, tasks=2).write())


def test_a_figure_of_a_paper_has_its_column_s_width_and_no_text(summary: StudySummary) -> None:
    one, two = (sweep_figure(part, sweep_panels(part), COLUMN) for part in (summary.of(task="t0"), summary))
    assert [figure.get_figwidth() for figure in (one, two)] == [3.3, 6.75]
    assert one.texts == two.texts == []
    assert [panel.get_title() for figure in (one, two) for panel in figure.axes] == ["", "t0", "t1"]


def test_nothing_of_a_figure_is_cut_off_or_covered(summary: StudySummary) -> None:
    """The legend is above the panels, and long labels fit beside them."""
    figure = sweep_figure(summary, sweep_panels(summary), PAGE)
    figure.axes[0].set_ylabel("a long label\n" * 4)
    figure.draw_without_rendering()
    whole, (legend,) = figure.bbox, figure.legends
    drawn = [panel.get_tightbbox() for panel in figure.axes]
    for box in (*drawn, legend.get_window_extent()):
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    assert max(box.y1 for box in drawn) <= legend.get_window_extent().y0


def test_a_pdf_has_its_letters_and_the_same_bytes_each_time(summary: StudySummary, tmp_path: Path) -> None:
    draw = partial(sweep_figure, summary, sweep_panels(summary))
    for name in ("a", "b"):
        write_image(TITLE, tmp_path / name, draw, pdf=True)
    first, second = (tmp_path.joinpath(f"{name}.pdf").read_bytes() for name in ("a", "b"))
    assert first == second
    assert b"/FontFile2" in first
    assert b"/Type3" not in first
