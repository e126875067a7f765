"""Rows as a table of texts; JSON and charts of W&B as such rows."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.names import ROLES, VALUES, is_metric, is_rate, plain
from lr_sweep.analysis.judge.readers.labels import flattened, labels_of
from lr_sweep.analysis.judge.readers.nested import rows_in
from lr_sweep.analysis.judge.table_file import MOST_FIELDS, MOST_ROWS, Line, TableFile, raise_mistakes
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, ReadFields

BETWEEN = " - "
"""Separator that W&B writes between the names of a run and of a metric."""
ENDS = ("__MIN", "__MAX")


def table_of_rows(
    path: Path, rows: Sequence[ReadFields], reader: str, numbers: Sequence[int] = (), is_text: bool = False
) -> TableFile:
    """Return rows with any columns as a table; raises UserError if there are none, or too many.

    `numbers`: of each row in the file, where it is no file of a row a line; `is_text`: they are lines.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows or not names:
        raise UserError(f"{path} has no runs to read, as {reader}")
    if len(rows) > MOST_ROWS or len(rows) * len(names) > MOST_FIELDS:
        raise UserError(f"{path} has {len(rows):,} rows of {len(names)} columns, want at most {MOST_ROWS:,} rows")
    columns = {name: [_as_text(row.get(name)) for row in rows] for name in names}
    digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()
    lines = [Line(path, row, "" if is_text else "row ") for row in numbers or range(1, len(rows) + 1)]
    return TableFile(path=path, sha256=digest, columns=columns, lines=lines, decimal_comma=False, reader=reader)


def _as_text(value: object) -> str:
    """Write a value as a field, and a list of one as this one; NaN is `nan`, nothing is empty."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list | dict):
        (value,) = value
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def read_json(path: Path, content: bytes) -> TableFile:
    """Read JSON; raises UserError with the lines that are none."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8 (byte {error.start})") from error
    try:
        return table_of_rows(path, [flattened(row) for row in rows_in(json.loads(text))], "JSON")
    except ValueError:
        return _read_lines(path, text)
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply: write a row a run") from error


def _read_lines(path: Path, text: str) -> TableFile:
    rows: list[Fields] = []
    numbers: list[int] = []
    mistakes = []
    for number, line in enumerate(io.StringIO(text, newline=None), 1):  # other ends of lines may be in a text
        if not line.strip():
            continue
        try:
            rows += [flattened(row) for row in rows_in([json.loads(line)])]
            numbers += [number] * (len(rows) - len(numbers))
        except (ValueError, RecursionError) as error:
            mistakes.append(f"{path}:{number}: no JSON ({reason(error)}): want an object a line, or one list of them")
    raise_mistakes(mistakes)
    head = next((number for number, row in enumerate(rows) if any(map(is_metric, row))), 0)  # lines of settings
    settings = {name: value for row in rows[:head] for name, value in row.items()}
    rows = [settings | row for row in rows[head:]]
    return table_of_rows(path, rows, "JSON lines", numbers[head:], is_text=True)


def without_chart(table: TableFile) -> TableFile:
    """Return a chart of W&B with a row a run and step, and any other table as it is.

    A chart has a column of steps, and for each run one of values with its least and greatest; the names of runs give
    their settings. Raises UserError if they have no rate.
    """
    first, *others = table.columns
    runs = [name for name in others if BETWEEN in name or any(map(is_rate, labels_of(name)))]
    if len(runs) < max(len(others), 1) or not all(map(is_number, table.columns[first])):
        return table
    rows = []
    step = first if plain(first) in (*ROLES["step"], *ROLES["seed"]) else "step"
    for name in [name for name in others if not name.endswith(ENDS)]:
        run, _, metric = name.rpartition(BETWEEN) if BETWEEN in name else (name, "", VALUES[0])
        labels = {"run": run, **labels_of(run)}
        if not any(map(is_rate, labels)):
            raise UserError(
                f"{table.path}: a chart of W&B, in which the name of the run {run[:60]!r} has no learning rate: export "
                "the table of runs instead, or group the runs by it"
            )
        steps = zip(table.columns[first], table.columns[name], strict=True)
        rows += [{**labels, step: at, metric: value} for at, value in steps if value.strip()]
        if len(rows) > MOST_ROWS:  # which is refused: the rest would fill the memory
            break
    found = table_of_rows(table.path, rows, "a chart of W&B")
    return replace(found, sha256=table.sha256, decimal_comma=table.decimal_comma)
