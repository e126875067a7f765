"""Figures of Rothermel et al. 2021: drawn with published values, and only where there are any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from lr_sweep.analysis.paper.paper import curve_figure, paper_sections
from lr_sweep.analysis.record.read import read_curves, read_study
from lr_sweep.analysis.report.blocks import Image, Section, Table
from lr_sweep.analysis.report.chart import sweep_panels
from lr_sweep.analysis.report.figure_frame import PAGE
from lr_sweep.analysis.report.figures import MOST_PANELS
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

VARIANTS = ("unfrozen-pretrained", "frozen-pretrained", "unfrozen-random", "frozen-random")


def record(folder: Path, model: str = "gpt2", **labels: str) -> SyntheticRecord:
    made = SyntheticRecord(folder)
    for variant in VARIANTS:
        made.add(1e-3, 0, [(300, 0.5, 0.5)], variant=variant, model=model, **labels)
    return made


def sections(made: SyntheticRecord, **facts: object) -> list[Section]:
    results = made.write(**facts)
    (results / "new").mkdir()
    info, summary = read_study(results, made.study), summary_of(results, made.study)
    return paper_sections(results / "new", info, summary, read_curves(results))


def heights(panel: Axes, style: str, width: float) -> list[float]:
    lines = [line for line in panel.lines if (line.get_linestyle(), line.get_linewidth()) == (style, width)]
    return sorted(float(np.asarray(line.get_ydata())[0]) for line in lines)


def test_published_values_are_lines(tmp_path: Path) -> None:
    """Table 1, MNIST: 98.0, 98.5, 98.7 and 99.0."""
    summary = summary_of(record(tmp_path).write())
    figure = curve_figure(summary, sweep_panels(summary), PAGE)
    assert heights(figure.axes[0], ":", 1.3) == [98.0, 98.5, 98.7, 99.0]
    assert heights(figure.axes[0], "--", 1.2) == [0]  # at Lu et al.'s rate, from the bottom


def test_a_task_with_published_values_need_not_be_drawn(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for number in range(MOST_PANELS):
        made.add(1e-3, 0, [(300, 0.5, 0.5)], task=f"t{number}")
    made.add(1e-3, 0, [(300, 0.5, 0.5)], task="mnist")
    summary = summary_of(made.write())
    assert len(curve_figure(summary, sweep_panels(summary), PAGE).axes) == MOST_PANELS


@pytest.mark.parametrize(("rates", "is_near"), [((1e-5, 1e-4), False), ((1e-4, 1e-2), True)])
def test_the_rate_of_lu_et_al_is_drawn_only_within_the_sweep(
    tmp_path: Path, rates: tuple[float, ...], is_near: bool
) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in rates:
        made.add(rate, 0, [(300, 0.5, 0.5)])
    summary = summary_of(made.write())
    figure = curve_figure(summary, sweep_panels(summary), PAGE)
    assert bool(heights(figure.axes[0], "--", 1.2)) is is_near


@pytest.mark.usefixtures("undrawn")
def test_figures_are_of_models_and_tasks_with_a_published_value(tmp_path: Path) -> None:
    made = record(tmp_path, task="cifar10-lra")
    made.wanted += record(tmp_path, "tiny").wanted
    (section,) = sections(made)
    images = [block.png.name for block in section.body if isinstance(block, Image)]
    assert images == ["figure3-gpt2.png"]
    assert section.folded
    assert any("Dotted lines show Rothermel et al. 2021" in block.markdown() for block in section.body)
    assert "Table 1. Test accuracy, tiny" in [block.title for block in section.body if isinstance(block, Table)]


@pytest.mark.usefixtures("undrawn")
def test_other_studies_have_nothing_of_a_paper(tmp_path: Path) -> None:
    mine = SyntheticRecord(tmp_path / "mine")
    mine.add(1e-3, 0, [(300, 0.5, 0.5)])
    loss = record(tmp_path / "loss")
    assert sections(mine) == []
    assert sections(loss, metric={"name": "loss", "higher_is_better": False, "is_fraction": False}) == []
    assert not list((tmp_path / "mine" / "new").iterdir())
