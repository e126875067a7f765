"""Texts of separated fields, tables of Markdown among them, and logs, as columns of texts."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.limits import MOST_TEXT, check_size
from lr_sweep.analysis.judge.names import SETTING, words_of
from lr_sweep.analysis.judge.table_file import (
    MOST_NAME,
    TableFile,
    raise_mistakes,
    table_of_rows,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.common.text import counted

Rows = dict[int, list[str]]
"""Fields by the numbers of their lines."""
FORMAT = "want a CSV file in UTF-8 with a line of names, or a Parquet file"
_ABOVE = re.compile(r"(?i)\s*(?:#|$|sep=[,;\t|]\s*$)")  # lines above that of the names
_MARK = re.compile(
    r"(?im)^[ \t]*sep=([,;\t|])[ \t\r]*$"
)  # the first line that a spreadsheet may write
_POINT = re.compile(r"(?ai)\s*[+-]?[\d,]*\.\d+(?:e[+-]?\d+)?\s*%?\s*")
_COMMA = re.compile(r"(?ai)\s*[+-]?\d*,\d+(?:e[+-]?\d+)?\s*%?\s*")
_THOUSANDS = re.compile(r"(?a)\s*[+-]?[1-9]\d{0,2}(?:,\d{3})+\s*")
_GROUPED = re.compile(r"(?a)\s*[+-]?[1-9]\d{0,2}(?:,\d{3})+\.\d+\s*%?\s*")
_CUT = re.compile(r"(?ai)[+-]?\d+(?:[.,]|[.,]?\d*e[+-]?)\s*")  # `0.` of 0.7
_BOLD = re.compile(r"(\*\*|__|`)([^|\n]+?)\1")  # and code
_BLOCK = re.compile(
    r"(?m)^#+[ \t]+(?P<heading>.+)$"
    r"|^[^|\n]*\|.*\n(?=.*--)[ \t:-]*\|[ \t:|-]*\r?$(?:\n.*\|.*)*"
)
_STEP = re.compile(r"(?i)(?:^|.* )(?:global_)?(?:step|iter|iteration|epoch|round)$")  # a name
_EXTREME = re.compile(" - .+__M(IN|AX)$")  # name of a column that W&B's charts add for each run
_MEASURED = re.compile("(?i)" + "|".join(words_of("validation", "test")))  # in a line
_STEP_FIRST = re.compile(  # in a line, or behind what a logger writes before it
    r"(?i)(?:^|[|\]:-])\s*(?:train )?(?:global_)?(?:step|iter|iteration|epoch|round)\b"
)
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
    markdown = _table_of_markdown(path, text)
    table = _with_points(markdown) if markdown else _separated(path, text)
    last = [*table.columns.values()][-1][-1]
    if not text.endswith(("\n", "\r")) and _CUT.fullmatch(last):
        place = table.lines[-1]
        raise UserError(f"{place}: the file ends within a number, {last!r}: write the whole file")
    columns = {name: texts for name, texts in table.columns.items() if not _EXTREME.search(name)}
    return replace(table, columns=columns) if columns else table


def _separated(path: Path, text: str) -> TableFile:
    lines = list(io.StringIO(text, newline=""))
    above = next((place for place, line in enumerate(lines) if not _ABOVE.match(line)), len(lines))
    body = lines[above:]
    head = "".join(body[:1])
    mark = max(",;\t|", key=head.count)
    if said := _MARK.search("".join(lines[:above])):
        mark = said[1]
    elif mark not in head and len(head.split()) > 1:
        mark, body = " ", [line.strip() for line in body]
    csv.field_size_limit(MOST_TEXT)
    fields = csv.reader(body, delimiter=mark, strict=True, skipinitialspace=mark == " ")
    rows = Rows()
    for row in fields:
        check_size(path, len(rows), len(row))
        if "".join(row).strip():
            rows[above + fields.line_num] = row
    table = table_of_fields(path, rows)
    return table if mark == "," else _with_points(table)


def _with_points(table: TableFile) -> TableFile:
    """Write decimal commas as points, unless a number has a point, or every comma may be a mark of thousands.

    Commas before a point are left out.
    """
    fields = {field for fields in table.columns.values() for field in fields}
    commas = set(filter(_COMMA.fullmatch, fields))
    plain = {field: field.replace(",", "") for field in filter(_GROUPED.fullmatch, fields)}
    if not (any(map(_POINT.fullmatch, fields)) or all(map(_THOUSANDS.fullmatch, commas))):
        plain |= {field: field.replace(",", ".") for field in commas}
    columns = {
        name: [plain.get(field, field) for field in fields]
        for name, fields in table.columns.items()
    }
    return replace(table, columns=columns)


def table_of_fields(path: Path, rows: Rows, reader: str = "") -> TableFile:
    """Return rows as a table, the first with the names unless it has a number, and no text that stands nowhere below.

    Raises UserError.
    """
    if not rows:
        raise UserError(f"{path} is empty: {FORMAT}, with a row for each run or evaluation")
    first, *below = rows.values()
    texts = {field for field in first if not is_number(field.strip())}
    has_numbers = any(is_number(field.strip()) for field in first)
    again = {field for row in below for field in row} & texts - {""} if has_numbers else ()
    if has_numbers and (again or not texts):
        rows = {0: [f"#{place}" for place in range(1, len(first) + 1)], **rows}
    return _table(path, _named(path, rows), reader)


def _table(path: Path, rows: dict[int, Fields], reader: str) -> TableFile:
    return table_of_rows(path, [*rows.values()], reader, [*rows])


def _named(path: Path, rows: Rows) -> dict[int, Fields]:
    """Return rows by the names in the first of them, without comments; an unnamed column is `#2` by its position.

    A later row that has all names of the first one is a new line of names, as of a log that was resumed.
    """
    first, names, head = next(iter(rows.values())), list[str](), 0
    named, mistakes = dict[int, Fields](), list[str]()
    for number, row in rows.items():
        if first[0] in row and set(first) <= set(row):
            names, head = [name.strip() or f"#{place}" for place, name in enumerate(row, 1)], number
            check_names(path, names, number)
        elif len(row) == len(names):
            named[number] = dict(zip(names, row, strict=True))
        elif row[0].lstrip()[:1] != "#":
            want = f"want {len(names)} as in line {head}"
            advice = "correct it, or write the names of its fields above it"
            mistakes.append(f"{path}:{number}: got {len(row)} fields, {want}: {advice}")
    raise_mistakes(mistakes)
    return named


def check_names(path: Path, names: Iterable[str], line: int = 1) -> None:
    """Raise UserError where two columns have one name."""
    twice = [name[:MOST_NAME] for name, number in Counter(names).items() if number > 1]
    raise_mistakes([f"{path}:{line}: two columns are named {name!r}" for name in twice])


def _table_of_markdown(path: Path, text: str) -> TableFile | None:
    """Return the tables of a text, several with their numbers and the headings above them; None: it has none."""
    tables, heading, line, last = list[tuple[str, dict[int, Fields]]](), "", 1, 0
    for block in _BLOCK.finditer(text) if "|" in text else ():
        line, last = line + text.count("\n", last, block.start()), block.start()
        if block["heading"]:
            heading = _BOLD.sub(r"\2", block["heading"]).strip(" \t\r#")
            continue
        cells = dict(enumerate(map(_cells, block[0].split("\n")), line))
        del cells[line + 1]
        rows = {number: row for number, row in cells.items() if any(row)}
        tables.append((heading, _named(path, rows)))
    named = {
        number: {"table": place, "heading": heading, **row} if len(tables) > 1 else row
        for place, (heading, rows) in enumerate(tables, 1)
        for number, row in rows.items()
    }
    return _table(path, named, f"{counted(len(tables), 'table')} of Markdown") if named else None


def _cells(line: str) -> list[str]:
    """Return the cells of a line of Markdown without bold type and code."""
    inner = _BOLD.sub(r"\2", line).strip().removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def log_table(path: Path, text: str) -> TableFile | None:
    """Return the rows in a log, the lines with two or more numbers behind their names; None: it is no log.

    The forms are `name: value`, `name=value`, `'name': value`, and `name value` in a line that begins with a step. Of
    a log with validation or test data only their lines are read. A line without a step has the last one above it; rows
    above the first step are left out. Settings are the arguments of `Namespace(...)`, and lines of one pair, above the
    first row.
    """
    lines = text.splitlines()
    measured = [number for number, line in enumerate(lines) if _MEASURED.search(line)]
    rows = _log_rows(lines, measured) or _log_rows(lines, range(len(lines)))
    settings = _settings_in(lines[: min(rows, default=len(lines))])
    whole = {number + 1: {**settings, **row} for number, row in rows.items()}
    if not whole and settings:  # of a run that was killed
        whole = {1: settings}
    return _table(path, whole, "a log") if whole else None


def _log_rows(lines: Sequence[str], numbers: Iterable[int]) -> dict[int, Fields]:
    """Return the pairs of some lines, those with a step if there are any."""
    rows, steps, above = dict[int, Fields](), Fields(), -1
    for number in numbers:
        pairs = _pairs_in(lines[number])
        if _has_numbers(pairs) and "Namespace(" not in lines[number]:
            steps = _steps_in(pairs) or _last_steps(lines[above + 1 : number]) or steps
            rows[number] = {**pairs, **steps}
            above = number
    stepped = {number: row for number, row in rows.items() if any(map(_STEP.match, row))}
    return stepped or rows


def _last_steps(lines: Sequence[str]) -> Fields:
    """Return the step of the last line that has one."""
    return next(filter(None, (_steps_in(_pairs_in(line)) for line in reversed(lines))), {})


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
    found = _PAIR.findall(line)
    if any(mark.isspace() for _, mark, _ in found) and not _STEP_FIRST.search(line):
        found = [pair for pair in found if not pair[1].isspace()]
    return {name: value.strip("'\"") for name, _, value in found}


def _has_numbers(pairs: ReadFields) -> bool:
    """Return whether two or more values are numbers."""
    return len(pairs) > 1 and sum(map(bool, map(_NUMERIC.match, pairs.values()))) > 1
