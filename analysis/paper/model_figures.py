"""Draw what is inside trained and pretrained models (Lu et al. 2021, figures 3 to 6).

Shape legend: `H` heads, `T` tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lr_sweep.analysis.report.figure_frame import (
    CHARACTERS_PER_INCH,
    MARKS,
    TITLE_CHARACTERS_PER_INCH,
    draw_grid,
    shown_panels,
    wrapped,
)

MAX_COLUMNS = 4
PANEL = 2.6
"""Inches, of an attention map's side."""
KINDS = {"weight": "weights", "bias": "biases"}


def attention_figure(weights: np.ndarray, title: str, caption: str) -> Figure:
    """Draw the mean over heads, then each head, of one example's attention weights (H, T, T), on one colour scale."""
    maps = {"mean over heads": weights.mean(0)} | {
        f"head {head}": each for head, each in enumerate(weights)
    }
    figure, panels = _framed(title, caption, len(maps))
    scale: dict[str, Any] = {
        "vmin": 0.0,
        "vmax": float(weights.max()),
        "cmap": "viridis",
        "interpolation": "nearest",
    }
    for panel, (name, each) in zip(panels, maps.items(), strict=True):
        image = panel.imshow(each, **scale)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("attended token", fontsize=8)
        panel.set_ylabel("token", fontsize=8)
        panel.tick_params(labelsize=7)
    figure.colorbar(image, ax=figure.axes, shrink=0.6, label="attention weight")
    return figure


def deviations_figure(rows: Sequence[dict[str, Any]], title: str, caption: str) -> Figure:
    """Draw standard deviations against the layer, weights and biases apart, a line a tensor, the default dashed.

    `rows` have `layer`, `tensor`, `kind` (`weight` or `bias`), `standard_deviation` and `default`.
    """
    figure, panels = _framed(title, caption, len(KINDS), (8.0, 3.9))
    for panel, (kind, name) in zip(panels, KINDS.items(), strict=True):
        of_kind = [row for row in rows if row["kind"] == kind]
        tensors = dict.fromkeys(row["tensor"] for row in of_kind)
        for tensor, (colour, marker) in zip(tensors, cycle(MARKS), strict=False):
            points = [
                (row["layer"], row["standard_deviation"])
                for row in of_kind
                if row["tensor"] == tensor
            ]
            panel.plot(
                *zip(*points, strict=True), color=colour, marker=marker, markersize=4, label=tensor
            )
        if of_kind:
            panel.axhline(
                of_kind[0]["default"], color="0.3", linestyle="--", linewidth=1.2, label="default"
            )
        panel.set_title(name, fontsize=10.5)
        panel.set_xlabel("layer")
        panel.set_ylabel("standard deviation")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_ylim(bottom=0.0 if kind == "weight" else None)
        draw_grid(panel)
        panel.legend(fontsize=8, frameon=False)
    return figure


def _framed(
    title: str, caption: str, number: int, size: tuple[float, float] | None = None
) -> tuple[Figure, list[Axes]]:
    """`size`: width and height in inches; None: room for panels of `PANEL`."""
    columns = min(number, MAX_COLUMNS)
    rows = math.ceil(number / columns)
    width, height = size or (PANEL * columns + 0.8, PANEL * rows + 0.9)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    heading = wrapped(title, TITLE_CHARACTERS_PER_INCH * width)
    figure.suptitle(heading, fontsize=12, fontweight="bold")
    text = wrapped(caption, CHARACTERS_PER_INCH * (width - 0.2))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=7.5, color="0.25", linespacing=1.25)
    return figure, shown_panels(figure, rows, columns, number)
