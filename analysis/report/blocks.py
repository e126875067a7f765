"""A report, described once, in pieces: each as Markdown, as text for a terminal and as JSON; `page.py` makes HTML.

Tables are also CSV files that a spreadsheet opens without running what is in them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.common.files import Fields
from lr_sweep.common.text import NO_VALUE, aligned, counted

_MARKS = re.compile(
    r"\\[\\`]|(?P<mark>`+)(?!`).+?(?<!`)(?P=mark)(?!`)|`+|<|&(?=#?\w+;)|\]\(", re.DOTALL
)
"""What begins something in Markdown, code first: as a whole it is left as it is."""
_INERT = {"<": "&lt;", "&": "&amp;", "](": "]\\("}
LONGEST_STEM = 100
"""Characters of a name in that of a file, which may have two of them, and 255 in all."""
_FORMULA = re.compile(r"[=+\-@\t\r＝＋－＠]")
"""How a formula begins; the last four are wide forms, which spreadsheets in East Asia read as the others."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?%?", re.ASCII | re.IGNORECASE)


MOST_ROWS, MOST_COLUMNS = 60, 20
"""Rows and columns of a table that a terminal shows; the report has all."""


class Figure:
    """A piece that a terminal does not show."""

    def text(self) -> str:
        """Return nothing."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of strings with what a reader needs to judge it."""

    template: ClassVar = "table.html"

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    """(row, column) of the entries that Markdown and HTML set in bold."""
    is_first: bool = False
    """Whether it is on a page's first screen, which folds its caption."""

    def markdown(self) -> str:
        """Render for `report.md`, or for a file of its own."""
        rows = [list(map(markdown_text, row)) for row in self.rows]
        for i, j in self.bold:
            rows[i][j] = f"**{rows[i][j]}**"
        head = [*map(markdown_text, self.header)]
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
        heading = markdown_text(f"**{self.title}.** {self.caption}")
        return "\n".join([heading, "", *lines, ""])

    def text(self) -> str:
        """Render for a terminal, columns aligned; of a large table, its beginning."""
        rows = [row[:MOST_COLUMNS] for row in (self.header, *self.rows[:MOST_ROWS])]
        more = {"row": len(self.rows) - MOST_ROWS, "column": len(self.header) - MOST_COLUMNS}
        left_out = [counted(number, f"more {what}") for what, number in more.items() if number > 0]
        ends = [f"... {' and '.join(left_out)}: in the report"] if left_out else []
        head, *lines = aligned(rows)
        rule = "-" * max(map(len, (head, *lines)))
        return "\n".join([self.title, head, rule, *lines, *ends, "", self.caption, ""])


Entry = Callable[[Row], str]
"""Writes an entry of a table from a row of its frame."""


def entries_of(column: str) -> Entry:
    """Return what writes a column as it is."""
    return lambda row: str(row[column])


def laid_out(title: str, caption: str, frame: pd.DataFrame, columns: Mapping[str, Entry]) -> Table:
    """Lay out a frame, a row a row; task and model come first where there are several."""
    several = [name for name in GROUP if len(set(frame.get(name, ())) - {""}) > 1]
    entries = {name: entries_of(name) for name in several} | dict(columns)
    rows = [
        {name: entry(row) for name, entry in entries.items()} for row in frame.to_dict("records")
    ]
    return table_of_rows(title, caption, rows)


