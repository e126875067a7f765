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
from lr_sweep.analysis.judge.table_file import MOST_MISTAKES, MOST_NAME, Line, TableFile, check_size, raise_mistakes
from lr_sweep.common.errors import UserError

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
    start, body, mark = _table_in(text)
    found = table_of_fields(path, *_rows(body, mark, text.count("\n", 0, start)))
    is_cut = text.endswith(body) and not text.endswith(("\n", "\r"))
    last = [*found.columns.values()][-1][-1].strip()
    if is_cut and _CUT.fullmatch(last):
        raise UserError(f"{found.lines[-1]}: the file ends within a number, {last!r}: write the whole file")
    columns = _with_points(found.columns) if mark != "," and "," in body else found.columns
    return replace(found, columns=columns, unfinished=is_cut)


def _with_points(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """Write decimal commas as points, unless a number has a point, or every comma may be a mark of thousands."""
    fields = {text for texts in columns.values() for text in set(texts)}
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
    _drop_odd(path, numbers, rows)
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
    tables = _MARKDOWN.finditer(text) if "|" in text else ()
    if found := max(tables, key=_size, default=None):
        head, _, *rows = re.sub(r"(\*\*|__|`)([^|\n]+?)\1", r"\2", found[0]).split("\n")  # without bold type and code
        return found.start(), "\n".join(line.strip().strip("|") for line in [head, "", *rows]), "|"
    above = _ABOVE.match(text)
    start = above.end() if above else 0
    body = re.sub(r"^[ \t]*#[ \t]*", "", text[start:])
    head = body.partition("\n")[0]
    if said := _MARK.search(text[:start]):
        return start, body, said[1]
    mark = max(DELIMITERS, key=head.count)
    return start, body, " " if mark not in head and len(head.split()) > 1 else mark


def _size(table: re.Match[str]) -> tuple[bool, int, int]:
    """Return whether a table has learning rates, and its rows and characters: of several the largest is read."""
    head = table[0].partition("\n")[0]
    return any(map(is_rate, head.split("|"))), table[0].count("\n"), len(table[0])


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


def _drop_odd(path: Path, numbers: list[int], rows: list[list[str]]) -> None:
    """Drop comments among the rows, and beginnings of the row below; raises UserError if others have other fields."""
    odd = [place for place, row in enumerate(rows) if len(row) != len(rows[0])]
    wrong = [place for place in odd if not rows[place][0].lstrip().startswith("#")]
    wrong = [at for at in wrong if rows[at] not in (row[: len(rows[at])] for row in rows[at + 1 : at + 2])]
    if len(wrong) > max(len(rows) - len(odd), MOST_MISTAKES):
        raise UserError(f"{path} is no table: most lines have other fields than the first: {FORMAT}")
    raise_mistakes([f"{path}:{numbers[at]}: got {len(rows[at])} fields, want {len(rows[0])}" for at in wrong])
    for place in reversed(odd):
        del numbers[place], rows[place]
