"""Texts of separated fields, tables of Markdown among them, as columns of text."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.names import is_metric, is_named, is_rate
from lr_sweep.analysis.judge.readers.labels import repeat_in
from lr_sweep.analysis.judge.table_file import MOST_MISTAKES, MOST_NAME, Line, TableFile, check_size, raise_mistakes
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted

DELIMITERS = ",;\t|"
MAX_FIELD = 10_000_000
"""Characters of one field: exports hold whole notebooks in their tags."""
FORMAT = "want a CSV file in UTF-8 with a line of names, or a Parquet file"
_MARKDOWN = re.compile(r"^.*\|.*\n(?=.*--)[ \t:-]*\|[ \t:|-]*\r?$(?:\n.*\|.*)*", re.MULTILINE)
"""A table in Markdown, which may stand within a text."""
_MARK = re.compile(r"[ \t\r]*sep=([,;\t|])[ \r]*\n", re.IGNORECASE)
"""The first line that a spreadsheet may write."""
_DECIMAL = re.compile(r"\s*[+-]?\d*([.,])\d+(?:e[+-]?\d+)?\s*%?\s*", re.ASCII | re.IGNORECASE)
_CUT = re.compile(r"[+-]?\d+(?:[.,]|[.,]?\d*e[+-]?)", re.ASCII | re.IGNORECASE)
"""A number that may go on: `0.` may have been 0.7."""
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*", re.ASCII)
_GROUPED = re.compile(r"\s*[+-]?\d{1,3}(?:,\d{3})+\.\d+\s*%?\s*", re.ASCII)
_HEADING = re.compile(r"^#+[ \t]*(.+?)[ \t#]*$", re.MULTILINE)
_PLAIN = re.compile(r"(\*\*|__|`)([^|\n]+?)\1")
"""Bold type and code."""
_SUMMARY = re.compile(r"±|^[\s|*_]*(?:mean|std|average|avg)\b", re.MULTILINE | re.IGNORECASE)
_ABOVE = re.compile(
    rf"(?:[ \t\r]*\n|{_MARK.pattern}|[ \t]*#(?!.*\n(?:[ \t\r]*\n)*[\d.eE+\-,;|\t ]*\d[ \t\r]*(?:\n|\Z)).*(?:\n|\Z))*+",
    re.IGNORECASE,
)
"""Lines above that of the names: comments, but not the last one if numbers follow it, which has the names."""


def read_delimited(path: Path, text: str) -> TableFile:
    """Read a table of separated fields; raises UserError, csv.Error."""
    if not text.strip():
        raise UserError(f"{path} is empty: {FORMAT}, with a row for each run or evaluation")
    if text.lstrip().startswith(("<", "\\")):
        raise UserError(f"{path} is HTML or LaTeX: {FORMAT}, or a table in Markdown")
    start, body, mark, reader = _table_of_markdown(text) or (*_table_in(text), "")
    found = table_of_fields(path, *_rows(body, mark, text.count("\n", 0, start)), reader)
    is_cut = text.endswith(body) and not text.endswith(("\n", "\r"))
    last = [*found.columns.values()][-1][-1].strip()
    if is_cut and _CUT.fullmatch(last):
        raise UserError(f"{found.lines[-1]}: the file ends within a number, {last!r}: write the whole file")
    columns = _with_points(found.columns) if mark != "," and "," in body else found.columns
    return replace(found, columns=columns, unfinished=is_cut)


def _with_points(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """Write decimal commas as points, unless a number has a point, or every comma may be a mark of thousands.

    Commas before a point are left out.
    """
    fields = {text for texts in columns.values() for text in set(texts)}
    points = {text: text.replace(",", "") for text in fields if _GROUPED.fullmatch(text)}
    columns = {name: [points.get(text, text) for text in texts] for name, texts in columns.items()}
    fields = {points.get(text, text) for text in fields}
    marks = {text: match[1] for text in fields if (match := _DECIMAL.fullmatch(text))}
    if "." in marks.values() or all(map(_THOUSANDS.fullmatch, marks)):
        return columns
    points = {text: text.replace(",", ".") if text in marks else text for text in fields}
    return {name: [points[text] for text in texts] for name, texts in columns.items()}


def table_of_fields(path: Path, numbers: list[int], rows: list[list[str]], reader: str = "") -> TableFile:
    """Return rows as a table, the first with the names; raises UserError if there are no others, or odd ones."""
    if len(rows) > 1 and _are_fields(rows[0], rows[1:]):
        rows, numbers, reader = [[""] * len(rows[0]), *rows], [*numbers[:1], *numbers], "no line of names"
    names = [name.strip() or f"#{place}" for place, name in enumerate(rows[0], 1)] if rows else []
    check_names(path, names, *numbers[:1])
    reader = ", ".join(filter(None, [_drop_odd(path, numbers, rows), reader]))
    if len(rows) < 2:
        raise UserError(f"{path} has no rows below its names: write one for each run or evaluation")
    check_size(path, len(rows), 1)
    columns = dict(zip(names, map(list, zip(*rows[1:], strict=True)), strict=True))
    return TableFile(path=path, columns=columns, lines=[Line(path, number) for number in numbers[1:]], reader=reader)


def _are_fields(first: list[str], others: list[list[str]]) -> bool:
    """Return whether the first row has no names: none is known, one is a number, and one is in its column again."""
    if any(is_named(field) or is_rate(field) or is_metric(field) for field in first):
        return False
    below = zip_longest(*others, fillvalue="")
    again = any(field.strip() and field in column for field, column in zip(first, below, strict=False))
    return again and any(is_number(field.strip()) for field in first)


def check_names(path: Path, names: list[str], line: int = 1) -> None:
    """Raise UserError where two columns have one name."""
    twice = [name for name, number in Counter(names).items() if number > 1]
    raise_mistakes([f"{path}:{line}: two columns are named {name[:MOST_NAME]!r}" for name in twice])


def _table_in(text: str) -> tuple[int, str, str]:
    """Return where a table begins in a text, the table, and what separates its fields."""
    above = _ABOVE.match(text)
    start = above.end() if above else 0
    body = re.sub(r"^[ \t]*#[ \t]*", "", text[start:])
    head = body.partition("\n")[0]
    if said := _MARK.search(text[:start]):
        return start, body, said[1]
    mark = max(DELIMITERS, key=head.count)
    return start, body, " " if mark not in head and len(head.split()) > 1 else mark


def _table_of_markdown(text: str) -> tuple[int, str, str, str] | None:
    """Return where the best table of Markdown begins, its rows, their mark, and which of how many it is.

    Other tables with its names follow it, if each has a heading: the variant, or the task of rows with names.
    """
    tables = [*_MARKDOWN.finditer(text)] if "|" in text else []
    if not tables:
        return None
    best = max(tables, key=_size)
    alike = [table for table in tables if _cells(table)[0] == _cells(best)[0]]
    headings = [_heading(text[: table.start()]) for table in alike]
    if len(alike) == 1 or len(set(headings)) < len(alike) or "" in headings:
        which = f"table {tables.index(best) + 1} of {len(tables)}" if len(tables) > 1 else ""
        return best.start(), "\n".join(_cells(best)), "|", which
    start = alike[0].start()
    rows = [""] * (text.count("\n", start, alike[-1].end()) + 1)
    for table, heading in zip(alike, headings, strict=True):
        first = text.count("\n", start, table.start())
        cells = _cells(table)
        rows[first : first + len(cells)] = ["", *(row and f"{heading}|{row}" for row in cells[1:])]
    are_named = any(row.count("|") and not is_number(row.split("|")[1].strip()) for row in rows)
    rows[0] = f"{'task' if are_named else 'variant'}|{_cells(best)[0]}"
    return start, "\n".join(rows), "|", f"{len(alike)} of {len(tables)} tables, each with its heading"


def _cells(table: re.Match[str]) -> list[str]:
    """Return the lines of a table without bold type, code and outer marks, that below the names empty."""
    head, _, *rows = _PLAIN.sub(r"\2", table[0]).split("\n")
    return [line.strip().strip("|") for line in [head, "", *rows]]


def _heading(above: str) -> str:
    found = _HEADING.findall(above)
    return _PLAIN.sub(r"\2", found[-1]).translate(str.maketrans('|"', "/'")) if found else ""


def _size(table: re.Match[str]) -> tuple[bool, bool, int, int]:
    """Return whether a table has learning rates, and seeds alone, and its rows and characters: the largest is read."""
    names = [name.strip() for name in _cells(table)[0].split("|")]
    have_seeds = any(is_named(name, "seed") or repeat_in(name) is not None for name in names)
    is_summary = _SUMMARY.search(table[0]) is not None
    return any(map(is_rate, names)), have_seeds and not is_summary, table[0].count("\n"), len(table[0])


def _rows(text: str, mark: str, skipped: int) -> tuple[list[int], list[list[str]]]:
    """Return the rows that have a field, with the line of each behind lines that are skipped."""
    csv.field_size_limit(MAX_FIELD)
    blanks = mark == " "
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True, skipinitialspace=blanks)
    numbers, rows = [], []
    for row in reader:
        if any(map(str.strip, row)):
            numbers.append(reader.line_num + skipped)
            rows.append(row[:-1] if blanks and not row[-1] else row)
    return numbers, rows


def _drop_odd(path: Path, numbers: list[int], rows: list[list[str]]) -> str:
    """Drop comments among the rows, and beginnings of the row below, and say so of the beginnings.

    Raises UserError if other rows have more or fewer fields than the first.
    """
    odd = [place for place, row in enumerate(rows) if len(row) != len(rows[0])]
    wrong = [place for place in odd if not rows[place][0].lstrip().startswith("#")]
    begun = [at for at in wrong if rows[at] in (row[: len(rows[at])] for row in rows[at + 1 : at + 2])]
    wrong = [at for at in wrong if at not in begun]
    if len(wrong) > max(len(rows) - len(odd), MOST_MISTAKES):
        raise UserError(f"{path} is no table: most lines have other fields than the first: {FORMAT}")
    raise_mistakes([f"{path}:{numbers[at]}: got {len(rows[at])} fields, want {len(rows[0])}" for at in wrong])
    for place in reversed(odd):
        del numbers[place], rows[place]
    return f"without {counted(len(begun), 'row')} cut before the whole one" if begun else ""
