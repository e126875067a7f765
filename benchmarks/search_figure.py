"""The figure of docs/search.md: regret against cost, of ways of choosing learning rates with and without stopping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from lr_sweep.analysis.report.figure_frame import save

SHOWN = ("-", "halving")
"""Rules in the figure: drawn as full and as hollow marks."""
STYLES = tuple(zip(("gray", "orange", "green", "brown", "blue", "red"), "sPXD^o", strict=True))
"""Colour and marker of each way."""
LEAST = 0.02
"""Points; lower regrets, some of them below 0, are drawn here on the logarithmic scale."""


def draw(tables: Mapping[str, pd.DataFrame], stem: Path) -> None:
    """Draw a panel per grid of the rows of `search.compared`, and write `stem.png` and `stem.svg`."""
    columns = min(3, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(4.0 * columns, 2.9 * rows + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel in panels[len(tables) :]:
        panel.remove()
    for panel, (name, table) in zip(panels, tables.items(), strict=False):
        _panel(panel, name, table)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(handles) // 2, frameon=False, fontsize=7)
    stem.parent.mkdir(parents=True, exist_ok=True)
    save(figure, stem)


def _panel(panel: Axes, name: str, table: pd.DataFrame) -> None:
    styles = dict(zip(table["way"].unique(), STYLES, strict=False))
    for (way, rule), rows in table[table["rule"].isin(SHOWN)].groupby(["way", "rule"], sort=False):
        colour, marker = styles[way]
        plain = rule == "-"
        panel.plot(
            100 * rows["run_steps"],
            rows["regret"].clip(lower=LEAST),
            color=f"tab:{colour}",
            marker=marker,
            markersize=5,
            markerfacecolor=f"tab:{colour}" if plain else "white",
            linestyle="-" if plain else ":",
            linewidth=1,
            label=way if plain else f"{way}, {rule}",
        )
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.axvline(40, color="0.7", linewidth=0.8, linestyle="--")
    panel.set_title(name, fontsize=9)
    panel.set_xlabel("run-steps, % of the grid's", fontsize=8)
    panel.set_ylabel("regret, points of test accuracy", fontsize=8)
    panel.tick_params(labelsize=7)
