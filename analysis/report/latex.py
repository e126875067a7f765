"""The results of a report for LaTeX: tables for `booktabs`, which mark what the verdict's tests say."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from lr_sweep.analysis.statistics.selection.best import CELL

from .blocks import Table, file_stem
from .cells import MARKS

SPECIAL = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"},
        **{"±": r"$\pm$", "−": "$-$", "×": r"$\times$"},
        **{"†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}", "–": r"\textendash{}"},
    }
)
"""What TeX reads as a command, or has no letter for."""
POWER = re.compile(r"(\d+(?:\.\d+)?)e([+-]?\d+)")
"""A learning rate or a p value, as `3.2e-4`."""
HEADINGS = {"learning rate": "rate", "difference to the best": "difference", "corrected p": "$p$"}
"""Short headings, with which the table fits a page of one column; the caption says what they mean."""
MARKED = re.compile(rf" ([{''.join(MARKS)}]+)$")
"""Marks at the end of an entry."""


def latex_text(label: str, tables: Sequence[Table]) -> str:
    """Return tables for a paper; `label`: the name of the study."""
    parts = [r"% In the preamble: \usepackage{booktabs}"]
    for number, table in enumerate(tables):
        headings = [HEADINGS.get(name, escaped(name)) for name in table.header]
        frame = pd.DataFrame(_rows(table), columns=headings)
        text = frame.style.hide(axis="index").to_latex(
            hrules=True,
            column_format="".join("l" if name in CELL else "r" for name in table.header),
            position_float="centering",
            caption=escaped(table.caption),
            label=f"tab:{file_stem(label)}{f'-{number}' if number else ''}",
        )
        parts.append(text)
    return "\n".join(parts)


def _rows(table: Table) -> list[list[str]]:
    rows = []
    for i, row in enumerate(table.rows):
        entries = [
            escaped(text) if name in CELL else number(text)
            for name, text in zip(table.header, row, strict=True)
        ]
        for j in range(len(entries)):
            if (i, j) in table.bold:
                entries[j] = rf"\textbf{{{entries[j]}}}"
        rows.append(entries)
    return rows


def number(text: str) -> str:
    """Write an entry with powers of ten, and with its marks where they do not move its decimals."""
    return POWER.sub(_power, escaped(MARKED.sub("", text))) + _marks(text)


def _power(match: re.Match[str]) -> str:
    factor = "" if match[1] == "1" else rf"{match[1]}\times"
    return f"${factor}10^{{{int(match[2])}}}$"


def _marks(text: str) -> str:
    marks = MARKED.search(text)
    return rf"\rlap{{\textsuperscript{{{escaped(marks[1])}}}}}" if marks else ""


def escaped(text: str) -> str:
    """Return a text as TeX prints it: on one line, without commands or ligatures of its own."""
    return re.sub("-(?=-)", "-{}", " ".join(text.split()).translate(SPECIAL))
