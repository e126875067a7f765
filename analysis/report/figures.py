"""Draw a study's numbers, in percent where they are fractions. No pyplot, so no global state and no display."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.figure_frame import (
    LEFT,
    LINE_WIDTH,
    RIGHT,
    Style,
    dress,
    framed,
    legend,
    line_look,
    mark_rates,
    plain,
    variant_styles,
)
from lr_sweep.analysis.report.ranking import with_interval
from lr_sweep.analysis.statistics.comparisons.orders import LU2021_LEARNING_RATE
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.files import Fields

BEST_RATE = ["optimum", "low", "high"]
"""Columns of `optimum.optima`."""
AT_CHOSEN = ["seed_values", "fresh_mean", "fresh_low", "fresh_high"]
"""Columns of `chosen_points`."""
PublishedBest = Mapping[tuple[str, str, str], float] | None
"""Published best test accuracy in percent, by task, model and variant; None: no study of the papers."""
MAX_COLUMNS = 3
BESIDE = 12
"""Points, from the middle of the mark of a chosen rate to the values of its seeds."""
HALF_DECADE = math.sqrt(10)
BAR_WIDTH = 0.3
"""Points."""
CAP, RING = 5, 13
"""Points, of the ends of error bars and of the mark of a chosen rate."""
CROSS_HEIGHT = 0.045
"""Distance of the crosses of two variants, as a fraction of a panel's height."""
FEWER_SEEDS = "fewer seeds"
HATCH = "////"
"""Pattern of the bar of a mean over fewer seeds than others."""
MOST_PANELS, MOST_WIDTH = 450, 400.0
"""Tasks of a figure with a panel each, and inches of one with bars: matplotlib draws fewer than 2^16 pixels."""
MOST_VARIANTS, DRAWN_VARIANTS = 20, 12
"""Variants that a figure draws at most, and how many it draws of more: 40 lines look alike."""


def learning_rate_figure(
    rates: pd.DataFrame,
    cells: pd.DataFrame,
    title: str,
    caption: str,
    published: PublishedBest,
    metric: Metric = ACCURACY,
) -> Figure:
    """Draw test accuracy against learning rate, a panel a task, a line a variant (Rothermel et al. 2021, Figure 3).

    `rates` and `cells` are one model's rows of `StudySummary`, the latter with `BEST_RATE` and `chosen_points` where
    these are to be marked; dotted lines are what was published of these cells.
    """
    every, styles = list(rates["task"].unique()), _drawn(cells, rates["variant"].unique(), metric)
    rates = rates[rates["variant"].isin(styles)]
    tasks = list(rates["task"].unique())[:MOST_PANELS]
    columns = 2 if len(tasks) == 4 else min(len(tasks), MAX_COLUMNS)
    handles = _legend(rates, styles, metric, published is not None)
    if published:
        handles.append(
            Line2D(
                [], [], color="0.3", linestyle=":", linewidth=1.3, label="published best (Table 1)"
            )
        )
    caption += _left_out(cells, styles, tasks, every)
    figure, panels = framed(title, caption, handles, tasks, columns)
    for panel, task in zip(panels, tasks, strict=True):
        _draw_panel(
            panel, rates[rates["task"] == task], cells[cells["task"] == task], styles, metric
        )
        if published is not None and near_lu2021(rates.loc[rates["task"] == task, "learning_rate"]):
            panel.axvline(
                LU2021_LEARNING_RATE, color="#B00020", linestyle="--", linewidth=1.2, zorder=1
            )
        for (of_task, _, variant), value in (published or {}).items():
            if of_task == task and variant in styles:
                panel.axhline(
                    value, color=styles[variant].colour, linestyle=":", linewidth=1.3, zorder=1.5
                )
    return figure


def chosen_points(summary: StudySummary) -> pd.DataFrame:
    """Return what a figure marks at each chosen rate: single seeds, and the mean of fresh ones with its interval.

    Returns:
        A row a cell: `CELL`, `seed_values` (tuple), and `fresh_mean`, `fresh_low` and `fresh_high` (NaN: unknown).
    """
    by_cell = summary.chosen_runs.dropna(subset=["test_accuracy"]).groupby(CELL)["test_accuracy"]
    cells = with_interval(summary.cells).merge(
        by_cell.agg(tuple).rename("seed_values").reset_index(), on=CELL, how="left"
    )
    marks = cells[["test_mean", "low", "high"]]
    if summary.fresh is None:
        marks = marks * math.nan
    fresh = dict(zip(AT_CHOSEN[1:], marks.to_numpy().T, strict=True))
    return cells[[*CELL, "seed_values"]].assign(**fresh)


