"""Draw a study's numbers, in percent where they are fractions. No pyplot, so no global state and no display."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Image, stem_of_each
from lr_sweep.analysis.report.cells import measured_text
from lr_sweep.analysis.report.figure_frame import (
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
from lr_sweep.analysis.statistics.comparisons.uncertainty import with_interval
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    points_within_budget,
)
from lr_sweep.common.files import Fields

BEST_RATE = ["optimum", "low", "high"]
"""Columns of `optimum.optima`."""
AT_CHOSEN = ["seed_values", "fresh_mean", "fresh_low", "fresh_high"]
"""Columns of `chosen_points`."""
BESIDE = 12
"""Points from the middle of the mark of a chosen rate to the values of its seeds."""
RING = 2.6
"""Size of the mark of a chosen rate, as a multiple of that of a point."""
CROSS_HEIGHT = 0.045
"""Distance of the crosses of two variants, as a fraction of a panel's height."""
MOST_PANELS = 450
"""Tasks of a figure at most: matplotlib draws fewer than 2^16 pixels."""
MOST_VARIANTS, DRAWN_VARIANTS = 20, 12
"""Variants that a figure draws at most, and how many it draws of more: 40 lines look alike."""
MOST_CURVE_PANELS, LEAST_EVALUATIONS = 4, 3
"""Tasks of a figure of curves at most, and evaluations of its longest curve at least."""
MARKED = 8
"""Markers on a curve, about."""
Styles = Mapping[str, Style]
StylesOf = Callable[[list[str]], dict[str, Style]]


def sweep_figures(folder: Path, summary: StudySummary, *, pdf: bool = False) -> list[Image]:
    """Write the metric against the learning rate, a figure a model; none of a single rate. `pdf`: see `write_image`."""
    if summary.learning_rates.groupby(CELL).size().max() == 1:
        return []
    marked = with_marks(summary)
    what = f"{summary.metric.title} against the learning rate"
    images = []
    for model, stem, title in _models(summary, what):
        draw = partial(sweep_figure, marked.of(model=model), title=title)
        path = folder / f"learning-rates-{stem}"
        images.append(write_image(title, path, draw, pdf=pdf))
    return images


def _models(summary: StudySummary, what: str) -> Iterator[tuple[str, str, str]]:
    """Yield each model, the stem of its files, and the title of its figure, which names it if there are several."""
    stems = stem_of_each(summary.runs["model"].unique())
    for model, stem in stems.items():
        yield model, stem, f"{what}, {model}" if len(stems) > 1 else what


def with_marks(summary: StudySummary) -> StudySummary:
    """Return a summary whose cells have `BEST_RATE` and the columns of `chosen_points`, where rates are chosen."""
    if not summary.metric.chosen_on:
        return summary
    best = optima(summary)[[*CELL, *BEST_RATE]]
    points = chosen_points(summary)
    seeds = points["seed_values"]
    is_several = seeds.map(lambda values: isinstance(values, tuple) and len(values) > 1)
    points["seed_values"] = seeds.where(is_several.astype(bool))  # one seed is the mean
    cells = summary.cells.merge(best, on=CELL, how="left")
    return replace(summary, cells=cells.merge(points, on=CELL, how="left"))


def chosen_points(summary: StudySummary) -> pd.DataFrame:
    """Return what a figure marks at each chosen rate: single seeds, and the mean of fresh ones with its interval.

    Returns:
        A row a cell: `CELL`, `seed_values` (tuple), and `fresh_mean`, `fresh_low` and `fresh_high` (NaN: unknown).
    """
    by_cell = summary.chosen_runs.dropna(subset=["test_accuracy"]).groupby(CELL)["test_accuracy"]
    values = by_cell.agg(tuple).rename("seed_values").reset_index()
    cells = with_interval(summary.cells).merge(values, on=CELL, how="left")
    marks = cells[["test_mean", "low", "high"]]
    if summary.fresh is None:
        marks = marks * math.nan
    fresh = dict(zip(AT_CHOSEN[1:], marks.to_numpy().T, strict=True))
    return cells[[*CELL, "seed_values"]].assign(**fresh)


