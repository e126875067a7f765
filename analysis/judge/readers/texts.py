"""Texts of separated fields, tables of Markdown among them, and logs, as columns of texts."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from lr_sweep.analysis.judge.names import SETTING, SYNONYMS, is_number
from lr_sweep.analysis.judge.table_file import (
    MOST_NAME,
    MOST_TEXT,
    TableFile,
    check_size,
    raise_mistakes,
    table_of_rows,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, ReadFields

Rows = dict[int, list[str]]
"""Fields by the numbers of their lines."""
FORMAT = "want a CSV file in UTF-8 with a line of names, or a Parquet file"
_ABOVE = re.compile(r"(?i)\s*(?:#|$|sep=.\s*$)")  # lines above that of the names
_BOLD = re.compile(r"(\*\*|__|`)([^|\n]+?)\1")  # and code
_RULE = re.compile(r"(?=.*--)[ \t:-]*\|[ \t:|-]*\r?")  # below the names of a table of Markdown
_STEP = re.compile(r"(?i)(?:^|.* )(?:global_)?(?:step|iter|iteration|epoch|round)$")  # a name
_MEASURED = re.compile(
    "(?i)" + "|".join(f"{SYNONYMS['validation']} {SYNONYMS['test']}".split())
)  # in a line
_ANY = re.compile("")
_NUMERIC = re.compile(r"[-+.\d]|(?:nan|NaN|inf)$")
_PAIR = re.compile(
    r"""(?<![\w./@-])['"]?((?!(?:DEBUG|INFO|WARNING|ERROR)\b)[A-Za-z][\w./@-]*(?: [A-Za-z]\w*){0,2}?)['"]?"""
    r"""(\s*[:=]\s*|\s+)(?:\[|tensor\()?"""
    r"""((?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:/\d+)?%?|[+-]?(?:nan|NaN|inf)\b)(?![\w.]|[:-]\d)"""
    r"""|'[^']*'|"[^"]*"|(?<==)[A-Za-z][\w./-]*(?![\w(]))"""
)
_ARGUMENT = re.compile(r"""([A-Za-z]\w*)=('[^']*'|"[^"]*"|\[[^\]]*\]|[^\s,()]+)""")
_SETTING = re.compile(r"^([A-Za-z][\w.]*(?: [\w.]+){0,3})\s*[:=]\s*(['\"]?[\w.+-]+['\"]?)\s*$")


def read_delimited(path: Path, text: str) -> TableFile:
    """Read a table of separated fields, or those of Markdown in a text; raises UserError, csv.Error."""
    if text.lstrip().startswith(("<", "\\")):
        raise UserError(f"{path} is HTML or LaTeX: {FORMAT}, or a table in Markdown")
    if text.endswith("."):  # as `0.` of 0.7
        raise UserError(f"{path} ends within a number or a sentence: write the whole table")
    rows = _rows_of_markdown(path, text)
    return table_of_rows(path, rows) if rows else _separated(path, text)


def _separated(path: Path, text: str) -> TableFile:
    lines = list(io.StringIO(text, newline=""))
    above = next((place for place, line in enumerate(lines) if not _ABOVE.match(line)), len(lines))
    body = lines[above:]
    head = "".join(body[:1])
    mark = max(",;\t|", key=head.count)
    if mark not in head and len(head.split()) > 1:
        mark, body = " ", [line.strip() for line in body]
    csv.field_size_limit(MOST_TEXT)
    fields = csv.reader(body, delimiter=mark, strict=True, skipinitialspace=mark == " ")
    rows = Rows()
    for row in fields:
        check_size(path, len(rows), len(row))
        if "".join(row).strip():
            rows[above + fields.line_num] = row
    return table_of_fields(path, rows)


def table_of_fields(path: Path, rows: Rows) -> TableFile:
    """Return rows as a table, the first with the names unless it has a number, and no text that stands nowhere below.

    Raises UserError.
    """
    if not rows:
        raise UserError(f"{path} is empty: {FORMAT}, with a row for each run or evaluation")
    first, *below = rows.values()
    texts = {field for field in first if not is_number(field.strip())}
    if len(texts) < len(set(first)):  # it has numbers
        again = {field for row in below for field in row} & texts - {""}
        if again or not texts:
            rows = {0: [""] * len(first), **rows}
    return table_of_rows(path, _named(path, rows))