def best_rates_figure(
    cells: pd.DataFrame,
    title: str,
    caption: str,
    published: PublishedBest,
    metric: Metric = ACCURACY,
) -> Figure:
    """Draw test accuracy at each cell's chosen learning rate as bars (Rothermel et al. 2021, Figure 2 left).

    `cells` are one model's rows of `StudySummary.cells`; lines across the bars are what was published of them.
    """
    every, styles = list(cells["task"].unique()), _drawn(cells, cells["variant"].unique(), metric)
    tasks = every[: int((MOST_WIDTH - LEFT - RIGHT) / (BAR_WIDTH * (len(styles) + 1)))]
    caption += _left_out(cells, styles, tasks, every)
    cells = cells[cells["variant"].isin(styles) & cells["task"].isin(tasks)]
    width = LEFT + RIGHT + BAR_WIDTH * len(tasks) * (len(styles) + 1)
    handles: list[Artist] = [*legend(styles, marker="s", linestyle="none")]
    if _partial(cells).any():
        handles.append(Patch(facecolor="0.6", edgecolor="white", hatch=HATCH, label=FEWER_SEEDS))
    if published:
        handles.append(Line2D([], [], color="black", linewidth=1.6, label="published (Table 1)"))
    figure, (panel,) = framed(title, caption, handles, [""], 1, width)
    places = {
        (task, variant): i * (len(styles) + 1) + j
        for i, task in enumerate(tasks)
        for j, variant in enumerate(styles)
    }
    cells = cells.assign(
        x=[places[key] for key in zip(cells["task"], cells["variant"], strict=True)]
    )
    known = cells[cells["num_values"] > 0]
    colours = [styles[variant].colour for variant in known["variant"]]
    means, sems = (metric.scale * known[name] for name in ("test_mean", "test_sem"))
    bars = panel.bar(known["x"], means, yerr=sems.fillna(0), color=colours, width=0.85, capsize=2.5)
    for bar, is_partial in zip(bars, _partial(known), strict=True):
        if is_partial:
            bar.set(hatch=HATCH, edgecolor="white")
    for x in cells.loc[cells["num_values"] == 0, "x"]:
        look: Fields = {
            "rotation": 90,
            "ha": "center",
            "va": "bottom",
            "fontsize": 8,
            "color": "0.4",
        }
        panel.text(x, 0.01 * metric.scale, "no value", **look)
    for *cell, x in cells[[*CELL, "x"]].itertuples(index=False):
        if (value := (published or {}).get(tuple(cell))) is not None:
            panel.plot([x - 0.5, x + 0.5], [value, value], color="black", linewidth=1.6)
    panel.set_xticks(
        [(len(styles) + 1) * i + (len(styles) - 1) / 2 for i in range(len(tasks))],
        [*map(plain, tasks)],
    )
    panel.set_xlim(-1, len(tasks) * (len(styles) + 1) - 1)
    if metric.is_fraction:
        panel.set_ylim(0, 100)
    dress(panel, "y", metric)
    return figure


def _drawn(cells: pd.DataFrame, variants: Iterable[str], metric: Metric) -> dict[str, Style]:
    """Choose the variants that a figure draws: all, or of very many those with the best mean rank over the tasks."""
    styles = variant_styles(list(variants))
    if len(styles) <= MOST_VARIANTS:
        return styles
    ranks = cells.groupby("task")["test_mean"].rank(
        ascending=not metric.higher_is_better, na_option="bottom"
    )
    best = set(ranks.groupby(cells["variant"], sort=False).mean().nsmallest(DRAWN_VARIANTS).index)
    return {variant: style for variant, style in styles.items() if variant in best}


def _left_out(
    cells: pd.DataFrame, variants: Collection[str], tasks: Sequence[str], every: Sequence[str]
) -> str:
    others, text = cells["variant"].nunique() - len(variants), ""
    if others:
        text += f" The {len(variants)} variants with the best mean rank over tasks; {others} others are left out."
    if len(tasks) < len(every):
        text += f" The first {len(tasks)} of {len(every)} tasks; the tables have all."
    return text


