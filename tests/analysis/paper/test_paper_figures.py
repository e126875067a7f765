"""Figures of Rothermel et al. 2021: drawn with published values, and only where there are any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from lr_sweep.analysis.paper.figures import (
    VARIANTS,
    bar_figure,
    curve_figure,
    near_lu2021,
    paper_styles,
)
from lr_sweep.analysis.paper.paper import paper_sections
from lr_sweep.analysis.record.read import read_curves, read_study
from lr_sweep.analysis.report.blocks import Image, Section
from lr_sweep.analysis.report.figure_frame import PAGE
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


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
    curves, bars = (draw(summary, "Title", "Facts.", PAGE) for draw in (curve_figure, bar_figure))
    assert heights(curves.axes[0], ":", 1.3) == heights(bars.axes[0], "-", 1.6) == [98.0, 98.5, 98.7, 99.0]
    assert [patch.get_height() for patch in bars.axes[0].patches] == [50.0] * 4  # type: ignore[attr-defined]
    assert heights(curves.axes[0], "--", 1.2) == [0]  # at Lu et al.'s rate, from the bottom
    (caption,) = (text.get_text().replace("\n", " ") for text in curves.texts if "Facts." in text.get_text())
    assert "Dotted lines show Rothermel et al. 2021" in caption


@pytest.mark.parametrize(("rates", "is_near"), [((1e-6, 1e-5), False), ((1e-5, 5e-4), True), ((5e-3, 1e-2), False)])
def test_the_rate_of_lu_et_al_is_drawn_only_near_the_sweep(rates: tuple[float, ...], is_near: bool) -> None:
    assert near_lu2021(rates) is is_near


def test_variants_of_the_papers_have_one_style_in_all_figures() -> None:
    assert paper_styles(["mine", "frozen-random"])["frozen-random"] == paper_styles(VARIANTS)["frozen-random"]
    assert paper_styles(["mine"])["mine"] not in paper_styles(VARIANTS).values()


@pytest.mark.usefixtures("undrawn")
def test_figures_are_of_models_and_tasks_with_a_published_value(tmp_path: Path) -> None:
    made = record(tmp_path, task="cifar10-lra")
    made.wanted += record(tmp_path, "tiny").wanted
    (section,) = sections(made)
    images = [block.png.name for block in section.body if isinstance(block, Image)]
    assert images == ["figure3-gpt2.png", "figure1-gpt2.png", "figure2-left-gpt2.png"]
    assert section.folded
    assert (tmp_path / "new" / "table1-tiny.md").exists()


@pytest.mark.usefixtures("undrawn")
def test_other_studies_have_nothing_of_a_paper(tmp_path: Path) -> None:
    mine = SyntheticRecord(tmp_path / "mine")
    mine.add(1e-3, 0, [(300, 0.5, 0.5)])
    loss = record(tmp_path / "loss")
    assert sections(mine) == []
    assert sections(loss, metric={"name": "loss", "higher_is_better": False, "is_fraction": False}) == []
    assert not list((tmp_path / "mine" / "new").iterdir())