def table_of_rows(title: str, caption: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """Lay out rows, entries by column; a column without a value in any row is left out."""
    columns = [name for name in rows[0] if any(row[name] not in ("", NO_VALUE) for row in rows)]
    texts = tuple(tuple(row[name] for name in columns) for row in rows)
    return Table(title=title, caption=caption, header=tuple(columns), rows=texts)


@dataclass(frozen=True)
class Paragraph:
    """Prose; text between backticks is code, nothing else is marked up."""

    template: ClassVar = "paragraph.html"

    prose: str

    def markdown(self) -> str:
        """Render for `report.md`."""
        return f"{_no_html(self.prose)}\n"

    def text(self) -> str:
        """Render for a terminal."""
        return self.prose


@dataclass(frozen=True)
class Bullets:
    """A list of paragraphs."""

    template: ClassVar = "bullets.html"

    items: Sequence[str]

    def markdown(self) -> str:
        """Render for `report.md`."""
        return "".join(f"- {_no_html(item)}\n" for item in self.items)

    def text(self) -> str:
        """Render for a terminal, a line each; of many items, the first."""
        lines = [f"  {item}" for item in self.items[:MOST_ROWS]]
        further = len(self.items) - MOST_ROWS
        return "\n".join(
            [*lines, *([f"  and {further} more in the report"] if further > 0 else [])]
        )


@dataclass(frozen=True)
class Verdict:
    """The answer of a report: of each task its name, and the sentences on it.

    A page's first screen has the first sentences; `SweepChart` has the others.
    """

    template: ClassVar = "verdict.html"

    items: Sequence[tuple[str, Sequence[str]]]
    is_whole: bool = False
    """Whether all sentences stand on the first screen, as no chart follows."""

    def markdown(self) -> str:
        """Render for `report.md`."""
        items = [f"**{name}**: {' '.join(sentences)}" for name, sentences in self.items]
        return "".join(f"- {markdown_text(item)}\n" for item in items)

    def text(self) -> str:
        """Render for a terminal, a line each."""
        return "\n".join(f"{name}: {' '.join(sentences)}" for name, sentences in self.items)


@dataclass(frozen=True)
class Image(Figure):
    """A figure that was drawn into a file beside the report; `page.js` folds it where the chart shows the same."""

    template: ClassVar = "image.html"

    title: str
    png: Path

    def markdown(self) -> str:
        """Link the file."""
        title = markdown_text(self.title)
        return f"![{title}]({self.png.name})\n\n{title}.\n"

    @property
    def source(self) -> str:
        """The file as an address that contains it."""
        return f"data:image/png;base64,{base64.b64encode(self.png.read_bytes()).decode()}"


@dataclass(frozen=True)
class SweepChart(Figure):
    """Where the interactive chart goes, which `page.js` draws; without JavaScript the images show the same."""

    template: ClassVar = "chart.html"

    caption: str
    verdict: Verdict = Verdict(())
    """The verdict whose further sentences stand below the chart; its first ones are above it."""

    def markdown(self) -> str:
        """Say what the images show, and point to the page."""
        page = "`index.html`, beside this file, has a figure that shows values under the pointer."
        return f"{_no_html(self.caption)} {page}\n"


Block = Table | Paragraph | Bullets | Verdict | Image | SweepChart
"""A piece of a section; `template` is the file in `templates/` that makes it HTML."""


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    title: str
    """Empty: no heading."""
    body: Sequence[Block]
    folded: bool = True
    """Whether a browser shows the heading alone until a reader opens it."""
    in_terminal: bool = False
    """Whether a terminal shows it, too."""

    @property
    def anchor(self) -> str:
        """Its id in the page: letters, digits and `-`, as a title may name the study's metric."""
        return re.sub(r"\W+", "-", self.title.lower())


@dataclass(frozen=True)
class Description:
    """A whole report, from which the page, `report.md`, `report.json` and the terminal's text are made."""

    title: str
    sections: Sequence[Section]

    @property
    def on_page(self) -> list[Section]:
        """The sections of the page, those that it folds last."""
        return sorted(self.sections, key=lambda section: section.folded)

    def markdown(self) -> str:
        """Return `report.md`."""
        lines = [f"# {markdown_text(self.title)}\n"]
        for section in self.on_page:
            heading = f"## {markdown_text(section.title)}\n\n" if section.title else ""
            lines.append(heading + "\n".join(block.markdown() for block in section.body))
        return "\n".join(lines)

    def text(self) -> str:
        """Return what a terminal shows."""
        parts = [self.title]
        for section in self.sections:
            if section.in_terminal:
                texts = [block.text().rstrip() for block in section.body]
                parts += filter(None, texts)
        return "\n\n".join(parts)

    def as_json(self) -> Fields:
        """Return `report.json`."""
        sections = [
            {"title": section.title, "blocks": list(map(_as_json, section.body))}
            for section in self.sections
        ]
        return {"format": 1, "title": self.title, "sections": sections}


def _as_json(block: Block) -> Fields:
    """Return a block's fields; files are named, and bold entries are listed."""
    content = {"kind": type(block).__name__, **vars(block)}
    content.pop("verdict", None)  # a block of its own
    for name, value in content.items():
        if isinstance(value, Path):
            content[name] = value.name
        elif isinstance(value, frozenset):
            content[name] = sorted(value)
    return content


def file_stem(name: str) -> str:
    """Return the beginning of a name with `-` in place of what file names should not have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:LONGEST_STEM]


def stem_of_each(names: Iterable[str]) -> dict[str, str]:
    """Return a file stem for each name; all are numbered where two are alike, whatever their case."""
    stems = {name: file_stem(name) for name in names}
    if len({stem.lower() for stem in stems.values()}) == len(stems):
        return stems
    return {name: f"{number}-{stem}" for number, (name, stem) in enumerate(stems.items(), 1)}


def markdown_text(text: str) -> str:
    """Keep a paragraph from being a column, a line, or more than text of Markdown."""
    return _no_html(text).replace("|", "\\|").replace("\n", " ")


def _no_html(text: str) -> str:
    """Keep a paragraph from being HTML, an entity, a link or a picture; in code Markdown reads none of them."""
    return _MARKS.sub(lambda match: _INERT.get(match[0], match[0]), text)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame without its index; text that a spreadsheet would read as a formula begins with an apostrophe."""
    columns = {
        place: column.map(quoted_text)
        if column.dtype == object or isinstance(column.dtype, pd.StringDtype)
        else column
        for place, (_, column) in enumerate(frame.items())
    }
    pd.DataFrame(columns).set_axis([quoted_text(name) for name in frame], axis=1).to_csv(
        path, index=False
    )


def quoted_text(value: object) -> object:
    """Return a value, a text that is no number and begins as a formula does behind an apostrophe."""
    formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


def as_written(text: str) -> str:
    """Return a text without the apostrophe that `quoted_text` puts before it."""
    return text[1:] if text.startswith("'") and quoted_text(text[1:]) == text else text