def near_lu2021(learning_rates: Iterable[float]) -> bool:
    """Return whether a sweep comes within half a decade of the learning rate of Lu et al. 2021."""
    tried = list(learning_rates)
    return min(tried) / HALF_DECADE <= LU2021_LEARNING_RATE <= max(tried) * HALF_DECADE


def _draw_panel(
    panel: Axes,
    rates: pd.DataFrame,
    cells: pd.DataFrame,
    styles: Mapping[str, Style],
    metric: Metric,
) -> None:
    place = {variant: i for i, variant in enumerate(styles)}
    shown = rates.sort_values("variant", key=lambda names: names.map(place), kind="stable")
    shown = shown.assign(
        mean=metric.scale * shown["test_mean"],
        sem=metric.scale * shown["test_sem"],
        colour=[styles[variant].colour for variant in shown["variant"]],
        chosen=shown["variant"].map(cells.set_index("variant")["learning_rate"]),
    )
    panel.set_xscale("log")
    panel.set_xlim(rates["learning_rate"].min() / 1.8, rates["learning_rate"].max() * 1.8)
    points = [shown[name].to_numpy() for name in ("learning_rate", "mean")]
    points += [_partial(shown).to_numpy(), _all_diverged(shown).to_numpy()]
    rows_of = shown.groupby("variant", sort=False).indices
    for i, (variant, style) in enumerate(styles.items()):
        if variant in rows_of:
            _draw_line(
                panel, [each[rows_of[variant]] for each in points], style, CROSS_HEIGHT * (i + 0.8)
            )
    _draw_spread(panel, shown[shown["sem"] > 0])  # one seed has no interval
    rings = shown[shown["learning_rate"].eq(shown["chosen"]) & shown["mean"].notna()]
    look: Fields = {"s": RING**2, "facecolors": "none", "zorder": 4, "linewidths": 1}
    panel.scatter(rings["learning_rate"], rings["mean"], edgecolors=list(rings["colour"]), **look)
    _draw_edges(panel, rings.merge(cells[[*CELL, "at_edge"]], on=CELL))
    if "optimum" in cells:
        _draw_optima(
            panel, rings.merge(cells[[*CELL, *BEST_RATE]], on=CELL).dropna(subset=BEST_RATE)
        )
    if "seed_values" in cells:
        _draw_seeds(panel, rings.merge(cells[[*CELL, *AT_CHOSEN]], on=CELL), metric)
    mark_rates(panel.xaxis, *panel.get_xlim())
    if rates["test_mean"].isna().all():
        panel.text(
            0.5,
            0.5,
            "no values yet",
            transform=panel.transAxes,
            ha="center",
            color="0.4",
            backgroundcolor="w",
        )
        panel.set_ylim(0, metric.scale)
    panel.margins(y=0.12)
    panel.set_xlabel("learning rate")
    dress(panel, "both", metric)
    if _all_diverged(rates).any():  # room for the crosses below the lines
        low, high = panel.get_ylim()
        panel.set_ylim(low - CROSS_HEIGHT * len(styles) * (high - low), high)


def _draw_line(
    panel: Axes, rows: Sequence[np.ndarray[Any, Any]], style: Style, cross_height: float
) -> None:
    """Draw a variant's means, hollow over fewer seeds, and crosses where all seeds diverged.

    `rows`: rates, means, whether over fewer seeds, and whether all diverged.
    """
    rates, means, partial, lost = rows
    known = ~np.isnan(means)
    panel.plot(
        rates[known], means[known], zorder=3, linewidth=LINE_WIDTH, markersize=5, **line_look(style)
    )
    if partial.any():
        hollow: Fields = {"color": style.colour, "markersize": 5, "mfc": "white", "zorder": 3.5}
        panel.plot(rates[partial], means[partial], style.marker, **hollow)
    if lost.any():
        cross: Fields = {"color": style.colour, "markersize": 6, "mew": 1.6}
        heights = [cross_height] * lost.sum()
        panel.plot(rates[lost], heights, "x", transform=panel.get_xaxis_transform(), **cross)


