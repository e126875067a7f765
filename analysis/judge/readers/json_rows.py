"""JSON: a line a row, a list of rows, columns, or a table of W&B."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.readers.from_rows import flattened, table_of_rows
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile, raise_mistakes
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import read_plain


def read_json_file(path: Path) -> TableFile:
    """Read a file; raises UserError."""
    try:
        return read_json(path, read_plain(path, MOST_BYTES))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or reason(error)})") from error


def read_json(path: Path, content: bytes) -> TableFile:
    """Read JSON; raises UserError with the lines that are none."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8 (byte {error.start})") from error
    try:
        return table_of_rows(path, [flattened(row) for row in _rows(json.loads(text))], "JSON")
    except ValueError:
        return table_of_rows(path, read_lines(path, text), "JSON lines")
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply: write a row a run") from error


def read_lines(path: Path, text: str) -> list[dict[str, Any]]:
    """Read lines of JSON; raises UserError."""
    rows, mistakes = [], []
    for number, line in enumerate(io.StringIO(text, newline=None), 1):  # other ends of lines may be in a text
        if not line.strip():
            continue
        try:
            rows += [flattened(row) for row in _rows([json.loads(line)])]
        except (ValueError, RecursionError) as error:
            mistakes.append(f"{path}:{number}: no JSON ({reason(error)}): want an object a line, or one list of them")
    raise_mistakes(mistakes)
    return rows


def _rows(content: Any) -> list[Mapping[str, Any]]:
    if isinstance(content, list) and all(isinstance(row, Mapping) for row in content):
        return content
    if not isinstance(content, Mapping):
        raise ValueError("want rows as objects")
    names, data = content.get("columns"), content.get("data")
    # As W&B and pandas write tables.
    if isinstance(names, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return [dict(zip(map(str, names), row, strict=True)) for row in data]
    values = list(content.values())
    if values and all(isinstance(value, list) for value in values) and len(set(map(len, values))) == 1:
        return [dict(zip(content, row, strict=True)) for row in zip(*values, strict=True)]
    if len(values) > 1 and all(isinstance(value, Mapping) and value.keys() == values[0].keys() for value in values):
        return [{name: column[key] for name, column in content.items()} for key in values[0]]
    return [content]