def sweep_figure(
    summary: StudySummary,
    frame: Frame = PAGE,
    *,
    title: str = "",
    caption: str = "",
    handles: Sequence[Artist] = (),
    styles_of: StylesOf = variant_styles,
) -> Figure:
    """Draw the metric of one model against the learning rate, a panel a task, a line a variant.

    `summary` has cells as of `with_marks` where these are to be marked; `caption` and `handles` are added to the
    figure's own caption and legend.
    """
    styles = _drawn_styles(summary, styles_of)
    has_style = summary.cells["variant"].isin(styles)
    rates = summary.learning_rates[summary.learning_rates["variant"].isin(styles)]
    shown = replace(summary, learning_rates=rates, cells=summary.cells[has_style])
    tasks = list(rates["task"].unique())[:MOST_PANELS]
    said = [sweep_caption(shown), caption, _left_out(summary.cells, styles, tasks)]
    entries = [*_legend(shown, styles), *handles]
    figure, panels = framed(frame, title, " ".join(filter(None, said)), entries, tasks)
    for panel, task in zip(panels, tasks, strict=True):
        _draw_panel(panel, shown.of(task=task), styles)
    return figure


def sweep_caption(summary: StudySummary) -> str:
    """Say what the figure of a sweep draws, and nothing that it does not."""
    metric = summary.metric
    rates = summary.learning_rates
    marks = summary.cells.reindex(columns=[*BEST_RATE, *AT_CHOSEN])
    number = rates["most_seeds"].max()
    mean = "one seed" if number == 1 else f"mean over {number} seeds"
    said = [f"{metric.title}{measured_text(summary)}, {mean}."]
    if rates["test_sem"].gt(0).any():
        said.append("Error bars show the standard error of the mean (SEM).")
    if marks[BEST_RATE].notna().all(axis=1).any():
        said.append("A broad bar shows the best rate between those tried, with its 95% interval.")
    if marks["seed_values"].notna().any():
        seeds = "single seeds"
        if summary.fresh:
            seeds = (
                "fresh seeds, which chose no learning rate, with their mean and its 95% interval"
            )
        said.append(f"Small points beside a chosen rate are {seeds}.")
    return " ".join(said)


def _drawn_styles(summary: StudySummary, styles_of: StylesOf) -> dict[str, Style]:
    """Return the styles of the variants that are drawn: all, or of very many those with the best mean rank."""
    cells = summary.cells
    styles = styles_of(list(cells["variant"].unique()))
    if len(styles) <= MOST_VARIANTS:
        return styles
    values = summary.metric.sign * cells["test_mean"]
    ranks = values.groupby(cells["task"]).rank(ascending=False, na_option="bottom")
    mean_ranks = ranks.groupby(cells["variant"], sort=False).mean()
    best = mean_ranks.nsmallest(DRAWN_VARIANTS).index
    return {variant: style for variant, style in styles.items() if variant in best}


def _left_out(cells: pd.DataFrame, styles: Styles, tasks: Sequence[str]) -> str:
    """Say which variants and tasks a figure leaves out; empty: none."""
    num_left = cells["variant"].nunique() - len(styles)
    num_tasks = cells["task"].nunique()
    said = []
    if num_left:
        best = f"The {len(styles)} variants with the best mean rank over tasks"
        said.append(f"{best}; {num_left} others are left out.")
    if len(tasks) < num_tasks:
        said.append(f"The first {len(tasks)} of {num_tasks} tasks; the tables have all.")
    return " ".join(said)


