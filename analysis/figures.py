"""Figures: drawing only, every number comes from `aggregate`. No pyplot, so no global state and no display."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

LU2021_LEARNING_RATE = 1e-3
"""The one learning rate of Lu et al. 2021 (all tasks but homology), the dashed line of Rothermel et al., Figure 1."""

# Okabe and Ito's colours, told apart with any colour vision; markers tell them apart in print.
STYLES = {
    "frozen-random": ("#E69F00", "v"),
    "frozen-pretrained": ("#D55E00", "o"),
    "unfrozen-random": ("#56B4E9", "s"),
    "unfrozen-pretrained": ("#0072B2", "D"),
}
FURTHER_STYLES = [("#009E73", "^"), ("#CC79A7", "P"), ("#000000", "X"), ("#999999", "p")]
"""For variants without a style of their own, in turn."""

Published = Mapping[tuple[str, str], float]
"""Published test accuracy in percent, by task and variant."""

MAX_COLUMNS = 3
HALF_DECADE = math.sqrt(10)

# Inches. Placed by hand: matplotlib's layouts put a figure's title and its legend on top of each other.
PANEL_WIDTH, PANEL_HEIGHT = 3.7, 2.6
LEFT, RIGHT, BETWEEN_COLUMNS, BETWEEN_ROWS = 0.65, 0.2, 0.7, 0.85
TOP, BOTTOM, TITLE_ROW, LEGEND_ROW, CAPTION_ROW = 0.52, 0.6, 0.23, 0.24, 0.135
MIN_WIDTH = 6.6
BAR_WIDTH = 0.3
CROSS_HEIGHT = 0.045
"""Between the crosses of two variants, as a fraction of a panel's height."""
CHARACTERS_PER_INCH = 18
TITLE_CHARACTERS_PER_INCH = 9


def learning_rate_figure(
    rates: pd.DataFrame, cells: pd.DataFrame, title: str, caption: str, published: Published | None = None
) -> Figure:
    """Draw test accuracy against learning rate, a panel a task, a line a variant (Rothermel et al. 2021, Figure 3).

    Args:
        rates: one model's rows of `aggregate.per_learning_rate`.
        cells: the same model's rows of `aggregate.per_cell`.
        title: above the panels.
        caption: below them.
        published: best test accuracies of the paper, drawn as dotted lines.
    """
    published = published or {}
    tasks = list(rates["task"].unique())
    styles = variant_styles(list(rates["variant"].unique()))
    columns = 2 if len(tasks) == 4 else min(len(tasks), MAX_COLUMNS)
    width = max(LEFT + RIGHT + PANEL_WIDTH * columns + BETWEEN_COLUMNS * (columns - 1), MIN_WIDTH)
    text = textwrap.fill(caption, int(CHARACTERS_PER_INCH * (width - RIGHT)))
    heading = textwrap.fill(title, int(TITLE_CHARACTERS_PER_INCH * width))
    title_height = TITLE_ROW * (heading.count("\n") + 1)
    handles = _legend(rates, styles)
    if any((task, variant) in published for task in tasks for variant in styles):
        handles.append(Line2D([], [], color="0.3", linestyle=":", linewidth=1.3, label="published best (Table 1)"))
    per_row = max(1, math.floor(width / (0.5 + 0.08 * max(len(str(handle.get_label())) for handle in handles))))
    top = TOP + title_height + LEGEND_ROW * math.ceil(len(handles) / per_row)
    bottom = BOTTOM + CAPTION_ROW * (text.count("\n") + 1)
    figure, panels = _grid(width, top, bottom, math.ceil(len(tasks) / columns), columns)
    for panel, task in zip(panels, tasks, strict=False):
        _draw_panel(panel, rates[rates["task"] == task], cells[cells["task"] == task], styles)
        _draw_published(panel, {v: published[task, v] for v in styles if (task, v) in published}, styles)
        panel.set_title(task, fontsize=10.5)
    for panel in panels[len(tasks) :]:
        panel.set_visible(False)
    _frame_with_text(figure, heading, text, handles, per_row, title_height)
    return figure


