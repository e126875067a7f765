"""Draw a study's numbers, in percent where they are fractions. No pyplot, so no global state and no display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    points_within_budget,
)
from lr_sweep.common.files import Fields

from .blocks import Image, stem_of_each
from .cells import measured_text
from .figure_frame import (
    PAGE,
    Frame,
    Style,
    dress,
    framed,
    legend,
    line_look,
    mark_rates,
    validation_axis,
    variant_styles,
    write_image,
)

BESIDE = 12
"""Points from the middle of the mark of a chosen rate to the values of its seeds."""
RING = 2.6
"""Size of the mark of a chosen rate, as a multiple of that of a point."""
CROSS_HEIGHT = 0.045
"""Distance of the crosses of two variants, as a fraction of a panel's height."""
MOST_PANELS = 12
"""Tasks that a figure draws at most."""
MOST_VARIANTS = 20
"""Variants that a figure draws at most: 40 lines look alike."""
LEAST_EVALUATIONS = 3
"""Evaluations of the longest curve that is drawn, at least."""
MARKED = 8
"""Markers on a curve, about."""
Styles = Mapping[str, Style]
Panels = Sequence[Fields]
"""Panels as of `chart.sweep_panels`."""


def sweep_figures(
    folder: Path, summary: StudySummary, panels: Panels, *, pdf: bool = False
) -> list[Image]:
    """Write the metric against the learning rate, a figure a model; none of a single rate.

    `panels`: as of `chart.sweep_panels`; `pdf`: see `write_image`.
    """
    if summary.learning_rates.groupby(CELL).size().max() == 1:
        return []
    what = f"{summary.metric.title} against the learning rate"
    images = []
    for model, stem, title in _models(summary, what):
        draw = partial(sweep_figure, summary.of(model=model), panels)
        images.append(write_image(title, folder / f"learning-rates-{stem}", draw, pdf=pdf))
    return images


def _models(summary: StudySummary, what: str) -> Iterator[tuple[str, str, str]]:
    """Yield each model, the stem of its files, and the title of its figure, which names it if there are several."""
    stems = stem_of_each(summary.runs["model"].unique())
    for model, stem in stems.items():
        yield model, stem, f"{what}, {model}" if len(stems) > 1 else what


def sweep_figure(
    summary: StudySummary, panels: Panels, frame: Frame = PAGE, handles: Sequence[Artist] = ()
) -> Figure:
    """Draw the metric of one model against the learning rate, a panel a task, a line a variant.

    `panels`: as of `chart.sweep_panels`, those of other models too; `handles`: further entries of the legend.
    """
    styles = _styles(summary)
    model = summary.cells["model"].iloc[0]
    of_model = [panel for panel in panels if panel["model"] == model][:MOST_PANELS]
    lines_by_task = {
        panel["task"]: [line for line in panel["lines"] if line["variant"] in styles]
        for panel in of_model
    }
    lines = [line for lines in lines_by_task.values() for line in lines]
    entries = [*_legend(summary.metric, lines, styles), *handles]
    figure, axes = framed(frame, entries, [*lines_by_task])
    for panel, shown in zip(axes, lines_by_task.values(), strict=True):
        _draw_panel(panel, shown, styles, summary.metric)
    return figure


def sweep_caption(summary: StudySummary) -> str:
    """Say what the page's figure and the images of a sweep draw."""
    metric = summary.metric
    number = summary.learning_rates["most_seeds"].max()
    mean = "one seed" if number == 1 else f"mean over {number} seeds"
    sentences = [f"{metric.title}{measured_text(summary)}, {mean}."]
    if number > 1:
        sentences.append("Error bars show the standard error of the mean (SEM).")
    if summary.fresh:
        fresh = "fresh seeds, which chose no learning rate, with their mean and its 95% interval"
        sentences.append(f"Small points beside a chosen rate are {fresh}.")
    elif number > 1:
        sentences.append("Small points beside a chosen rate are single seeds.")
    return " ".join(sentences) + left_out(summary)


