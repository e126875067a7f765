"""The best learning rate of each cell and how it moves: sentences, tables, and a figure of each law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Block, Image, Section, file_stem
from lr_sweep.analysis.report.figures import FURTHER_MARKS, MIN_WIDTH, dress, framed, mark_rates, plain, save
from lr_sweep.analysis.report.further_tables import sensitivity_table
from lr_sweep.analysis.report.spreadsheet import write_csv
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.laws import laws, series_of
from lr_sweep.analysis.statistics.optimum import optima
from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.analysis.statistics.sensitivity import expected_bests, sensitivities

MOST_FIGURES, MOST_SAID = 4, 3
"""Laws that are drawn, and said in a sentence; the table has all."""
CAPTION = "Bars: 95% intervals. Line: the law; cross: the rate to expect at the next size."


def law_texts(found: pd.DataFrame) -> Sequence[str]:
    """Say each law as a sentence."""
    rows: list[dict[Any, Any]] = found.head(MOST_SAID).to_dict("records")
    return [say("law", **row) for row in rows]


def optima_section(folder: Path, summary: StudySummary, axes: pd.DataFrame) -> tuple[list[Section], Sequence[str]]:
    """Write tables, figures and CSV files of the best rates, and how much they matter; also return the sentences.

    `axes`: as of `laws.laws`.
    """
    metric, bests, measured = summary.metric, expected_bests(summary), sensitivities(summary)
    tunability = bests.groupby(CELL, sort=False)["expected"].mean().rename("tunability")
    best = optima(summary).join(tunability, on=CELL)
    found = laws(best, axes)
    tables = [
        laid_out("optima", best, metric=metric).write(folder, "optima", best),
        sensitivity_table(measured, bests, metric).write(folder, "sensitivity", measured),
    ]
    write_csv(bests, folder / "expected_best.csv")
    shown: list[Block] = []
    if len(found):
        moved = laid_out("laws", found, metric=metric).write(folder, "laws", found)
        shown = [moved, *_figures(folder, summary, best, axes, found)]
    body = [*shown, *(replace(each, folded=True) for each in tables)]
    return [Section("The best learning rate", body)], law_texts(found)


def _figures(
    folder: Path, summary: StudySummary, best: pd.DataFrame, axes: pd.DataFrame, found: pd.DataFrame
) -> list[Image]:
    images: list[Image] = []
    for row, (axis, series) in zip(found.to_dict("records"), series_of(axes), strict=True):
        if len(images) < MOST_FIGURES and not np.isnan(row["slope"]):
            title = f"Best learning rate against {axis}{', ' if row['where'] else ''}{row['where']}"
            figure = _figure(summary, best.loc[series.index], series[axis].astype(float), row, title)
            stem = f"law-{len(images)}-{file_stem(axis)}"
            images.append(Image(title, *save(figure, folder / stem)))
    return images


def _figure(summary: StudySummary, best: pd.DataFrame, sizes: pd.Series[float], law: Row, title: str) -> Figure:
    styles = [FURTHER_MARKS[i % len(FURTHER_MARKS)] for i in range(len(sizes))]
    handles = [
        Line2D([], [], color=colour, marker=marker, label=plain(f"{law['axis']} {size:g}"))
        for (colour, marker), size in zip(styles, sizes, strict=True)
    ]
    figure, (curves, line) = framed(title, CAPTION, handles, MIN_WIDTH, 1, 2)
    for (colour, marker), cell in zip(styles, best[CELL].itertuples(index=False), strict=True):
        rates = summary.of(**dict(zip(CELL, cell, strict=True))).learning_rates.sort_values("learning_rate")
        heights = summary.metric.scale * rates["validation_mean"]
        curves.plot(rates["learning_rate"], heights, color=colour, marker=marker, markersize=4)
    for (colour, _), optimum in zip(styles, best["optimum"], strict=True):
        curves.axvline(optimum, color=colour, linestyle=":", linewidth=1)
    _dress(curves, summary.metric)
    _draw_law(line, best, sizes, law, [colour for colour, _ in styles])
    return figure


def _dress(panel: Axes, metric: Metric) -> None:
    panel.set_xscale("log")
    mark_rates(panel.xaxis, *panel.get_xlim())
    panel.set_xlabel("learning rate")
    dress(panel, "both", metric)
    panel.set_ylabel(plain(metric.validation))


def _draw_law(panel: Axes, best: pd.DataFrame, sizes: pd.Series[float], law: Row, colours: Sequence[str]) -> None:
    x = np.array([*sizes, law["next_size"]])
    panel.plot(x, law["next_rate"] * (x / law["next_size"]) ** law["slope"], color="0.4", linewidth=1)
    for size, colour, (at, low, high) in zip(sizes, colours, best[["optimum", "low", "high"]].to_numpy(), strict=True):
        ends = np.nan_to_num([[at - low], [high - at]])
        panel.errorbar([size], [at], yerr=ends, color=colour, marker="o", markersize=4, capsize=3)
    ends = [[law["next_rate"] - law["next_low"]], [law["next_high"] - law["next_rate"]]]
    panel.errorbar([law["next_size"]], [law["next_rate"]], yerr=ends, color="0.4", marker="x", capsize=3)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(x, [f"{size:g}" for size in x], minor=False)
    panel.minorticks_off()
    mark_rates(panel.yaxis, *panel.get_ylim())
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_xlabel(plain(str(law["axis"])))
    panel.set_ylabel("best learning rate")
    panel.grid(color="0.9", linewidth=0.7)