def best_rates_figure(cells: pd.DataFrame, title: str, caption: str, published: Published | None = None) -> Figure:
    """Draw test accuracy at each cell's chosen learning rate as bars (Rothermel et al. 2021, Figure 2 left).

    Args:
        cells: one model's rows of `aggregate.per_cell`.
        title: above the bars.
        caption: below them.
        published: best test accuracies of the paper, drawn as lines across the bars.
    """
    published = published or {}
    tasks, styles = list(cells["task"].unique()), variant_styles(list(cells["variant"].unique()))
    width = max(MIN_WIDTH, LEFT + RIGHT + BAR_WIDTH * len(tasks) * (len(styles) + 1))
    text = textwrap.fill(caption, int(CHARACTERS_PER_INCH * (width - RIGHT)))
    heading = textwrap.fill(title, int(TITLE_CHARACTERS_PER_INCH * width))
    title_height = TITLE_ROW * (heading.count("\n") + 1)
    handles = [Line2D([], [], color=c, marker="s", linestyle="none", label=v) for v, (c, _) in styles.items()]
    if any((task, variant) in published for task in tasks for variant in styles):
        handles.append(Line2D([], [], color="black", linewidth=1.6, label="published (Table 1)"))
    per_row = max(1, math.floor(width / (0.5 + 0.08 * max(len(str(handle.get_label())) for handle in handles))))
    top = TOP + title_height + LEGEND_ROW * math.ceil(len(handles) / per_row)
    figure, (panel,) = _grid(width, top, BOTTOM + CAPTION_ROW * (text.count("\n") + 1), 1, 1)
    _draw_bars(panel, cells, tasks, styles, published)
    _frame_with_text(figure, heading, text, handles, per_row, title_height)
    return figure


def _draw_bars(
    panel: Axes, cells: pd.DataFrame, tasks: list[str], styles: dict[str, tuple[str, str]], published: Published
) -> None:
    for cell in cells.to_dict("records"):
        place = tasks.index(cell["task"]) * (len(styles) + 1) + list(styles).index(cell["variant"])
        if cell["num_values"]:
            sem = 0.0 if pd.isna(cell["test_sem"]) else 100 * cell["test_sem"]  # one seed has no interval
            colour = styles[cell["variant"]][0]
            panel.bar(place, 100 * cell["test_mean"], yerr=sem, width=0.85, color=colour, capsize=2.5)
        else:
            panel.text(place, 1, "no value", rotation=90, ha="center", va="bottom", fontsize=8, color="0.4")
        if (value := published.get((cell["task"], cell["variant"]))) is not None:
            panel.plot([place - 0.5, place + 0.5], [value, value], color="black", linewidth=1.6)
    panel.set_xticks([i * (len(styles) + 1) + (len(styles) - 1) / 2 for i in range(len(tasks))], tasks)
    panel.set_xlim(-1, len(tasks) * (len(styles) + 1) - 1)
    panel.set_ylim(0, 100)
    panel.set_ylabel("test accuracy (%)")
    panel.grid(axis="y", color="0.9", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_published(panel: Axes, values: Mapping[str, float], styles: dict[str, tuple[str, str]]) -> None:
    for variant, value in values.items():
        panel.axhline(value, color=styles[variant][0], linestyle=":", linewidth=1.3, zorder=1.5)


def _frame_with_text(
    figure: Figure, heading: str, text: str, handles: list[Line2D], per_row: int, title_height: float
) -> None:
    """Put title, legend and caption around the panels."""
    width = figure.get_figwidth()
    height = figure.get_figheight()
    figure.text(0.5, 1 - 0.1 / height, heading, ha="center", va="top", fontsize=12, fontweight="bold")
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 1 - (0.09 + title_height) / height),
        ncols=per_row,
        frameon=False,
        fontsize=9,
    )
    figure.text(0.1 / width, 0.08 / height, text, va="bottom", fontsize=7.5, color="0.25", linespacing=1.25)