def _draw_panel(panel: Axes, summary: StudySummary, styles: Styles) -> None:
    metric = summary.metric
    rates = summary.learning_rates
    marks = summary.cells.reindex(columns=[*CELL, "learning_rate", *BEST_RATE, *AT_CHOSEN])
    low = rates["learning_rate"].min()
    high = rates["learning_rate"].max()
    panel.set_xscale("log")
    panel.set_xlim(low / 1.8, high * 1.8)
    for place, (variant, style) in enumerate(styles.items()):
        rows = rates[rates["variant"] == variant]
        lost = rows[_all_diverged(rows)]
        _draw_line(panel, rows, style, metric)
        _draw_crosses(panel, lost, style, CROSS_HEIGHT * (place + 0.8))
        for cell in marks[marks["variant"] == variant].to_dict("records"):
            chosen = rows[rows["learning_rate"] == cell["learning_rate"]]
            for mean in metric.scale * chosen["test_mean"].dropna():
                _draw_chosen(panel, cell, mean, style)
                _draw_seeds(panel, cell, style, metric)
    if rates["test_mean"].isna().all():
        panel.text(0.5, 0.5, "no values yet", ha="center", transform=panel.transAxes)
    panel.margins(y=0.12)
    mark_rates(panel.xaxis, *panel.get_xlim())
    dress(panel, "learning rate", metric.axis)


def _draw_line(panel: Axes, rows: pd.DataFrame, style: Style, metric: Metric) -> None:
    """Draw a variant's means with their errors, hollow over fewer seeds."""
    known = rows.dropna(subset=["test_mean"])
    rates = known["learning_rate"]
    means = metric.scale * known["test_mean"]
    errors = metric.scale * known["test_sem"]
    panel.errorbar(rates, means, yerr=errors, capsize=2, zorder=3, **line_look(style))
    few = _is_partial(known)
    if few.any():
        panel.plot(
            rates[few],
            means[few],
            style.marker,
            color=style.colour,
            mfc="white",
            zorder=3.5,
        )


def _draw_crosses(panel: Axes, rows: pd.DataFrame, style: Style, height: float) -> None:
    """Draw a cross at each rate, at a height that is a fraction of the panel's."""
    if len(rows):
        panel.plot(
            rows["learning_rate"],
            [height] * len(rows),
            "x",
            color=style.colour,
            mew=1.6,
            transform=panel.get_xaxis_transform(),
        )


def _draw_chosen(panel: Axes, cell: Row, mean: float, style: Style) -> None:
    """Draw a ring around the chosen rate, and a bar for the interval of the best one."""
    size = matplotlib.rcParams["lines.markersize"]
    panel.plot(
        [cell["learning_rate"]],
        [mean],
        "o",
        color=style.colour,
        fillstyle="none",
        markersize=RING * size,
        mew=1,
        zorder=4,
    )
    low, optimum, high = (cell[name] for name in ("low", "optimum", "high"))
    if not math.isnan(low + optimum + high):
        panel.plot(
            [low, high],
            [mean, mean],
            color=style.colour,
            alpha=0.35,
            linewidth=size,
            solid_capstyle="butt",
        )
        panel.plot([optimum], [mean], "|", color=style.colour, markersize=2 * size, mew=1.5)


def _draw_seeds(panel: Axes, cell: Row, style: Style, metric: Metric) -> None:
    """Draw the values of single seeds beside a chosen rate, and the mean of fresh ones with its interval."""
    rate = cell["learning_rate"]
    values = cell["seed_values"]
    if not isinstance(values, tuple):
        return
    assert isinstance(panel.figure, Figure)
    beside = ScaledTranslation(BESIDE / 72, 0, panel.figure.dpi_scale_trans)
    look: Fields = {
        "color": style.colour,
        "transform": panel.transData + beside,
        "zorder": 3.5,
    }
    heights = metric.scale * np.array(values)
    panel.plot([rate] * len(values), heights, "o", markersize=2, alpha=0.6, mew=0, **look)
    if not math.isnan(cell["fresh_mean"]):
        mean, *ends = (metric.scale * cell[name] for name in AT_CHOSEN[1:])
        panel.plot([rate], [mean], "_", markersize=8, **look)
        panel.plot([rate, rate], ends, linewidth=1, **look)


def _all_diverged(rates: pd.DataFrame) -> pd.Series[bool]:
    return rates["diverged"].eq(rates["num_wanted"])


