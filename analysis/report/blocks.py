"""The pieces of a report, each as Markdown for `report.md` and as HTML for `index.html`; tables as CSV and text too."""

from __future__ import annotations

import base64
import html
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.spreadsheet import write_csv

TEXT_WIDTH = 110
LONG_ENTRY = 20
"""Entries with more characters are broken into lines by HTML, others never."""
_SPECIAL = re.compile(r"[<&|\n]")
LONGEST_STEM = 100
"""Characters of a name in that of a file, which may have two of them, and 255 in all."""
MAX_SVG_BYTES = 120_000
"""A drawing larger than this, one with very many points, goes into the page as PNG if that is smaller."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of strings with what a reader needs to judge it."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    """(row, column) of the entries that Markdown and HTML set in bold."""
    bold_text: str = "Bold: the highest of a column."
    """What bold means, for the caption."""
    shared: str = ""
    """What other tables of the report rest on, too: its files have it, the report says it once."""
    folded: bool = False
    """Whether a browser shows the title alone until a reader opens it."""
    stacked: bool = False
    """Whether a narrow screen shows each row as a list of its entries, so that none is out of view."""

    @classmethod
    def of(
        cls, frame: pd.DataFrame, title: str, caption: str, columns: Mapping[str, str | Callable[[Row], str]]
    ) -> Table:
        """Lay out a frame, row by row; each heading has a column of it or a function that writes a row's entry."""
        rows = tuple(
            tuple(str(row[entry]) if isinstance(entry, str) else entry(row) for entry in columns.values())
            for row in frame.to_dict("records")
        )
        return cls(title=title, caption=caption, header=tuple(columns), rows=rows)

    def markdown(self, alone: bool = False) -> str:
        """Render for `report.md`, or for a file of its own."""
        rows = [self._marked(i, [_escape(text) for text in row], "**{}**") for i, row in enumerate(self.rows)]
        lines = [f"| {' | '.join(row)} |" for row in ([*map(_escape, self.header)], ["---"] * len(self.header), *rows)]
        return "\n".join(
            [f"**{_escape(self.title)}.** {_escape(self.full_caption if alone else self._caption)}", "", *lines, ""]
        )

    def html(self) -> str:
        """Render for `index.html`: the title above, what explains it below, a frame that a narrow screen can scroll."""
        figure = self._figure()
        summary = f"<summary>{html.escape(self.title)}</summary>"
        return f'<details class="fold">{summary}\n{figure}</details>' if self.folded else figure

    @property
    def full_caption(self) -> str:
        """What explains the table where it stands alone."""
        return f"{self._caption} {self.shared}".strip()

    @property
    def _caption(self) -> str:
        return f"{self.caption} {self.bold_text}" if self.bold else self.caption

    def _figure(self) -> str:
        kind = ' class="stacked"' if self.stacked else ""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.header)
        return "\n".join(
            [
                f'<figure><div class="scroll"><table{kind}>',
                f"<caption><span>{html.escape(self.title)}</span></caption>",
                f"<thead><tr>{head}</tr></thead>",
                "<tbody>",
                *(self._html_row(i, row) for i, row in enumerate(self.rows)),
                "</tbody></table></div>",
                f"<figcaption>{_html_text(self._caption)}</figcaption></figure>",
            ]
        )

    def text(self) -> str:
        """Render for a terminal, columns aligned."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        head, *lines = (
            "  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip()
            for row in (self.header, *self.rows)
        )
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        return "\n".join([self.title, head, rule, *lines, "", textwrap.fill(self.caption, TEXT_WIDTH), ""])

    def write(self, folder: Path, name: str, numbers: pd.DataFrame | None = None) -> Table:
        """Write `<name>.md` and `<name>.csv`, which has `numbers` in full, else the table's texts; return the table."""
        folder.joinpath(f"{name}.md").write_text(self.markdown(alone=True), encoding="utf-8")
        content = pd.DataFrame(list(self.rows), columns=list(self.header), dtype=str) if numbers is None else numbers
        write_csv(content, folder / f"{name}.csv")
        return self

    def _html_row(self, i: int, row: tuple[str, ...]) -> str:
        first, *others = self._marked(i, [html.escape(text) for text in row], "<strong>{}</strong>")
        names = [f' data-name="{html.escape(name)}"' if self.stacked else "" for name in self.header[1:]]
        cells = [
            f"<td{name}{_kind(text)}>{entry}</td>" for name, text, entry in zip(names, row[1:], others, strict=True)
        ]
        return f'<tr><th scope="row">{first}</th>{"".join(cells)}</tr>'

    def _marked(self, i: int, texts: list[str], bold: str) -> list[str]:
        return [bold.format(text) if (i, j) in self.bold else text for j, text in enumerate(texts)]


@dataclass(frozen=True)
class Paragraph:
    """Prose; text between backticks is code, nothing else is marked up."""

    text: str

    def markdown(self) -> str:
        """Render for `report.md`."""
        return f"{_no_html(self.text)}\n"

    def html(self) -> str:
        """Render for `index.html`."""
        return f"<p>{_html_text(self.text)}</p>"


@dataclass(frozen=True)
class Bullets:
    """A list of paragraphs."""

    items: Sequence[str]

    def markdown(self) -> str:
        """Render for `report.md`."""
        return "".join(f"- {_no_html(item)}\n" for item in self.items)

    def html(self) -> str:
        """Render for `index.html`."""
        return "\n".join(["<ul>", *(f"<li>{_html_text(item)}</li>" for item in self.items), "</ul>"])


