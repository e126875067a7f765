"""A table of text and how it is written: Markdown, HTML, LaTeX, CSV, plain text."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

TEXT_WIDTH = 110
LONG_ENTRY = 40
"""Entries with more characters are broken into lines by HTML, others never."""

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_LATEX = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"<": "$<$", ">": "$>$", "|": "$|$"},
    **{"±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$"},
    **{"−": "$-$", "–": "--", "†": r"\dag{}", "‡": r"\ddag{}", "\n": " "},
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of strings with what a reader needs to judge it."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    """(row, column) of the entries that Markdown, HTML and LaTeX set in bold."""
    bold_text: str = "Bold: the highest of a column."
    """What bold means, for the caption."""

    def markdown(self) -> str:
        """Render for `report.md`."""
        lines = [_markdown_row(self.header), _markdown_row(["---"] * len(self.header))]
        for i, row in enumerate(self.rows):
            lines.append(
                _markdown_row([f"**{x}**" if (i, j) in self.bold else x for j, x in enumerate(map(_escape, row))])
            )
        return "\n".join([f"**{self.title}.** {_escape(self._caption())}", "", *lines, ""])

    def html(self) -> str:
        """Render for `index.html`: the title above, what explains it below, a frame that a narrow screen can scroll."""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.header)
        return "\n".join(
            [
                '<figure><div class="scroll"><table>',
                f"<caption><span>{html.escape(self.title)}</span></caption>",
                f"<thead><tr>{head}</tr></thead>",
                "<tbody>",
                *(self._html_row(i, row) for i, row in enumerate(self.rows)),
                "</tbody></table></div>",
                f"<figcaption>{html_text(self._caption())}</figcaption></figure>",
            ]
        )

    def latex(self) -> str:
        """Render as a LaTeX `table`; needs the package booktabs and nothing else."""
        rows = [[_latex_entry(x, (i, j) in self.bold) for j, x in enumerate(row)] for i, row in enumerate(self.rows)]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{latex_text(self.title)}. {latex_text(self._caption())}}}",
                rf"\begin{{tabular}}{{l{'c' * (len(self.header) - 1)}}}",
                r"\toprule",
                _latex_row([latex_text(name) for name in self.header]),
                r"\midrule",
                *map(_latex_row, rows),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def frame(self) -> pd.DataFrame:
        """Return header and rows as a frame of strings, for CSV."""
        return pd.DataFrame(list(self.rows), columns=list(self.header), dtype=str)

    def text(self) -> str:
        """Render for a terminal, columns aligned."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [
            "  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip()
            for row in (self.header, *self.rows)
        ]
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        return "\n".join([self.title, lines[0], rule, *lines[1:], "", textwrap.fill(self.caption, TEXT_WIDTH), ""])

    def _html_row(self, i: int, row: tuple[str, ...]) -> str:
        texts = map(html.escape, row)
        entries = [f"<strong>{x}</strong>" if (i, j) in self.bold else x for j, x in enumerate(texts)]
        kinds = [' class="long"' if len(x) > LONG_ENTRY else "" for x in row]
        cells = [f"<td{kind}>{entry}</td>" for kind, entry in zip(kinds[1:], entries[1:], strict=True)]
        return f'<tr><th scope="row">{entries[0]}</th>{"".join(cells)}</tr>'

    def _caption(self) -> str:
        return f"{self.caption} {self.bold_text}" if self.bold else self.caption


def write_tables(folder: Path, named: Mapping[str, Table], numbers: pd.DataFrame | None = None) -> None:
    """Write each table as `<name>.md`, `<name>.tex` and `<name>.csv`.

    Args:
        folder: where to write.
        named: tables by file name without ending.
        numbers: what the CSV file of the one table has instead of its texts: numbers in full, not rounded.
    """
    assert numbers is None or len(named) == 1, "numbers are those of one table"
    for name, table in named.items():
        folder.joinpath(f"{name}.md").write_text(table.markdown(), encoding="utf-8")
        folder.joinpath(f"{name}.tex").write_text(table.latex(), encoding="utf-8")
        content = table.frame() if numbers is None else numbers
        content.to_csv(folder / f"{name}.csv", index=False)


def file_stem(name: str) -> str:
    """Return a name with what file names should not have replaced by `-`."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


def html_text(text: str) -> str:
    """Escape prose for HTML; what stands between backticks becomes code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def latex_text(text: str) -> str:
    """Escape text for LaTeX; `×10⁵` and the like become mathematics."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda found: f"$^{{{found[0].translate(_SUPERSCRIPTS)}}}$", escaped)


def _latex_entry(text: str, bold: bool) -> str:
    return rf"\textbf{{{latex_text(text)}}}" if bold else latex_text(text)


def _latex_row(entries: list[str]) -> str:
    return " & ".join(entries) + r" \\"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _markdown_row(entries: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(entries)} |"