def _grid(width: float, top: float, bottom: float, rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """Make a figure of equal panels between margins, all in inches."""
    height = top + bottom + PANEL_HEIGHT * rows + BETWEEN_ROWS * (rows - 1)
    panel_width = (width - LEFT - RIGHT - BETWEEN_COLUMNS * (columns - 1)) / columns
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    places = {"left": LEFT / width, "right": 1 - RIGHT / width, "top": 1 - top / height, "bottom": bottom / height}
    places |= {"wspace": BETWEEN_COLUMNS / panel_width, "hspace": BETWEEN_ROWS / PANEL_HEIGHT}
    return figure, list(figure.subplots(rows, columns, squeeze=False, gridspec_kw=places).flatten())


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem.png` (150 dpi), `stem.svg` and `stem.pdf`; the same figure gives the same bytes."""
    png, svg, pdf = (stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg", "pdf"))
    figure.savefig(png, dpi=150)
    # Otherwise element ids are random and the file says when it was made.
    with matplotlib.rc_context({"svg.hashsalt": "lr-sweep"}):
        figure.savefig(svg, metadata={"Date": None})
    figure.savefig(pdf, metadata={"CreationDate": None})
    return [png, svg, pdf]


def variant_styles(variants: list[str]) -> dict[str, tuple[str, str]]:
    """Give each of a figure's variants a colour and a marker."""
    others = [variant for variant in variants if variant not in STYLES]
    further = {variant: FURTHER_STYLES[i % len(FURTHER_STYLES)] for i, variant in enumerate(others)}
    return {variant: STYLES.get(variant) or further[variant] for variant in variants}


def _draw_panel(panel: Axes, rates: pd.DataFrame, cells: pd.DataFrame, styles: dict[str, tuple[str, str]]) -> None:
    if near_lu2021(rates):
        panel.axvline(LU2021_LEARNING_RATE, color="#B00020", linestyle="--", linewidth=1.2, zorder=1)
    for place, (variant, (colour, marker)) in enumerate(styles.items()):
        rows = rates[rates["variant"] == variant]
        _draw_variant(panel, rows, colour, marker)
        chosen = rows[rows["learning_rate"].isin(cells.loc[cells["variant"] == variant, "learning_rate"])]
        panel.plot(
            chosen["learning_rate"],
            100 * chosen["test_mean"],
            "o",
            markersize=13,
            fillstyle="none",
            color=colour,
            zorder=4,
        )
        lost = rows.loc[_all_diverged(rows), "learning_rate"]
        heights = [CROSS_HEIGHT * (place + 0.8)] * len(lost)
        panel.plot(lost, heights, "x", color=colour, markersize=6, mew=1.6, transform=panel.get_xaxis_transform())
    _dress(panel, rates)
    if _all_diverged(rates).any():  # room for the crosses below the lines
        low, high = panel.get_ylim()
        panel.set_ylim(low - CROSS_HEIGHT * len(styles) * (high - low), high)


def _draw_variant(panel: Axes, rows: pd.DataFrame, colour: str, marker: str) -> None:
    known = rows.dropna(subset=["test_mean"])
    panel.errorbar(
        known["learning_rate"],
        100 * known["test_mean"],
        yerr=100 * known["test_sem"].fillna(0.0),  # one seed has no interval
        color=colour,
        marker=marker,
        markersize=5,
        linewidth=1.6,
        capsize=2.5,
        zorder=3,
    )
    partial = rows[_partial(rows)]
    panel.plot(
        partial["learning_rate"],
        100 * partial["test_mean"],
        marker,
        color=colour,
        markersize=5,
        mfc="white",
        zorder=3.5,
    )


def _dress(panel: Axes, rates: pd.DataFrame) -> None:
    panel.set_xscale("log")
    panel.set_xlim(rates["learning_rate"].min() / 1.8, rates["learning_rate"].max() * 1.8)
    panel.xaxis.set_major_locator(LogLocator(numticks=12))
    if rates["test_mean"].isna().all():
        panel.text(0.5, 0.5, "no values yet", transform=panel.transAxes, ha="center", color="0.4", backgroundcolor="w")
        panel.set_ylim(0, 100)
    panel.margins(y=0.12)
    panel.set_xlabel("learning rate")
    panel.set_ylabel("test accuracy (%)")
    panel.grid(color="0.9", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _all_diverged(rates: pd.DataFrame) -> pd.Series:
    return rates["diverged"].eq(rates["num_wanted"])


def _partial(rates: pd.DataFrame) -> pd.Series:
    return rates["num_values"].between(1, rates["num_wanted"] - 1)


def near_lu2021(rates: pd.DataFrame) -> bool:
    """Say whether a sweep comes within half a decade of the learning rate of Lu et al. 2021."""
    low, high = rates["learning_rate"].min() / HALF_DECADE, rates["learning_rate"].max() * HALF_DECADE
    return bool(low <= LU2021_LEARNING_RATE <= high)


def _legend(rates: pd.DataFrame, styles: dict[str, tuple[str, str]]) -> list[Line2D]:
    handles = [Line2D([], [], color=c, marker=m, markersize=5, label=v) for v, (c, m) in styles.items()]
    ring = {"marker": "o", "markersize": 11, "fillstyle": "none", "linestyle": "none", "color": "0.3"}
    handles.append(Line2D([], [], label="chosen on validation", **ring))  # type: ignore[arg-type]
    if _partial(rates).any():
        hollow = {"marker": "o", "markersize": 5, "markerfacecolor": "white", "linestyle": "none", "color": "0.3"}
        handles.append(Line2D([], [], label="not all seeds", **hollow))  # type: ignore[arg-type]
    if _all_diverged(rates).any():
        handles.append(Line2D([], [], marker="x", linestyle="none", color="0.3", mew=1.6, label="all seeds diverged"))
    if any(near_lu2021(rows) for _, rows in rates.groupby("task")):
        handles.append(Line2D([], [], color="#B00020", linestyle="--", linewidth=1.2, label="Lu et al. 2021 (1e-3)"))
    return handles