def left_out(summary: StudySummary) -> str:
    """Say which variants and tasks images leave out; empty: none."""
    cells = summary.cells
    if cells["variant"].nunique() <= MOST_VARIANTS and cells["task"].nunique() <= MOST_PANELS:
        return ""
    return (
        f" Images have the first {MOST_VARIANTS} variants and {MOST_PANELS} tasks; tables have all."
    )


def _styles(summary: StudySummary) -> Styles:
    return variant_styles(list(summary.cells["variant"].unique())[:MOST_VARIANTS])


def _draw_panel(panel: Axes, lines: Sequence[Fields], styles: Styles, metric: Metric) -> None:
    points = [point for line in lines for point in line["points"]]
    rates = [point["rate"] for point in points]
    panel.set_xscale("log")
    panel.set_xlim(min(rates) / 1.8, max(rates) * 1.8)
    for place, line in enumerate(lines):
        style = styles[line["variant"]]
        _draw_line(panel, line["points"], style, CROSS_HEIGHT * (place + 0.8))
        for point in line["points"]:
            if point["chosen"] and point["mean"] is not None:
                _draw_chosen(panel, point, style)
                _draw_seeds(panel, point["rate"], line, style)
    if all(point["mean"] is None for point in points):
        panel.text(0.5, 0.5, "no values yet", ha="center", transform=panel.transAxes)
    panel.margins(y=0.12)
    mark_rates(panel.xaxis)
    dress(panel, "learning rate", metric.axis)


def _draw_line(panel: Axes, points: Sequence[Fields], style: Style, height: float) -> None:
    """Draw a variant's means with their errors, hollow over fewer seeds, and crosses where all seeds diverged.

    `height`: of the crosses, a fraction of the panel's.
    """
    rates, means, errors = (
        np.array([point[name] for point in points], dtype=float) for name in ("rate", "mean", "sem")
    )
    kinds = np.array([point["kind"] for point in points])
    known = ~np.isnan(means)
    look = line_look(style)
    panel.errorbar(rates[known], means[known], yerr=errors[known], capsize=2, zorder=3, **look)
    is_partial = kinds == "partial"
    if is_partial.any():
        panel.plot(
            rates[is_partial],
            means[is_partial],
            style.marker,
            color=style.colour,
            mfc="white",
            zorder=3.5,
        )
    lost = rates[kinds == "diverged"]
    if len(lost):
        panel.plot(
            lost,
            np.full(len(lost), height),
            "x",
            color=style.colour,
            mew=1.6,
            transform=panel.get_xaxis_transform(),
        )


def _draw_chosen(panel: Axes, point: Fields, style: Style) -> None:
    """Draw a ring around the chosen rate."""
    panel.plot(
        [point["rate"]],
        [point["mean"]],
        "o",
        color=style.colour,
        fillstyle="none",
        markersize=RING * matplotlib.rcParams["lines.markersize"],
        mew=1,
        zorder=4,
    )


def _draw_seeds(panel: Axes, rate: float, line: Fields, style: Style) -> None:
    """Draw the values of single seeds beside a chosen rate, and the mean of fresh ones with its interval."""
    seeds, fresh = line["seeds"], line["fresh"]
    if len(seeds) < 2:  # one seed is the mean
        return
    assert isinstance(panel.figure, Figure)
    beside = ScaledTranslation(BESIDE / 72, 0, panel.figure.dpi_scale_trans)
    look: Fields = {"color": style.colour, "transform": panel.transData + beside, "zorder": 3.5}
    panel.plot([rate] * len(seeds), seeds, "o", markersize=2, alpha=0.6, mew=0, **look)
    heights = [*seeds, *(fresh["ends"] if fresh else ())]
    panel.update_datalim([(rate, height) for height in heights])  # a moved line widens no axis
    if fresh:
        panel.plot([rate], [fresh["mean"]], "_", markersize=8, **look)
        panel.plot([rate] * len(fresh["ends"]), fresh["ends"], linewidth=1, **look)


