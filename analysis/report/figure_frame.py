"""What all figures share: colours and marks, a frame with title, legend and caption, axes, files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from lr_sweep.analysis.metric import Metric
from lr_sweep.common.text import rate_text


class Style(NamedTuple):
    """How a variant's line looks."""

    colour: str
    """At least 3:1 against the page's light and dark ground."""
    marker: str
    """Matplotlib's letter."""
    dash: tuple[int, ...] = ()
    """Lengths of dashes and gaps in pixels; empty: solid."""


# Hues after Okabe and Ito, which are distinct with any colour vision, in the narrow range of lightness that is legible
# on white and on black. Marker and dash distinguish the lines where colour does not.
STYLES = {
    "frozen-random": Style("#A87900", "v", (3, 2)),
    "frozen-pretrained": Style("#D55E00", "o", (9, 3, 2, 3)),
    "unfrozen-random": Style("#0A8F6A", "s", (8, 3)),
    "unfrozen-pretrained": Style("#0A78BA", "D"),
}
FURTHER_MARKS = [("#8A6FD1", "^"), ("#B5547F", "P"), ("#7F7F7F", "X"), ("#9A6B3F", "p")]
FURTHER_DASHES: list[tuple[int, ...]] = [(), (8, 3), (3, 2), (9, 3, 2, 3), (14, 4)]
"""Their number has no factor in common with that of marks, so that 20 variants or more differ in one or the other."""

LINE_WIDTH = 1.6
# Inches. Laid out by hand: matplotlib's layouts put a figure's title and its legend on top of each other.
PANEL_WIDTH, PANEL_HEIGHT = 3.7, 2.6
LEFT, RIGHT, BETWEEN_COLUMNS, BETWEEN_ROWS = 0.65, 0.2, 0.7, 0.85
TOP, BOTTOM, TITLE_ROW, LEGEND_ROW, CAPTION_ROW = 0.52, 0.6, 0.23, 0.24, 0.135
MIN_WIDTH = 6.6
DARK = Path(__file__).with_name("web") / "figure.css"
"""Rules by which an SVG file follows a browser's dark scheme; other programs draw the figure's own colours."""
WIDE = 400
"""Largest over smallest of rates whose decades alone are marked."""
also_pdf = ContextVar("also_pdf", default=False)
"""Whether figures are PDF files, too, which takes as long as the others together."""
MOST_SVG_PANELS = 8
"""A figure of more is PNG alone: its SVG is larger, and takes as long again."""
CHARACTERS_PER_INCH = 18
TITLE_CHARACTERS_PER_INCH = 9