def _named(path: Path, rows: Rows) -> dict[int, Fields]:
    """Return rows by the names in the first of them, without comments; an unnamed column is `#2` by its position."""
    (head, first), *below = rows.items()
    names = [name.strip() or f"#{place}" for place, name in enumerate(first, 1)]
    check_names(path, names, head)
    want = f"want {len(names)} as in line {head}: correct it, or write two files"
    wrong = {
        number: row
        for number, row in below
        if len(row) != len(names) and not row[0].lstrip().startswith("#")
    }
    raise_mistakes(
        [f"{path}:{number}: got {len(row)} fields, {want}" for number, row in wrong.items()]
    )
    return {
        number: dict(zip(names, row, strict=True))
        for number, row in below
        if len(row) == len(names)
    }


def check_names(path: Path, names: Iterable[str], line: int = 1) -> None:
    """Raise UserError where two columns have one name."""
    twice = [name[:MOST_NAME] for name, number in Counter(names).items() if number > 1]
    raise_mistakes([f"{path}:{line}: two columns are named {name!r}" for name in twice])


def _rows_of_markdown(path: Path, text: str) -> dict[int, Fields]:
    """Return the rows of the tables of Markdown in a text by their lines, without bold type and code.

    Those of several tables have their number and the heading above it.
    """
    tables = list[tuple[str, Rows]]()
    heading, is_within = "", False
    lines = text.split("\n") if "|" in text else []
    for number, (line, below) in enumerate(pairwise([*lines, ""]), 1):
        plain = _BOLD.sub(r"\2", line).strip()
        if line.startswith("#"):
            heading = plain.strip("# ")
        if not is_within and "|" in line and _RULE.fullmatch(below):
            tables.append((heading, Rows()))
            is_within = True
        is_within &= "|" in line
        if is_within and not _RULE.fullmatch(line) and plain.strip(" |"):
            inner = plain.removeprefix("|").removesuffix("|")
            tables[-1][1][number] = [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]
    named = dict[int, Fields]()
    for place, (heading, rows) in enumerate(tables, 1):
        above = {"table": place, "heading": heading} if len(tables) > 1 else {}
        named |= {number: {**above, **row} for number, row in _named(path, rows).items()}
    return named


def log_table(path: Path, text: str) -> TableFile | None:
    """Return the rows in a log, the lines with two or more numbers behind their names; None: it is no log.

    The forms are `name: value`, `name=value`, `'name': value`, and `name value` in a line that begins with a step. Of
    a log with validation or test data only their lines are read. A line without a step has the last one above it; rows
    above the first step are left out. Settings are the arguments of `Namespace(...)`, and lines of one pair, above the
    first row.
    """
    lines = text.splitlines()
    rows = _log_rows(lines, _MEASURED) or _log_rows(lines, _ANY)
    settings = _settings_in(lines[: min(rows, default=len(lines))])
    whole = {number + 1: {**settings, **row} for number, row in rows.items()}
    if not whole and settings:  # of a run that was killed
        whole = {1: settings}
    return table_of_rows(path, whole) if whole else None


def _log_rows(lines: Sequence[str], wanted: re.Pattern[str]) -> dict[int, Fields]:
    """Return the pairs of the lines with a pattern, those with a step if there are any."""
    rows, steps = dict[int, Fields](), Fields()
    for number, line in enumerate(lines):
        pairs = _pairs_in(line)
        steps = _steps_in(pairs) or steps
        num_numbers = sum(_NUMERIC.match(value) is not None for value in pairs.values())
        if num_numbers > 1 and wanted.search(line) and "Namespace(" not in line:
            rows[number] = {**pairs, **steps}
    stepped = {number: row for number, row in rows.items() if any(map(_STEP.match, row))}
    return stepped or rows


def _steps_in(pairs: ReadFields) -> Fields:
    return {name: pairs[name].partition("/")[0] for name in pairs if _STEP.match(name)}


def _settings_in(lines: Sequence[str]) -> Fields:
    settings = Fields()
    for line in lines:
        arguments = _ARGUMENT.findall(line.partition("Namespace(")[2])
        pairs = arguments or ([] if _steps_in(_pairs_in(line)) else _SETTING.findall(line))
        settings |= {f"{SETTING}{name}": value.strip("'\"") for name, value in pairs}
    return settings


def _pairs_in(line: str) -> Fields:
    """Return the values behind names; those behind a blank count only in a line that begins with a step."""
    matches = _PAIR.findall(line)
    has_step = bool(matches) and _STEP.match(matches[0][0]) is not None
    pairs = Fields()
    for name, mark, value in matches:
        if has_step or mark.strip():
            pairs[name] = value.strip("'\"")
    return pairs
