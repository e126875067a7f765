"""Texts of separated fields, tables of Markdown among them, as columns of text; and logs as rows."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise, zip_longest
from pathlib import Path

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.limits import MOST_TEXT, check_size
from lr_sweep.analysis.judge.names import SPLITS, is_metric, is_named, is_rate, split_of
from lr_sweep.analysis.judge.readers.labels import SETTING, repeat_in
from lr_sweep.analysis.judge.table_file import (
    MOST_MISTAKES,
    MOST_NAME,
    Line,
    TableFile,
    raise_mistakes,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields
from lr_sweep.common.text import counted

FORMAT = "want a CSV file in UTF-8 with a line of names, or a Parquet file"
_MARKDOWN = re.compile(r"^.*\|.*\n(?=.*--)[ \t:-]*\|[ \t:|-]*\r?$(?:\n.*\|.*)*", re.MULTILINE)
_MARK = re.compile(
    r"[ \t\r]*sep=([,;\t|])[ \r]*\n", re.IGNORECASE
)  # the first line that a spreadsheet may write
_DECIMAL = re.compile(r"\s*[+-]?\d*[.,]\d+(?:e[+-]?\d+)?\s*%?\s*", re.ASCII | re.IGNORECASE)
_CUT = re.compile(
    r"[+-]?\d+(?:[.,]|[.,]?\d*e[+-]?)", re.ASCII | re.IGNORECASE
)  # `0.` may have been 0.7
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*", re.ASCII)
_GROUPED = re.compile(r"\s*[+-]?\d{1,3}(?:,\d{3})+\.\d+\s*%?\s*", re.ASCII)
_HEADING = re.compile(r"^#+[ \t]*(.+?)[ \t#]*$", re.MULTILINE)
_PLAIN = re.compile(r"(\*\*|__|`)([^|\n]+?)\1")  # bold type and code
_SUMMARY = re.compile(r"±|^[\s|*_]*(?:mean|std|average|avg)\b", re.MULTILINE | re.IGNORECASE)
_ABOVE = re.compile(  # lines above that of the names: comments, but not the last above numbers, which has the names
    rf"(?:[ \t\r]*\n|{_MARK.pattern}|[ \t]*#(?!.*\n(?:[ \t\r]*\n)*[\d.eE+\-,;|\t ]*\d[ \t\r]*(?:\n|\Z)).*(?:\n|\Z))*+",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"""['"]?([A-Za-z][\w./@-]*(?:[ ][A-Za-z]\w*){0,2}?)['"]?(?:\s*[:=]\s*|[ ])['"]?"""
    r"""([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf)(?![\w.])""",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"""([A-Za-z]\w*)=('[^']*'|"[^"]*"|[^\s,()]+)""")
_LINE = re.compile(r"\s*([A-Za-z][\w. ]{0,40}?)\s*[:=]\s*['\"]?([\w.+-]+)['\"]?\s*")
_HAS_SPLIT = re.compile("|".join(sorted(SPLITS["validation"] | SPLITS["test"])), re.IGNORECASE)


def read_delimited(path: Path, text: str) -> TableFile:
    """Read a table of separated fields; raises UserError, csv.Error."""
    if not text.strip():
        raise UserError(f"{path} is empty: {FORMAT}, with a row for each run or evaluation")
    if text.lstrip().startswith(("<", "\\")):
        raise UserError(f"{path} is HTML or LaTeX: {FORMAT}, or a table in Markdown")
    tables = [*_MARKDOWN.finditer(text)] if "|" in text else []
    body, mark, reader = _table_of_markdown(text, tables) if tables else _table_in(text)
    csv.field_size_limit(MOST_TEXT)
    fields = csv.reader(
        io.StringIO(body, newline=""), delimiter=mark, strict=True, skipinitialspace=mark == " "
    )
    rows = dict[int, list[str]]()
    for row in fields:
        check_size(path, len(rows), len(row))
        if any(map(str.strip, row)):
            rows[fields.line_num] = row[:-1] if mark == " " and not row[-1] else row
    found = table_of_fields(path, rows, reader)
    is_cut = not body.endswith(("\n", "\r"))
    last = [*found.columns.values()][-1][-1].strip()
    if is_cut and _CUT.fullmatch(last):
        raise UserError(
            f"{found.lines[-1]}: the file ends within a number, {last!r}: write the whole file"
        )
    columns = _with_points(found.columns) if mark != "," and "," in body else found.columns
    cut = f"{found.name}: no line end after the last row; was the file cut?"
    return replace(found, columns=columns, remarks=(cut,) * is_cut)


def _with_points(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """Write decimal commas as points, unless a number has a point, or every comma may be a mark of thousands.

    Commas before a point are left out.
    """
    fields = {text: text for texts in columns.values() for text in texts}
    fields |= {text: text.replace(",", "") for text in fields if _GROUPED.fullmatch(text)}
    decimals = list(filter(_DECIMAL.fullmatch, fields.values()))
    if not any("." in text for text in decimals) and not all(map(_THOUSANDS.fullmatch, decimals)):
        fields |= {text: text.replace(",", ".") for text in decimals}
    return {name: [fields[text] for text in texts] for name, texts in columns.items()}


def table_of_fields(path: Path, rows: Mapping[int, list[str]], reader: str) -> TableFile:
    """Return rows as a table, the first with the names; raises UserError if there are no others, or odd ones.

    Comments are left out, and beginnings of the row below. `rows`: by the numbers of their lines.
    """
    (head, first), *others = rows.items() or [(0, [])]
    if _are_fields(first, [row for _, row in others]):
        first, others, reader = [""] * len(first), [*rows.items()], "no line of names"
    names = [name.strip() or f"#{place}" for place, name in enumerate(first, 1)]
    check_names(path, names, head)
    below, want = dict(others), len(names)
    whole = {line: row for line, row in below.items() if len(row) == want}
    odd = {
        line: row
        for line, row in below.items()
        if len(row) != want and not row[0].lstrip().startswith("#")
    }
    begun = {
        line
        for line, after in pairwise(below)
        if line in odd and odd[line] == below[after][: len(odd[line])]
    }
    wrong = [
        f"{path}:{line}: got {len(row)} fields, want {want}"
        for line, row in odd.items()
        if line not in begun
    ]
    if len(wrong) > max(len(whole) + 1, MOST_MISTAKES):
        raise UserError(
            f"{path} is no table: most lines have other fields than the first: {FORMAT}"
        )
    raise_mistakes(wrong)
    if not whole:
        raise UserError(f"{path} has no rows below its names: write one for each run or evaluation")
    columns = dict(zip(names, map(list, zip(*whole.values(), strict=True)), strict=True))
    dropped = f"without {counted(len(begun), 'row')} cut before the whole one" if begun else ""
    reader = ", ".join(filter(None, [dropped, reader]))
    return TableFile(
        path=path, columns=columns, lines=[Line(path, number) for number in whole], reader=reader
    )


def _are_fields(first: list[str], others: list[list[str]]) -> bool:
    """Return whether the first row has no names: none is known, one is a number, and one is in its column again."""
    if any(is_named(field) or is_rate(field) or is_metric(field) for field in first):
        return False
    below = zip_longest(*others, fillvalue="")
    again = any(
        field.strip() and field in column for field, column in zip(first, below, strict=False)
    )
    return again and any(is_number(field.strip()) for field in first)


def check_names(path: Path, names: Iterable[str], line: int = 1) -> None:
    """Raise UserError where two columns have one name."""
    twice = [name for name, number in Counter(names).items() if number > 1]
    raise_mistakes([f"{path}:{line}: two columns are named {name[:MOST_NAME]!r}" for name in twice])


def _table_in(text: str) -> tuple[str, str, str]:
    """Return a table of separated fields, below empty lines in place of those above it, and their mark."""
    body = _ABOVE.sub("", text, count=1)
    above = text[: len(text) - len(body)]
    body = re.sub(r"^[ \t]*#[ \t]*", "", body)
    head = body.partition("\n")[0]
    mark = max(",;\t|", key=head.count)
    if said := _MARK.search(above):
        mark = said[1]
    elif mark not in head and len(head.split()) > 1:
        mark = " "
    return "\n" * above.count("\n") + body, mark, ""


def _table_of_markdown(text: str, tables: list[re.Match[str]]) -> tuple[str, str, str]:
    """Return the rows of the best table of Markdown in their lines, their mark, and which of how many it is.

    Other tables with its names are read, too, if each has a heading: the variant, or the task of rows with names.
    """
    best = max(tables, key=_size)
    names = _cells(best)[0]
    which = f"table {tables.index(best) + 1} of {len(tables)}" if len(tables) > 1 else ""
    alike = [table for table in tables if _cells(table)[0] == names]
    above = [_HEADING.findall(_PLAIN.sub(r"\2", text[: table.start()]))[-1:] for table in alike]
    headings = ["".join(heading).translate(str.maketrans('|"', "/'")) for heading in above]
    are_apart = len(alike) == len(set(headings)) > 1 and "" not in headings
    lines = [""] * (text.count("\n") + 1)
    for heading, table in zip(headings, alike, strict=True) if are_apart else [("", best)]:
        first = text.count("\n", 0, table.start())
        cells = [f"{heading}|{row}" if heading and row else row for row in _cells(table)[1:]]
        lines[first + 1 : first + 1 + len(cells)] = cells
    if are_apart:
        are_named = any(
            line.count("|") and not is_number(line.split("|")[1].strip()) for line in lines
        )
        names = f"{'task' if are_named else 'variant'}|{names}"
        which = f"{len(alike)} of {len(tables)} tables, each with its heading"
    lines[text.count("\n", 0, (alike[0] if are_apart else best).start())] = names
    return "\n".join([*lines, ""]), "|", which


def _cells(table: re.Match[str]) -> list[str]:
    """Return the lines of a table without bold type, code and outer marks, that below the names empty."""
    head, _, *rows = _PLAIN.sub(r"\2", table[0]).split("\n")
    return [line.strip().strip("|") for line in [head, "", *rows]]


def _size(table: re.Match[str]) -> tuple[bool, bool, int, int]:
    """Return whether a table has learning rates, and seeds alone, and its rows and characters: the largest is read."""
    names = [name.strip() for name in _cells(table)[0].split("|")]
    have_seeds = any(is_named(name, "seed") or repeat_in(name) is not None for name in names)
    is_summary = _SUMMARY.search(table[0]) is not None
    return (
        any(map(is_rate, names)),
        have_seeds and not is_summary,
        table[0].count("\n"),
        len(table[0]),
    )


def log_rows(path: Path, text: str) -> dict[int, Fields]:
    """Return the evaluations in a log, as `step:100 val_loss:3.2` or `{'eval_loss': 3.2}`, by the number of their line.

    Empty: it is no log. An evaluation without a step has the last one above it. The settings are those of a line of
    argparse, and lines above the first evaluation such as `lr: 0.1`. A log without evaluations that has a learning rate
    is a run without a value, which was killed.
    """
    rows, above = dict[int, Fields](), list[str]()
    settings, step = Fields(), Fields()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("Namespace("):
            settings = {
                f"{SETTING}{name}": value.strip("'\"") for name, value in _ARGUMENT.findall(line)
            }
        elif not rows and (pair := _LINE.fullmatch(line)):
            name, value = pair.groups()
            if is_named(name, "seed", "variant", "model", "task") or (
                is_rate(name) and is_number(value)
            ):
                settings[f"{SETTING}{name}"] = value
        found = dict(_PAIR.findall(line)) if _HAS_SPLIT.search(line) else {}
        if found or "ep" in line[:20].lower():
            above.append(line)
        if any(is_metric(name) and split_of(name) in ("validation", "test") for name in found):
            pairs = map(_PAIR.findall, reversed(above))
            steps = (
                {name: value for name, value in each if is_named(name, "step")} for each in pairs
            )
            step = next(filter(None, steps), step)
            rows[number] = {**settings, **step, **found}
            check_size(path, len(rows), len(rows[number]))
            above = []
    stepped = {
        number: row for number, row in rows.items() if any(is_named(name, "step") for name in row)
    }
    return stepped or rows or ({1: settings} if any(map(is_rate, settings)) else {})
