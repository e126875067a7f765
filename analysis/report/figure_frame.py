"""The parts that all figures share: colours and marks, a frame with a legend, axes, files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullLocator

from lr_sweep.analysis.metric import Metric
from lr_sweep.common.text import rate_text

from .blocks import Image


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
MARKS = [
    ("#0A78BA", "D"),
    ("#D55E00", "o"),
    ("#0A8F6A", "s"),
    ("#A87900", "v"),
    ("#8A6FD1", "^"),
    ("#B5547F", "P"),
    ("#7F7F7F", "X"),
    ("#9A6B3F", "p"),
]
"""Colours and markers, in the order in which variants get them."""
DASHES: list[tuple[int, ...]] = [(), (9, 3, 2, 3), (8, 3), (3, 2), (14, 4)]
"""Their number has no factor in common with that of marks, so that 40 variants differ in one or the other."""
LINE_WIDTH = 1.6
"""Points of a line on a page, for which the dashes are made."""


class Frame(NamedTuple):
    """Sizes of a figure."""

    widths: tuple[float, float, float]
    """Inches of a figure with one, two and three columns of panels."""
    panel_height: float
    """Inches with the labels of its axes."""
    letters: float
    """Points of all letters; lines and margins follow from them."""
    has_powers: bool
    """Whether rates are powers of ten, as in a paper, and not `1e-2`; a formula takes 0.1 s."""

    def settings(self) -> dict[Any, Any]:
        """Return matplotlib's settings of letters, lines and files."""
        return {
            "axes.formatter.use_mathtext": self.has_powers,
            "axes.labelpad": 2,
            "axes.titlesize": self.letters,
            "font.size": self.letters,
            "grid.color": "#e6e6e6",
            "grid.linewidth": self.letters / 16,
            "legend.columnspacing": 1,
            "legend.fontsize": self.letters,
            "legend.handletextpad": 0.5,
            "legend.labelspacing": 0.2,
            "lines.linewidth": self.letters / 6,
            "lines.markersize": self.letters / 2,
            "pdf.fonttype": 42,  # letters as letters, in TrueType
        }


PAGE = Frame((6.6, 8.95, 13.35), 3.3, 9.6, has_powers=False)
"""A figure of a page."""
COLUMN = Frame((3.3, 6.75, 6.75), 2.4, 8, has_powers=True)
"""A figure of a paper, one column wide, or two for several panels."""
LEGEND_ROW, LEGEND_ENTRY, LETTER = 1.25, 3.6, 0.53
"""Ems of a row of the legend, of an entry without its text, and of a letter."""
DOTS_PER_INCH = 200
LABEL_WIDTH = 0.4
"""Inches of a learning rate on an axis."""
Draw = Callable[[Frame], Figure]


def write_image(title: str, stem: Path, draw: Draw, *, pdf: bool = False) -> Image:
    """Write a figure as `stem.png`; `pdf`: also as `stem.pdf`, which is drawn for a paper."""
    image = Image(title, stem.with_name(f"{stem.name}.png"))
    save(drawn(draw), image.png)
    if pdf:
        with matplotlib.rc_context(COLUMN.settings()):
            save(draw(COLUMN), stem.with_name(f"{stem.name}.pdf"))
    return image


def drawn(draw: Draw) -> Figure:
    """Return a figure of a page."""
    with matplotlib.rc_context(PAGE.settings()):
        return draw(PAGE)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG or PDF file; the same figure gives the same bytes."""
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"CreationDate": None})


def variant_styles(variants: Sequence[str]) -> dict[str, Style]:
    """Give each of a figure's variants a colour, a marker and a dash, by their order."""
    return {
        variant: Style(*MARKS[index % len(MARKS)], DASHES[index % len(DASHES)])
        for index, variant in enumerate(variants)
    }


def line_look(style: Style) -> dict[str, Any]:
    """Return a style as matplotlib's arguments of a line."""
    dash = tuple(length / LINE_WIDTH for length in style.dash)  # matplotlib counts in line widths
    return {"color": style.colour, "marker": style.marker, "linestyle": (0, dash) if dash else "-"}


def legend(styles: Mapping[str, Style], **look: Any) -> list[Line2D]:
    """Return the entries of a legend by their names, as the lines are drawn unless `look` says otherwise."""
    return [
        Line2D([], [], label=plain(name), **(line_look(style) | look))
        for name, style in styles.items()
    ]


def framed(
    frame: Frame, handles: Sequence[Artist], names: Sequence[str]
) -> tuple[Figure, list[Axes]]:
    """Make a figure of equal panels, one a name, below a legend; a single panel does not show its name."""
    em = frame.letters / 72
    columns = 2 if len(names) == 4 else min(len(names), len(frame.widths))
    rows = math.ceil(len(names) / columns)
    width = frame.widths[columns - 1]
    longest = max(len(str(handle.get_label())) for handle in handles)
    per_row = max(1, int(width / em / (LEGEND_ENTRY + LETTER * longest)))
    legend_height = LEGEND_ROW * em * math.ceil(len(handles) / per_row)
    size = (width, frame.panel_height * rows + legend_height)
    figure = Figure(figsize=size, layout="constrained")
    figure.legend(handles=handles, ncols=per_row, frameon=False, loc="outside upper center")
    grid = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for panel in grid[len(names) :]:
        panel.remove()
    panels = grid[: len(names)]
    for panel, name in zip(panels, names, strict=True):
        panel.set_title(plain(name) if len(names) > 1 else "")
    return figure, panels


def plain(text: str) -> str:
    """Keep matplotlib from reading dollars of users' names as formulas."""
    return text.replace("$", r"\$")


def mark_rates(axis: Axis) -> None:
    """Mark 1, 2 and 5 of each decade on a logarithmic axis, or decades alone where there is less room."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    inches = axis.axes.get_window_extent().width / figure.dpi
    low, high = axis.get_view_interval()
    has_room = 3 * math.log10(high / low) * LABEL_WIDTH <= inches
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if has_room else (1.0,)))
    if matplotlib.rcParams["axes.formatter.use_mathtext"]:
        every = (math.inf, math.inf)
        axis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=every))
    else:
        axis.set_major_formatter(lambda rate, _: rate_text(float(f"{rate:.1g}")))


def dress(panel: Axes, x: str, y: str) -> None:
    """Label the axes, and draw a grid."""
    panel.set_xlabel(plain(x))
    panel.set_ylabel(plain(y))
    panel.ticklabel_format(axis="y", useOffset=False)  # labels are values, not differences from one
    draw_grid(panel)


def validation_axis(metric: Metric) -> str:
    """Label the axis of a figure of validation values."""
    return f"{metric.validation} (%)" if metric.is_fraction else metric.validation


def draw_grid(panel: Axes) -> None:
    """Draw a grid below the lines, and no frame at the top and on the right."""
    panel.grid()
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
