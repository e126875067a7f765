"""The parts that all figures share: colours and marks, a frame with a legend, axes, files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    """Inches."""
    letters: float
    """Points of all letters but a title's and a caption's; lines and margins follow from them."""
    has_text: bool
    """Whether a title stands above the figure and a caption below it; a paper has its own."""

    def settings(self) -> dict[Any, Any]:
        """Return matplotlib's settings of letters, lines and files."""
        return {
            "axes.formatter.use_mathtext": not self.has_text,
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


PAGE = Frame((6.6, 8.95, 13.35), 2.6, 9.6, has_text=True)
"""A figure of a page."""
COLUMN = Frame((3.3, 6.75, 6.75), 1.9, 8, has_text=False)
"""A figure of a paper, one column wide, or two for several panels."""
# In ems, by hand: matplotlib's layouts put a title and a legend on top of each other.
LEFT, RIGHT, BOTTOM, BETWEEN_COLUMNS, BETWEEN_ROWS = 4.7, 1.0, 4.0, 5.0, 6.2
PANEL_TITLE, LEGEND_ROW, LEGEND_ENTRY, LETTER = 2.0, 1.25, 3.6, 0.53
Draw = Callable[[Frame], Figure]
TITLE_ROW, CAPTION_ROW = 0.23, 0.135
"""Inches of a line of a title and of a caption."""
CHARACTERS_PER_INCH, TITLE_CHARACTERS_PER_INCH = 18, 9
DARK = Path(__file__).with_name("web") / "figure.css"
"""Rules by which an SVG file follows a browser's dark scheme; other programs draw the figure's own colours."""
LABEL_WIDTH = 0.4
"""Inches of a learning rate on an axis."""
MOST_SVG_PANELS = 8
"""A figure of more is PNG alone: its SVG is larger, and takes as long again."""


def write_image(title: str, stem: Path, draw: Draw, *, pdf: bool = False) -> Image:
    """Write a figure as `save` does; `pdf`: also `stem.pdf`, which is drawn for a paper."""
    files = save(drawn(draw), stem)
    if pdf:
        with matplotlib.rc_context(COLUMN.settings()):
            path = stem.with_name(f"{stem.name}.pdf")
            draw(COLUMN).savefig(path, metadata={"CreationDate": None})
    return Image(title, *files)


def drawn(draw: Draw) -> Figure:
    """Return a figure of a page."""
    with matplotlib.rc_context(PAGE.settings()):
        return draw(PAGE)


def save(figure: Figure, stem: Path) -> tuple[Path, ...]:
    """Write `stem.png` and, of few panels, `stem.svg`; return the paths. The same figure gives the same bytes."""
    png, svg = (stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg"))
    if len(figure.axes) > MOST_SVG_PANELS:
        figure.savefig(png, dpi=100, pil_kwargs={"compress_level": 1})
        return (png,)
    figure.savefig(png, dpi=150)
    # Otherwise element ids are random and the file says when it was made.
    with matplotlib.rc_context({"svg.hashsalt": "lr-sweep"}):
        figure.savefig(svg, metadata={"Date": None})
    text = svg.read_text(encoding="utf-8")
    svg.write_text(text.replace("</style>", f"{DARK.read_text()}</style>", 1), encoding="utf-8")
    return png, svg


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
    frame: Frame, title: str, caption: str, handles: Sequence[Artist], names: Sequence[str]
) -> tuple[Figure, list[Axes]]:
    """Make a figure of equal panels, one a name, below a legend; on a page with its title and its caption."""
    em = frame.letters / 72
    columns = 2 if len(names) == 4 else min(len(names), len(frame.widths))
    rows = math.ceil(len(names) / columns)
    width = frame.widths[columns - 1]
    heading = _wrapped(title, TITLE_CHARACTERS_PER_INCH * width)
    text = _wrapped(caption, CHARACTERS_PER_INCH * (width - em))
    longest = max(len(str(handle.get_label())) for handle in handles)
    per_row = max(1, int(width / em / (LEGEND_ENTRY + LETTER * longest)))
    num_rows = math.ceil(len(handles) / per_row)
    has_names = any(names) and (frame.has_text or len(names) > 1)

    title_height = 0.1 + frame.has_text * TITLE_ROW * (heading.count("\n") + 1)
    top = title_height + em * (1 + LEGEND_ROW * num_rows + has_names * PANEL_TITLE)
    bottom = BOTTOM * em + frame.has_text * CAPTION_ROW * (text.count("\n") + 1)
    between_columns, between_rows = BETWEEN_COLUMNS * em, BETWEEN_ROWS * em
    height = top + bottom + frame.panel_height * rows + between_rows * (rows - 1)
    panel_width = (width - (LEFT + RIGHT) * em - between_columns * (columns - 1)) / columns

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    if frame.has_text:
        look: dict[str, Any] = {"fontsize": 7.5, "color": "0.25", "linespacing": 1.25}
        figure.suptitle(heading, y=1 - 0.1 / height, fontsize=12, fontweight="bold")
        figure.text(0.1 / width, 0.08 / height, text, va="bottom", **look)
    figure.legend(
        handles=handles,
        ncols=per_row,
        frameon=False,
        loc="upper center",
        borderaxespad=0,
        bbox_to_anchor=(0.5, 1 - title_height / height),
    )
    grid = list(figure.subplots(rows, columns, squeeze=False).flatten())
    panels = grid[: len(names)]
    for panel in grid[len(names) :]:
        panel.set_visible(False)
    figure.subplots_adjust(
        left=LEFT * em / width,
        right=1 - RIGHT * em / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=between_columns / panel_width,
        hspace=between_rows / frame.panel_height,
    )
    for panel, name in zip(panels, names, strict=True):
        panel.set_title(plain(name) if has_names else "")
    return figure, panels


def _wrapped(text: str, width: float) -> str:
    """Break a text into lines of so many characters, and no name at its hyphen."""
    return plain(textwrap.fill(text, int(width), break_on_hyphens=False))


def plain(text: str) -> str:
    """Keep matplotlib from reading dollars of users' names as formulas."""
    return text.replace("$", r"\$")


def mark_rates(axis: Axis, low: float, high: float) -> None:
    """Mark 1, 2 and 5 of each decade on a logarithmic axis, or decades alone where there is less room."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    inches = axis.axes.get_window_extent().width / figure.dpi
    most_labels = int(inches / LABEL_WIDTH)
    num_labels = 3 * math.log10(high / low)
    decades, thirds = LogLocator(numticks=most_labels), LogLocator(subs=(1.0, 2.0, 5.0))
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(decades if num_labels > most_labels else thirds)
    is_formula = matplotlib.rcParams["axes.formatter.use_mathtext"]
    write = _power_text if is_formula else rate_text  # a formula takes 0.1 s
    axis.set_major_formatter(lambda rate, _: write(float(f"{rate:.1g}")))


def _power_text(rate: float) -> str:
    mantissa, exponent = f"{rate:.0e}".split("e")
    factor = "" if mantissa == "1" else rf"{mantissa}{{\cdot}}"
    return f"${factor}10^{{{int(exponent)}}}$"


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