@dataclass(frozen=True)
class Verdict:
    """What the report opens with: of each task its name, the verdict, and a line in small print."""

    items: Sequence[tuple[str, str, str]]

    def markdown(self) -> str:
        """Render for `report.md`."""
        return "".join(f"- **{_escape(name)}**: {_escape(text)} {_escape(small)}\n" for name, text, small in self.items)

    def html(self) -> str:
        """Render for `index.html`."""
        lines = [
            f"<li><b>{html.escape(name)}</b>: {_unbroken(html.escape(text))} <small>{html.escape(small)}</small></li>"
            for name, text, small in self.items
        ]
        return "\n".join(['<ul class="verdict">', *lines, "</ul>"])

    def text(self) -> str:
        """Render for a terminal, in lines of `TEXT_WIDTH`."""
        items = [f"{name}: {text} {small}".rstrip() for name, text, small in self.items]
        return "\n".join(textwrap.fill(item, TEXT_WIDTH, subsequent_indent="  ") for item in items)


@dataclass(frozen=True)
class Image:
    """A figure that was drawn into files beside the report."""

    title: str
    png: Path
    svg: Path

    def markdown(self) -> str:
        """Link the files."""
        return f"![{self.title}]({self.png.name})\n\n{self.title}, also as [SVG]({self.svg.name}).\n"

    def html(self) -> str:
        """Embed the sharper file, unless it is too large; `page.js` folds it where the chart shows the same."""
        too_large = self.svg.stat().st_size > max(MAX_SVG_BYTES, self.png.stat().st_size)
        path, kind = (self.png, "png") if too_large else (self.svg, "svg+xml")
        source = f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
        title = html.escape(self.title)
        return f'<details open><summary>{title}</summary><img alt="{title}" src="{source}"></details>'


@dataclass(frozen=True)
class SweepChart:
    """Where the interactive chart goes, which `page.js` draws from the page's data."""

    caption: str

    def markdown(self) -> str:
        """Point to the page."""
        return "`index.html`, beside this file, shows the following with values under the pointer.\n"

    def html(self) -> str:
        """Render its empty elements; without JavaScript they stay hidden and the images show the same."""
        return SWEEP_CHART.format(caption=_html_text(self.caption))


Block = Table | Paragraph | Bullets | Verdict | Image | SweepChart
"""A piece of a section; its HTML is escaped and refers to nothing outside the page."""

SWEEP_CHART = """\
<div id="sweep" class="sweep" hidden>
<div class="controls">
<label>Task <select id="task"></select></label>
<label id="choose-model">Model <select id="model"></select></label>
<fieldset id="variants"><legend>Variants</legend></fieldset>
</div>
<div class="stage">
<div id="plot" class="plot"></div>
<div id="reading" class="reading"></div>
</div>
<div id="key" class="key"></div>
<p class="hint">Drag the handle, or press Tab and the arrow keys, to compare at one learning rate. Point at a value to
read it. Orders are of means: close variants may change places by chance. Between learning rates nothing was
measured.</p>
<p class="caption">{caption}</p>
</div>"""


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    title: str
    """Empty: no heading."""
    body: Sequence[Block]


def report_markdown(title: str, sections: Sequence[Section]) -> str:
    """Render the whole of `report.md`."""
    lines = [f"# {_escape(title)}\n"]
    for section in sections:
        heading = f"## {section.title}\n\n" if section.title else ""
        lines.append(heading + "\n".join(block.markdown() for block in section.body))
    return "\n".join(lines)


def file_stem(name: str) -> str:
    """Return the beginning of a name with `-` in place of what file names should not have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:LONGEST_STEM]


def file_stems(names: Sequence[Sequence[str]]) -> list[str]:
    """Return a file stem for each name, given in parts; numbered where two are alike, whatever their case."""
    found: list[str] = []
    for parts in names:
        stem = "-".join(map(file_stem, parts))
        same = sum(earlier.lower().startswith(stem.lower()) for earlier in found)
        found.append(f"{stem}.{same + 1}" if stem.lower() in map(str.lower, found) else stem)
    return found


def stem_of_each(names: Iterable[str]) -> dict[str, str]:
    """Return `file_stems` of single names, by name."""
    listed = list(names)
    return dict(zip(listed, file_stems([(name,) for name in listed]), strict=True))


def _html_text(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _kind(text: str) -> str:
    """Let a browser break long entries, and numbers in a row, into lines."""
    return ' class="long"' if len(text) > LONG_ENTRY else ' class="list"' if re.fullmatch(r"[\d ]+", text) else ""


def _unbroken(text: str) -> str:
    """Keep learning rates on one line: a browser breaks `1e-3` at its hyphen."""
    return re.sub(r"\b\d+(?:\.\d+)?e-\d+\b", r'<data value="\g<0>">\g<0></data>', text)


def _escape(text: str) -> str:
    """Keep text from being a column, a line or an HTML element of Markdown."""
    if not _SPECIAL.search(text):
        return text
    return _no_html(text).replace("|", "\\|").replace("\n", " ")


def _no_html(text: str) -> str:
    """Write `<`, and `&` where it would begin an entity, as entities; in code Markdown reads neither."""
    parts = re.split("(`[^`]+`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"&(?=#?\w+;)", "&amp;", part).replace("<", "&lt;") for part in parts
    )
