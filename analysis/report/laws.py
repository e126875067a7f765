"""The best learning rate of each cell and how it moves: sentences, tables, and a figure of each law."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Block, Image, Section, file_stem, write_csv
from lr_sweep.analysis.report.figure_frame import (
    FURTHER_MARKS,
    LINE_WIDTH,
    MIN_WIDTH,
    STYLES,
    Style,
    draw_grid,
    dress,
    framed,
    legend,
    line_look,
    mark_rates,
    plain,
    save,
    variant_styles,
)
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.statistics.rates.laws import Surface, laws, series_of, surfaces
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.statistics.rates.tuning import expected_bests
from lr_sweep.analysis.statistics.selection.best import CELL, labels_of
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary

MOST_FIGURES, MOST_SAID = 4, 3
"""Laws that are drawn (and panels of tuning curves), and said in a sentence; the table has all."""
MOST_BANDS = 6
"""Most variants whose bands are drawn: of more, none could be seen."""
LEAST_TRIED = 3
"""Learning rates of a tuning curve that is drawn."""
CAPTION = "Bars: 95% intervals. Line: the law; cross: the rate to expect at the next size."


def _law_texts(found: pd.DataFrame) -> Sequence[str]:
    rows: list[dict[Any, Any]] = found.head(MOST_SAID).to_dict("records")
    texts = [say("law", **row) for row in rows]
    return [
        text if row["where"] else _sentence(text) for text, row in zip(texts, rows, strict=True)
    ]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def optima_section(
    folder: Path, summary: StudySummary, axes: pd.DataFrame
) -> tuple[list[Section], Sequence[str]]:
    """Write the table, figures and CSV files of the best rates; also return the sentences.

    `axes`: as of `laws.laws`.
    """
    metric, bests, best = summary.metric, expected_bests(summary), optima(summary)
    found = laws(best, axes)
    table = laid_out("optima", best, metric=metric).write(folder, "optima", best)
    write_csv(bests, folder / "expected_best.csv")
    shown: list[Block] = []
    if len(found):
        moved = laid_out("laws", found, metric=metric).write(folder, "laws", found)
        shown = [moved, *_figures(folder, summary, best, axes, found)]
    shown += _tuning(folder, bests, metric)
    said = [*_law_texts(found), *surface_texts(surfaces(best, axes))]
    return [Section("The best learning rate", [*shown, table])], said


def surface_texts(found: Sequence[Surface]) -> Sequence[str]:
    """Say each law of two axes as a sentence."""
    return [
        _sentence(
            say(
                "surface",
                **{"axes": axes, "sizes": sizes, "slopes": fit.slopes, "halves": fit.half_widths},
                **{"rate": 10**fit.at_next, "half": 10**fit.half_at_next},
            )
        )
        for axes, sizes, fit in found[:MOST_SAID]
    ]


def _tuning(folder: Path, bests: pd.DataFrame, metric: Metric) -> list[Block]:
    has_bands = bests["num_rates"].max() >= LEAST_TRIED and bests["low"].notna().any()
    return (
        [_tuning_figure(folder, bests, metric)]
        if has_bands and bests["variant"].nunique() <= MOST_BANDS
        else []
    )


def _tuning_figure(folder: Path, bests: pd.DataFrame, metric: Metric) -> Image:
    groups = list(bests.groupby(GROUP, sort=False))[:MOST_FIGURES]
    styles = variant_styles(list(bests["variant"].unique()))
    title, columns = "Best of so many learning rates", min(len(groups), 2)
    names = [f"{task}, {model}" for (task, model), _ in groups]
    figure, panels = framed(title, say("tuning", metric=metric), legend(styles), names, columns)
    for panel, (_, of_group) in zip(panels, groups, strict=True):
        for variant, curve in of_group.groupby("variant", sort=False):
            style, values = styles[str(variant)], metric.scale * curve[["expected", "low", "high"]]
            panel.plot(
                curve["num_tried"],
                values["expected"],
                linewidth=LINE_WIDTH,
                markersize=4,
                **line_look(style),
            )
            panel.fill_between(
                curve["num_tried"], values["low"], values["high"], color=style.colour, alpha=0.15
            )
        panel.set_xlabel("learning rates tried")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        dress(panel, "both", metric)
        panel.set_ylabel(plain(metric.validation))
    return Image(title, *save(figure, folder / "tuning"))


def _figures(
    folder: Path, summary: StudySummary, best: pd.DataFrame, axes: pd.DataFrame, found: pd.DataFrame
) -> list[Image]:
    images: list[Image] = []
    for row, (axis, series) in zip(found.to_dict("records"), series_of(axes), strict=True):
        if len(images) < MOST_FIGURES and not np.isnan(row["slope"]):
            title = f"Best learning rate against {axis}{', ' if row['where'] else ''}{row['where']}"
            figure = _figure(
                summary, best.loc[series.index], series[axis].astype(float), row, title
            )
            stem = f"law-{len(images)}-{file_stem(axis)}"
            images.append(Image(title, *save(figure, folder / stem)))
    return images


def _figure(
    summary: StudySummary, best: pd.DataFrame, sizes: pd.Series[float], law: Row, title: str
) -> Figure:
    marks = [*FURTHER_MARKS, *((style.colour, style.marker) for style in STYLES.values())]
    styles = [Style(*marks[i % len(marks)]) for i in range(len(sizes))]
    named = {f"{law['axis']} {size:g}": style for size, style in zip(sizes, styles, strict=True)}
    figure, (curves, line) = framed(title, CAPTION, legend(named), ["", ""], 2, MIN_WIDTH)
    for (colour, marker, _), cell in zip(styles, best[CELL].itertuples(index=False), strict=True):
        rates = summary.of(**labels_of(cell)).learning_rates.sort_values("learning_rate")
        heights = summary.metric.scale * rates["validation_mean"]
        curves.plot(rates["learning_rate"], heights, color=colour, marker=marker, markersize=4)
    for (colour, *_), optimum in zip(styles, best["optimum"], strict=True):
        curves.axvline(optimum, color=colour, linestyle=":", linewidth=1)
    _dress(curves, summary.metric)
    _draw_law(line, best, sizes, law, [style.colour for style in styles])
    return figure


def _dress(panel: Axes, metric: Metric) -> None:
    panel.set_xscale("log")
    mark_rates(panel.xaxis, *panel.get_xlim())
    panel.set_xlabel("learning rate")
    dress(panel, "both", metric)
    panel.set_ylabel(plain(metric.validation))


def _draw_law(
    panel: Axes, best: pd.DataFrame, sizes: pd.Series[float], law: Row, colours: Sequence[str]
) -> None:
    x = np.array([*sizes, law["next_size"]])
    panel.plot(
        x, law["next_rate"] * (x / law["next_size"]) ** law["slope"], color="0.4", linewidth=1
    )
    for size, colour, (at, low, high) in zip(
        sizes, colours, best[["optimum", "low", "high"]].to_numpy(), strict=True
    ):
        ends = np.nan_to_num([[at - low], [high - at]])
        panel.errorbar([size], [at], yerr=ends, color=colour, marker="o", markersize=4, capsize=3)
    ends = [[law["next_rate"] - law["next_low"]], [law["next_high"] - law["next_rate"]]]
    panel.errorbar(
        [law["next_size"]], [law["next_rate"]], yerr=ends, color="0.4", marker="x", capsize=3
    )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(x, [f"{size:g}" for size in x], minor=False)
    panel.minorticks_off()
    mark_rates(panel.yaxis, *panel.get_ylim())
    panel.set_xlabel(plain(str(law["axis"])))
    panel.set_ylabel("best learning rate")
    draw_grid(panel)