def _legend(metric: Metric, lines: Sequence[Fields], styles: Styles) -> list[Line2D]:
    kinds = {point["kind"] for line in lines for point in line["points"]}
    ring = RING * 0.85 * matplotlib.rcParams["lines.markersize"]
    look: Fields = {"color": "0.3", "linestyle": "none"}
    entries = legend(styles)
    if metric.chosen_on:
        circle: Fields = {"marker": "o", "markersize": ring, "fillstyle": "none"}
        entries.append(Line2D([], [], label=f"chosen on {metric.chosen_on}", **look, **circle))
    if "partial" in kinds:
        entries.append(Line2D([], [], label="fewer seeds", **look, marker="o", mfc="white"))
    if "diverged" in kinds:
        entries.append(Line2D([], [], label="all seeds diverged", **look, marker="x", mew=1.6))
    return entries


def curve_figures(
    folder: Path, summary: StudySummary, curves: pd.DataFrame, *, pdf: bool = False
) -> list[Image]:
    """Write the validation metric against the step at each variant's chosen rate, a figure a model.

    `curves` have `run_id`, `step` and `validation`. No figure without three evaluations of a run; `pdf` as of
    `write_image`.
    """
    metric = summary.metric
    if not metric.chosen_on:
        return []
    runs = summary.chosen_runs
    ended = runs[runs["status"].isin(["complete", "diverged"])]
    points = points_within_budget(ended, curves, ["validation"])
    points = points[np.isfinite(points["validation"])]
    what = f"{metric.validation[0].upper()}{metric.validation[1:]} while training"
    images = []
    for model, stem, title in _models(summary, what):
        of_model = points[points["model"] == model]
        if of_model.groupby("run_id").size().max() >= LEAST_EVALUATIONS:
            draw = partial(curve_figure, summary.of(model=model), of_model)
            images.append(write_image(title, folder / f"curves-{stem}", draw, pdf=pdf))
    return images


def curve_caption(summary: StudySummary) -> str:
    """Say what the figures of curves draw."""
    has_seeds = summary.learning_rates["most_seeds"].max() > 1
    seeds = ": mean over seeds, and single seeds as thin lines" if has_seeds else ""
    return f"At each variant's chosen learning rate{seeds}.{left_out(summary)}"


def curve_figure(summary: StudySummary, points: pd.DataFrame, frame: Frame = PAGE) -> Figure:
    """Draw the curves of one model's runs at the chosen rates, a panel a task; `points`: evaluations with `CELL`."""
    metric, styles = summary.metric, _styles(summary)
    tasks = [task for task in summary.cells["task"].unique() if task in set(points["task"])]
    tasks = tasks[:MOST_PANELS]
    figure, panels = framed(frame, legend(styles), tasks)
    for panel, task in zip(panels, tasks, strict=True):
        of_task = points[points["task"] == task]
        for variant, style in styles.items():
            of_cell = of_task[of_task["variant"] == variant]
            _draw_curves(panel, of_cell, style, metric)
        dress(panel, "step", validation_axis(metric))
    return figure


def _draw_curves(panel: Axes, points: pd.DataFrame, style: Style, metric: Metric) -> None:
    """Draw single seeds thinly, and their mean at the steps that all of them have."""
    by_step = points.pivot(index="step", columns="run_id", values="validation")
    values = metric.scale * by_step
    if values.shape[1] > 1:
        lines = [values[run].dropna().reset_index().to_numpy() for run in values]
        thin = LineCollection(lines, colors=style.colour, linewidths=0.5, alpha=0.5)
        panel.add_collection(thin)
    mean = values.mean(axis=1, skipna=False).dropna()
    every = max(1, len(mean) // MARKED)
    panel.plot(mean.index, mean, markevery=every, zorder=3, **line_look(style))
    panel.autoscale_view()