def _draw_edges(panel: Axes, rings: pd.DataFrame) -> None:
    """Draw an arrow from each best rate that is the smallest or largest tried, to where a better one may be."""
    for row in rings[rings["at_edge"] != ""].to_dict("records"):
        end, start = (
            (16 if row["at_edge"] == "high" else -16, 0),
            (row["learning_rate"], row["mean"]),
        )
        arrow = {"arrowstyle": "<-", "color": row["colour"], "shrinkB": RING / 2}
        panel.annotate("", start, xytext=end, textcoords="offset points", arrowprops=arrow)


def _draw_optima(panel: Axes, rows: pd.DataFrame) -> None:
    heights, colours = rows["mean"], list(rows["colour"])
    panel.hlines(
        heights, rows["low"], rows["high"], colors=colours, linewidths=5, alpha=0.35, zorder=2.5
    )
    panel.scatter(
        rows["optimum"], heights, s=CAP**2 * 4, c=colours, marker="|", linewidths=1.5, zorder=4
    )


def _draw_seeds(panel: Axes, rows: pd.DataFrame, metric: Metric) -> None:
    """Draw the values of single seeds beside a chosen rate, and the mean of fresh ones with its interval."""
    assert isinstance(panel.figure, Figure)
    move = ScaledTranslation(BESIDE / 72, 0, panel.figure.dpi_scale_trans)
    look: Fields = {"transform": panel.transData + move, "zorder": 3.5}
    for row in rows.dropna(subset=["seed_values"]).to_dict("records"):
        values = metric.scale * np.array(row["seed_values"])
        rates = [row["learning_rate"]] * len(values)
        panel.scatter(rates, values, s=4, alpha=0.6, linewidths=0, color=row["colour"], **look)
        mean, *ends = (metric.scale * row[name] for name in AT_CHOSEN[1:])
        if not math.isnan(mean):
            fresh = {"marker": "_", "markersize": 8, "color": row["colour"], **look}
            panel.plot(rates[:1], [mean], **fresh)
            panel.plot(rates[:1] * 2, ends, color=row["colour"], linewidth=1, **look)


def _draw_spread(panel: Axes, rows: pd.DataFrame) -> None:
    """Draw the error bars of all variants at once: an artist each would take longer than all the rest."""
    rates, low, high = rows["learning_rate"], rows["mean"] - rows["sem"], rows["mean"] + rows["sem"]
    ends = np.stack(
        [np.column_stack([rates, low]), np.column_stack([rates, high])], axis=1
    )  # bars, ends, (x, y)
    panel.add_collection(
        LineCollection(list(ends), colors=list(rows["colour"]), linewidths=LINE_WIDTH, zorder=3)
    )
    x, y = ends.reshape(-1, 2).T
    colours = list(rows["colour"].repeat(2))
    panel.scatter(x, y, s=CAP**2, c=colours, marker="_", linewidths=1, zorder=3)


def _all_diverged(rates: pd.DataFrame) -> pd.Series:
    return rates["diverged"].eq(rates["num_wanted"])


def _partial(rates: pd.DataFrame) -> pd.Series:
    return rates["num_tests"].between(1, rates["most_seeds"] - 1)


def _legend(
    rates: pd.DataFrame, styles: Mapping[str, Style], metric: Metric, of_papers: bool
) -> list[Line2D]:
    grey: Fields = {"color": "0.3", "linestyle": "none"}
    near = of_papers and any(
        near_lu2021(rows) for _, rows in rates.groupby("task")["learning_rate"]
    )
    chosen = {
        "marker": "o",
        "markersize": 11,
        "fillstyle": "none",
        "label": f"chosen on {metric.chosen_on}",
    }
    fixed = {
        "color": "#B00020",
        "linestyle": "--",
        "linewidth": 1.2,
        "label": "Lu et al. 2021 (1e-3)",
    }
    marks: list[tuple[object, Fields]] = [
        (metric.chosen_on, grey | chosen),
        (
            _partial(rates).any(),
            grey | {"marker": "o", "markersize": 5, "mfc": "white", "label": FEWER_SEEDS},
        ),
        (
            _all_diverged(rates).any(),
            grey | {"marker": "x", "mew": 1.6, "label": "all seeds diverged"},
        ),
        (near, fixed),
    ]
    return [
        *legend(styles, markersize=5),
        *(Line2D([], [], **look) for is_there, look in marks if is_there),
    ]
