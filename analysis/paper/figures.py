"""Figures 1, 2 (left) and 3 of Rothermel et al. 2021 with a study's numbers, and the published ones as lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper.published import published_best
from lr_sweep.analysis.report.blocks import Image
from lr_sweep.analysis.report.cells import model_text
from lr_sweep.analysis.report.figure_frame import (
    Frame,
    Style,
    dress,
    framed,
    legend,
    plain,
    variant_styles,
    write_image,
)
from lr_sweep.analysis.report.figures import sweep_figure, with_marks
from lr_sweep.analysis.statistics.comparisons.orders import LU2021_LEARNING_RATE
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.files import Fields

VARIANTS = ("unfrozen-pretrained", "frozen-pretrained", "unfrozen-random", "frozen-random")
"""The papers' variants, which have the same colours in all figures."""
FIGURE_1_TASK = "cifar10-lra"
HALF_DECADE = math.sqrt(10)
PUBLISHED = (
    "lines show Rothermel et al. 2021, Tables 1 and 4; the same tables here have the differences."
)
Published = Mapping[Cell, float]
"""Published best test accuracy of cells, in percent."""


def best_published(summary: StudySummary) -> Published:
    """Look up Rothermel et al.'s best test accuracy of each cell of a study; cells without one are left out."""
    entries = {cell: published_best(cell) for cell in tuples_in(summary.cells[CELL])}
    return {cell: entry.number for cell, entry in entries.items() if entry is not None}


def paper_styles(variants: Sequence[str]) -> dict[str, Style]:
    """Choose styles as `variant_styles`, with the first ones for the papers' variants."""
    styles = variant_styles(list(dict.fromkeys([*VARIANTS, *variants])))
    return {variant: styles[variant] for variant in variants}


def paper_figures(
    folder: Path, summary: StudySummary, stems: Mapping[str, str], facts: str, *, pdf: bool
) -> list[Image]:
    """Write the figures of each model that has a published value; `stems`: beginnings of file names, by model."""
    marked = with_marks(summary)
    images: list[Image] = []
    for model, stem in stems.items():
        shown = marked.of(model=model)
        title = f"Test accuracy against learning rate, {model}"
        for number, part in ((3, shown), (1, shown.of(task=FIGURE_1_TASK))):
            if best_published(part):
                draw = partial(curve_figure, part, title, facts)
                path = folder / f"figure{number}-{stem}"
                images.append(write_image(f"Figure {number}. {title}", path, draw, pdf=pdf))
        if best_published(shown):
            title = f"Test accuracy at the best learning rate, {model}"
            draw = partial(bar_figure, shown, title, facts)
            path = folder / f"figure2-left-{stem}"
            images.append(write_image(f"Figure 2, left. {title}", path, draw, pdf=pdf))
    return images


def curve_figure(summary: StudySummary, title: str, facts: str, frame: Frame) -> Figure:
    """Draw a sweep (Figure 3), or that of one task (Figure 1), with published values and Lu et al.'s rate as lines."""
    best = best_published(summary)
    rates = summary.learning_rates
    dotted: Fields = {"linestyle": ":", "linewidth": 1.3}
    dashed: Fields = {"color": "#B00020", "linestyle": "--", "linewidth": 1.2}
    lines = [Line2D([], [], label="published best (Table 1)", color="0.3", **dotted)]
    near = [task for task, rows in rates.groupby("task") if near_lu2021(rows["learning_rate"])]
    if near:
        lines.append(Line2D([], [], label="Lu et al. 2021 (1e-3)", **dashed))
    figure = sweep_figure(
        summary,
        frame,
        title=title,
        caption=f"{facts} Dotted {PUBLISHED}",
        handles=lines,
        styles_of=paper_styles,
    )
    styles = paper_styles(list(summary.cells["variant"].unique()))
    for panel, task in zip(figure.axes, rates["task"].unique(), strict=False):
        if task in near:
            panel.axvline(LU2021_LEARNING_RATE, zorder=1, **dashed)
        for (of_task, _, variant), value in best.items():
            if of_task == task:
                panel.axhline(value, color=styles[variant].colour, zorder=1.5, **dotted)
    return figure


def near_lu2021(learning_rates: Iterable[float]) -> bool:
    """Return whether a sweep comes within half a decade of the learning rate of Lu et al. 2021."""
    tried = list(learning_rates)
    return min(tried) / HALF_DECADE <= LU2021_LEARNING_RATE <= max(tried) * HALF_DECADE


def bar_figure(summary: StudySummary, title: str, facts: str, frame: Frame) -> Figure:
    """Draw test accuracy at each cell's chosen learning rate as bars (Figure 2 left), published values across them."""
    cells = summary.cells
    best = best_published(summary)
    tasks = list(cells["task"].unique())
    styles = paper_styles(list(cells["variant"].unique()))
    line: Fields = {"color": "black", "linewidth": 1.6}
    handles = [
        *legend(styles, marker="s", linestyle="none"),
        Line2D([], [], label="published (Table 1)", **line),
    ]
    caption = (
        f"{ACCURACY.title} {model_text(ACCURACY)}, mean over seeds. Error bars show the standard error of the mean "
        f"(SEM). {facts} Black {PUBLISHED}"
    )
    figure, (panel,) = framed(frame, title, caption, handles, [""])
    per_task = len(styles) + 1
    for place, (variant, style) in enumerate(styles.items()):
        rows = cells[cells["variant"] == variant]
        x = np.array([per_task * tasks.index(task) + place for task in rows["task"]])
        means = 100 * rows["test_mean"]
        sems = 100 * rows["test_sem"].fillna(0)
        panel.bar(x, means, yerr=sems, color=style.colour, width=0.85, capsize=2.5)
        for at, cell in zip(x, tuples_in(rows[CELL]), strict=True):
            if cell in best:
                panel.plot([at - 0.5, at + 0.5], [best[cell]] * 2, **line)
    middles = per_task * np.arange(len(tasks)) + (len(styles) - 1) / 2
    panel.set_xticks(middles, [*map(plain, tasks)])
    panel.set_ylim(0, 100)
    dress(panel, "", ACCURACY.axis)
    return figure