def save(figure: Figure, stem: Path) -> tuple[Path, ...]:
    """Write `stem.png` and, of few panels, `stem.svg`, and where it is wanted `stem.pdf`; return the first two paths.

    The same figure gives the same bytes.
    """
    if also_pdf.get():
        with matplotlib.rc_context(
            {"pdf.fonttype": 42}
        ):  # letters as letters, which publishers want
            figure.savefig(stem.with_name(f"{stem.name}.pdf"), metadata={"CreationDate": None})
    png, svg = (stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg"))
    if len(figure.axes) > MOST_SVG_PANELS:
        figure.savefig(png, dpi=100, pil_kwargs={"compress_level": 1})
        return (png,)
    figure.savefig(png, dpi=150)
    # Otherwise element ids are random and the file says when it was made.
    with matplotlib.rc_context({"svg.hashsalt": "lr-sweep"}):
        figure.savefig(svg, metadata={"Date": None})
    drawn = svg.read_text(encoding="utf-8")
    svg.write_text(drawn.replace("</style>", f"{DARK.read_text()}</style>", 1), encoding="utf-8")
    return png, svg


def variant_styles(variants: list[str]) -> dict[str, Style]:
    """Choose a colour, a marker and a dash for each of a figure's variants: its own, or the next that no other has."""
    free = [(style.colour, style.marker) for name, style in STYLES.items() if name not in variants]
    marks = FURTHER_MARKS + (
        free if len(free) > 1 else []
    )  # five marks would repeat with the five dashes at once
    styles: dict[str, Style] = {}
    for variant in variants:
        number = len([name for name in styles if name not in STYLES])
        mark, dash = marks[number % len(marks)], FURTHER_DASHES[number % len(FURTHER_DASHES)]
        styles[variant] = STYLES.get(variant) or Style(*mark, dash)
    return styles


def line_look(style: Style) -> dict[str, Any]:
    """Return a style as matplotlib's arguments of a line, `LINE_WIDTH` wide."""
    dash = tuple(length / LINE_WIDTH for length in style.dash)  # matplotlib counts in line widths
    return {"color": style.colour, "marker": style.marker, "linestyle": (0, dash) if dash else "-"}


def legend(styles: Mapping[str, Style], **look: Any) -> list[Line2D]:
    """Return the entries of a legend by their names, as the lines are drawn unless `look` says otherwise."""
    looks = {
        name: line_look(style) | {"linewidth": LINE_WIDTH} | look for name, style in styles.items()
    }
    return [Line2D([], [], label=plain(name), **look) for name, look in looks.items()]


def framed(
    title: str,
    caption: str,
    handles: Sequence[Artist],
    names: Sequence[str],
    columns: int,
    width: float | None = None,
) -> tuple[Figure, list[Axes]]:
    """Make a figure of equal panels, one a name, with a title and a legend above and a caption below.

    `width` in inches; None: that of panels of `PANEL_WIDTH`.
    """
    rows = math.ceil(len(names) / columns)
    of_panels = LEFT + RIGHT + PANEL_WIDTH * columns + BETWEEN_COLUMNS * (columns - 1)
    width = max(of_panels if width is None else width, MIN_WIDTH)
    text = plain(wrapped(caption, CHARACTERS_PER_INCH * (width - RIGHT)))
    heading = plain(wrapped(title, TITLE_CHARACTERS_PER_INCH * width))
    title_height = TITLE_ROW * (heading.count("\n") + 1)
    per_row = max(
        1,
        math.floor(width / (0.5 + 0.08 * max(len(str(handle.get_label())) for handle in handles))),
    )
    top = TOP + title_height + LEGEND_ROW * math.ceil(len(handles) / per_row)
    bottom = BOTTOM + CAPTION_ROW * (text.count("\n") + 1)
    height = top + bottom + PANEL_HEIGHT * rows + BETWEEN_ROWS * (rows - 1)
    panel_width = (width - LEFT - RIGHT - BETWEEN_COLUMNS * (columns - 1)) / columns
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    margins = {
        "left": LEFT / width,
        "right": 1 - RIGHT / width,
        "top": 1 - top / height,
        "bottom": bottom / height,
    }
    margins |= {"wspace": BETWEEN_COLUMNS / panel_width, "hspace": BETWEEN_ROWS / PANEL_HEIGHT}
    figure.text(
        0.5, 1 - 0.1 / height, heading, ha="center", va="top", fontsize=12, fontweight="bold"
    )
    place: dict[str, Any] = {
        "loc": "upper center",
        "bbox_to_anchor": (0.5, 1 - (0.09 + title_height) / height),
    }
    figure.legend(handles=handles, ncols=per_row, frameon=False, fontsize=9, **place)
    figure.text(
        0.1 / width, 0.08 / height, text, va="bottom", fontsize=7.5, color="0.25", linespacing=1.25
    )
    panels = shown_panels(figure, rows, columns, len(names), gridspec_kw=margins)
    for panel, name in zip(panels, names, strict=True):
        panel.set_title(plain(name), fontsize=10.5)
    return figure, panels


def wrapped(text: str, width: float) -> str:
    """Break a text into lines of so many characters, and no name at its hyphen."""
    return textwrap.fill(text, int(width), break_on_hyphens=False)


def shown_panels(
    figure: Figure, rows: int, columns: int, number: int, **settings: Any
) -> list[Axes]:
    """Make a grid of panels of which a number, the first ones, are seen; return these."""
    panels = list(figure.subplots(rows, columns, squeeze=False, **settings).flatten())
    for panel in panels[number:]:
        panel.set_visible(False)
    return panels[:number]


def plain(text: str) -> str:
    """Keep matplotlib from reading dollars of users' names as formulas."""
    return text.replace("$", r"\$")


def mark_rates(axis: Axis, low: float, high: float) -> None:
    """Mark decades on a logarithmic axis, or in a narrow range 1, 2 and 5 of each."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(
        LogLocator(numticks=12) if high / low >= WIDE else LogLocator(subs=(1.0, 2.0, 5.0))
    )
    axis.set_major_formatter(
        lambda rate, _: rate_text(float(f"{rate:.1g}"))
    )  # without formulas, which take 0.1 s


def dress(panel: Axes, grid: Literal["both", "y"], metric: Metric) -> None:
    """Label the axis of the metric, and draw a grid."""
    panel.set_ylabel(plain(metric.axis))
    panel.ticklabel_format(axis="y", useOffset=False)  # labels are values, not differences from one
    draw_grid(panel, grid)


def draw_grid(panel: Axes, grid: Literal["both", "y"] = "both") -> None:
    """Draw a grid below the lines, and no frame at the top and on the right."""
    panel.grid(axis=grid, color="0.9", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
