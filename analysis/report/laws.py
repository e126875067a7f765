"""The best learning rate of each cell and how it moves: sentences, tables, and a figure of each law."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.rates.laws import laws, series_of
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import NO_VALUE

from .blocks import (
    Block,
    Image,
    Paragraph,
    Section,
    Table,
    file_stem,
    table_of_rows,
    write_csv,
)
from .figure_frame import (
    Frame,
    Style,
    draw_grid,
    dress,
    framed,
    legend,
    line_look,
    mark_rates,
    plain,
    validation_axis,
    variant_styles,
    write_image,
)
from .numbers import about_text, slope_text

MOST_FIGURES, MOST_SAID = 4, 3
"""Laws that are drawn, and said in a sentence; the table has all."""
CAPTION = "Dotted: each size's best rate. Bars: 95% intervals. Line: the law; cross: the rate to expect next."


def optima_section(
    folder: Path, summary: StudySummary, axes: pd.DataFrame, *, pdf: bool = False
) -> tuple[list[Section], Sequence[str]]:
    """Write the table, figures and CSV files of the best rates; also return the sentences on laws.

    `axes`: as of `laws.laws`; `pdf`: as of `write_image`.
    """
    best = optima(summary)
    fits = laws(best, axes)
    write_csv(best, folder / "optima.csv")
    shown: list[Block] = [optima_table(best, summary.metric)]
    if len(fits):
        write_csv(fits, folder / "laws.csv")
        images = _figures(folder, summary, best, axes, fits, pdf=pdf)
        about = [Paragraph(CAPTION)] if images else []
        shown = [laws_table(fits), *about, *images, *shown]
    sentences = [law_text(law) for law in fits.head(MOST_SAID).to_dict("records")]
    return [Section("The best learning rate", shown)], sentences


def law_text(law: Row) -> str:
    """Say how the best learning rate moves: a row of `laws.laws`."""
    axis, note = law["axis"], law["note"]
    slope = f"{slope_text(law['slope'])} ({slope_text(law['low'])} to {slope_text(law['high'])})"
    if np.isnan(law["slope"]):
        text = f"{note}."
    elif note:
        text = f"the runs do not show that the best learning rate changes with {axis}: its slope is {slope}."
    else:
        text = (
            f"the best learning rate {'falls' if law['slope'] < 0 else 'rises'} as {axis}^{slope}: "
            f"at {law['next_size']:g} start at {about_text(law['next_rate'])} "
            f"({_between(law['next_low'], law['next_high'])})."
        )
    return f"{law['where']}: {text}" if law["where"] else text[0].upper() + text[1:]


def _between(low: float, high: float) -> str:
    return NO_VALUE if np.isnan(low) else f"{about_text(low)} to {about_text(high)}"


def optima_table(best: pd.DataFrame, metric: Metric) -> Table:
    """Show the result of `optimum.optima`."""
    caption = (
        f"The optimum is where {metric.validation} (mean over seeds) is best, with its 95% interval. The fit lets the "
        "curve fall as a power of the distance in log rate, one power for each side."
    )
    rows = [
        {
            **{name: row[name] for name in CELL},
            "optimum": about_text(row["optimum"]),
            "95% interval": _between(row["low"], row["high"]),
            "remarks": row["note"],
        }
        for row in best.to_dict("records")
    ]
    return table_of_rows("The best learning rate, between those that were tried", caption, rows)


def laws_table(fits: pd.DataFrame) -> Table:
    """Show the result of `laws.laws`."""
    caption = (
        "The slope is that of the logarithm of the optimum over the logarithm of the axis; 0 means that the optimum "
        "does not move. The rate to expect is the one at the next size. Intervals are 95%. The cells of a row differ "
        "only in the axis and in what follows from it."
    )
    rows = []
    for law in fits.to_dict("records"):
        is_read = not np.isnan(law["slope"])
        slopes = f"{slope_text(law['low'])} to {slope_text(law['high'])}"
        rows.append(
            {
                "cells": law["where"],
                "axis": law["axis"],
                "sizes": f"{law['smallest']:g} to {law['largest']:g} ({law['num_sizes']})",
                "slope": slope_text(law["slope"]),
                "95% interval": slopes if is_read else NO_VALUE,
                "next size": f"{law['next_size']:g}" if is_read else NO_VALUE,
                "rate to expect": about_text(law["next_rate"]),
                "its interval": _between(law["next_low"], law["next_high"]),
                "remarks": law["note"],
            }
        )
    return table_of_rows("How the best learning rate moves", caption, rows)


def _figures(
    folder: Path,
    summary: StudySummary,
    best: pd.DataFrame,
    axes: pd.DataFrame,
    fits: pd.DataFrame,
    *,
    pdf: bool,
) -> list[Image]:
    images: list[Image] = []
    for law, (axis, series) in zip(fits.to_dict("records"), series_of(axes), strict=True):
        if len(images) < MOST_FIGURES and not np.isnan(law["slope"]):
            where = f", {law['where']}" if law["where"] else ""
            title = f"Best learning rate against {axis}{where}"
            sized = best.loc[series.index].assign(size=series[axis].astype(float))
            draw = partial(_figure, summary, sized, law)
            stem = folder / f"law-{len(images)}-{file_stem(axis)}"
            images.append(write_image(title, stem, draw, pdf=pdf))
    return images


def _figure(summary: StudySummary, best: pd.DataFrame, law: Row, frame: Frame) -> Figure:
    """Draw the curve at each size, and the law beside them; `best`: optima with their `size`."""
    styles = variant_styles([f"{law['axis']} {size:g}" for size in best["size"]])
    figure, (curves, line) = framed(frame, legend(styles), ["", ""])
    cells = best.to_dict("records")
    for cell, style in zip(cells, styles.values(), strict=True):
        _draw_curve(curves, summary, cell, style)
        _draw_interval(
            line, cell["size"], [cell[name] for name in ("low", "optimum", "high")], style
        )
    curves.set_xscale("log")
    mark_rates(curves.xaxis)
    dress(curves, "learning rate", validation_axis(summary.metric))
    _draw_law(line, best["size"], law)
    return figure


def _draw_curve(panel: Axes, summary: StudySummary, cell: Row, style: Style) -> None:
    of_cell = summary.of(**{name: cell[name] for name in CELL})
    rates = of_cell.learning_rates.sort_values("learning_rate")
    heights = summary.metric.scale * rates["validation_mean"]
    panel.plot(rates["learning_rate"], heights, **line_look(style))
    panel.axvline(cell["optimum"], color=style.colour, linestyle=":", linewidth=1)


def _draw_interval(panel: Axes, x: float, ends: Sequence[float], style: Style) -> None:
    low, at, high = ends
    lengths = np.nan_to_num([[at - low], [high - at]])
    panel.errorbar([x], [at], yerr=lengths, fmt=style.marker, color=style.colour, capsize=3)


def _draw_law(panel: Axes, sizes: pd.Series[float], law: Row) -> None:
    x = np.array([*sizes, law["next_size"]])
    rates = law["next_rate"] * (x / law["next_size"]) ** law["slope"]
    panel.plot(x, rates, color="0.4", linewidth=1)
    ends = [law[f"next_{name}"] for name in ("low", "rate", "high")]
    _draw_interval(panel, law["next_size"], ends, Style("0.4", "x"))
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(x, [f"{size:g}" for size in x], minor=False)
    panel.minorticks_off()
    mark_rates(panel.yaxis)
    panel.set_xlabel(plain(str(law["axis"])))
    panel.set_ylabel("best learning rate")
    draw_grid(panel)