def _is_partial(rates: pd.DataFrame) -> pd.Series[bool]:
    """Return which means are over fewer seeds than others."""
    return rates["num_tests"].between(1, rates["most_seeds"] - 1)


def _legend(summary: StudySummary, styles: Styles) -> list[Line2D]:
    rates = summary.learning_rates
    chosen_on = summary.metric.chosen_on
    ring = RING * 0.85 * matplotlib.rcParams["lines.markersize"]
    grey: Fields = {"color": "0.3", "linestyle": "none"}
    lines = legend(styles)
    if chosen_on:
        look = grey | {"marker": "o", "markersize": ring, "fillstyle": "none"}
        lines.append(Line2D([], [], label=f"chosen on {chosen_on}", **look))
    if _is_partial(rates).any():
        lines.append(Line2D([], [], label="fewer seeds", **grey, marker="o", mfc="white"))
    if _all_diverged(rates).any():
        lines.append(Line2D([], [], label="all seeds diverged", **grey, marker="x", mew=1.6))
    return lines


def curve_figures(
    folder: Path, summary: StudySummary, curves: pd.DataFrame, *, pdf: bool = False
) -> list[Image]:
    """Write the validation metric against the step at each variant's chosen rate, a figure a model.

    `curves` have `run_id`, `step` and `validation_accuracy`. No figure without three evaluations of a run; `pdf` as of
    `write_image`.
    """
    metric = summary.metric
    if not metric.chosen_on:
        return []
    runs = summary.chosen_runs
    ended = runs[runs["status"].isin(["complete", "diverged"])]
    points = points_within_budget(ended, curves, ["validation_accuracy"])
    points = points[np.isfinite(points["validation_accuracy"])]
    what = f"{metric.validation[0].upper()}{metric.validation[1:]} while training"
    images = []
    for model, stem, title in _models(summary, what):
        of_model = points[points["model"] == model]
        if of_model.groupby("run_id").size().max() >= LEAST_EVALUATIONS:
            draw = partial(curve_figure, summary.of(model=model), of_model, title=title)
            path = folder / f"curves-{stem}"
            images.append(write_image(title, path, draw, pdf=pdf))
    return images


def curve_figure(
    summary: StudySummary, points: pd.DataFrame, frame: Frame = PAGE, *, title: str = ""
) -> Figure:
    """Draw the curves of one model's runs at the chosen rates, a panel a task; `points`: evaluations with `CELL`."""
    metric = summary.metric
    cells = summary.cells
    with_points = cells[cells["task"].isin(points["task"])]
    tasks = list(with_points["task"].unique())[:MOST_CURVE_PANELS]
    styles = _drawn_styles(summary, variant_styles)
    has_seeds = points.groupby(CELL)["seed"].nunique().gt(1).any()
    mean = ": mean over seeds, and single seeds as thin lines" if has_seeds else ""
    said = f"At each variant's chosen learning rate{mean}. {_left_out(cells, styles, tasks)}"
    figure, panels = framed(frame, title, said, legend(styles), tasks)
    for panel, task in zip(panels, tasks, strict=True):
        of_task = points[points["task"] == task]
        for variant, style in styles.items():
            of_cell = of_task[of_task["variant"] == variant]
            _draw_curves(panel, of_cell, style, metric)
        dress(panel, "step", validation_axis(metric))
    return figure


def _draw_curves(panel: Axes, points: pd.DataFrame, style: Style, metric: Metric) -> None:
    """Draw single seeds thinly, and their mean at the steps that all of them have."""
    by_step = points.pivot(index="step", columns="run_id", values="validation_accuracy")
    values = metric.scale * by_step
    if values.shape[1] > 1:
        lines = [values[run].dropna().reset_index().to_numpy() for run in values]
        thin: Fields = {"colors": style.colour, "linewidths": 0.5, "alpha": 0.5}
        panel.add_collection(LineCollection(lines, **thin))
    mean = values.mean(axis=1, skipna=False).dropna()
    every = max(1, len(mean) // MARKED)
    panel.plot(mean.index, mean, markevery=every, zorder=3, **line_look(style))
    panel.autoscale_view()
