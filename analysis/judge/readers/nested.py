"""Rows in JSON, lines of JSON and YAML.

A list of objects is a list of rows, wherever it is; each row has what stands beside the list, nested objects by their
path (`args.lr`), and `config.lr` if a row has an `lr` of its own. Several lists beside each other are all read, with a
column `list` that names them. Beside no such list, lists of numbers that are equally long are columns, with a column
`index` from 0. The keys of an object are labels (`key1`, `key2`, ... by depth) if they are numbers or `name=value`, or
if two or more of them have objects with the same keys, or lists of rows, outside a row; labels of `name=value` also
give `config.name`. Any other object is a row.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.limits import with_settings
from lr_sweep.analysis.judge.names import SETTING
from lr_sweep.analysis.judge.table_file import TableFile, table_of_rows
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, load_yaml

from .labels import flat_settings, settings_in

SCALAR, CURVE, ROWS, LABELS = "scalar", "curve", "rows", "labels"  # shapes of values
LIST, INDEX = "list", "index"  # columns: which of several lists, and the position in one of numbers


def read_json(path: Path, text: str) -> TableFile:
    """Read JSON, or lines of JSON, the first of which has settings if it has no key of the others; raises UserError."""
    try:
        content = json.loads(text)
    except ValueError:
        return _read_lines(path, text)
    return table_of_rows(path, _rows_of_pandas(content) or _rows(content), "JSON")


def _read_lines(path: Path, text: str) -> TableFile:
    items, number = dict[int, Any](), 0
    try:
        for number, line in enumerate(io.StringIO(text), 1):
            if line.strip():
                items[number] = json.loads(line)
    except (ValueError, RecursionError) as error:
        want = "want an object in each line, or a list of objects: remove a line that was cut"
        raise UserError(f"{path}:{number}: no JSON ({reason(error)}): {want}") from error
    first, *others = items
    names = {name for number in others for name in _keys(items[number])}
    is_above = names and _keys(items[first]) and names.isdisjoint(items[first])
    settings = flat_settings(items.pop(first), "") if is_above else {}
    rows = [(number, row) for number in items for row in _rows(items[number], is_run=True)]
    below = with_settings(path, settings, [row for _, row in rows])
    return table_of_rows(path, below, "JSON lines", [number for number, _ in rows])


def yaml_content(text: str) -> Any:
    """Return what YAML says as JSON has it, whatever its tags: nothing is made of them; raises as ruamel does."""
    return json.loads(json.dumps(load_yaml(text, "rt"), default=str))


def _rows_of_pandas(content: Any) -> list[Fields]:
    """Return the rows that `DataFrame.to_json` wrote, split or by columns; empty: the content has another form."""
    columns = _keys(content)
    if columns.keys() >= {"columns", "data"}:
        return [dict(zip(columns["columns"], row, strict=True)) for row in columns["data"]]
    fields = list(map(_keys, columns.values()))
    index = list(map(str, range(len(fields[0])))) if fields else []
    are_columns = all(list(field) == index and _shapes(field) == {SCALAR} for field in fields)
    if not index or not are_columns:
        return []
    rows = zip(*map(dict.values, fields), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _keys(content: Any) -> Fields:
    return content if isinstance(content, dict) else {}


def _rows(
    content: Any, depth: int = 1, *, is_run: bool = False, is_inner: bool = False
) -> list[Fields]:
    """Return the rows in any content, at least one.

    `depth`: of its labels; `is_run`: an object is a row already, in which keys are names; `is_inner`: it stands beside
    others in a larger object, so that single lists of numbers within it may be settings.
    """
    if _shape(content) == ROWS:
        return [row for item in content for row in _rows(item, depth, is_run=True)]
    if isinstance(content, list):
        return _indexed({"value": content}) or [{}]
    if not isinstance(content, dict):
        return [{"value": content}]
    shapes = _shapes(content)
    if shapes == {SCALAR}:
        is_alike = False
    elif is_run:
        is_alike = shapes in ({ROWS}, {LABELS})
    else:
        is_alike = len(shapes) == 1 and shapes != {CURVE}
    if _are_labels(content) or (is_alike and len(content) > 1):
        return [row for key, value in content.items() for row in _labelled(key, value, depth)]
    if parts := _parts(content, depth, is_run):
        return _beside(content, parts, parts)
    curves = _curves(content)
    if is_inner and curves != [content]:
        curves = []
    indexed = {next(iter(columns)): _indexed(columns) for columns in curves}
    return _beside(content, indexed, {name for columns in curves for name in columns})


def _parts(content: Fields, depth: int, is_run: bool) -> dict[str, list[Fields]]:
    """Return the rows below the keys of an object: of its lists of rows or, without any, of nested objects."""
    lists = [name for name, value in content.items() if _shape(value) == ROWS]
    nested = lists or [name for name, value in content.items() if _keys(value)]
    parts = {}
    for name in nested:
        rows = _rows(content[name], depth, is_run=is_run, is_inner=True)
        if lists or rows != [flat_settings(content[name], "")]:
            parts[name] = rows
    return parts


def _labelled(key: str, value: Any, depth: int) -> list[Fields]:
    """Return the rows below a label."""
    labels = {f"key{depth}": key, **flat_settings(settings_in(key))}
    rows = _rows(value, depth + 1, is_run=SCALAR in _shapes(value))
    return [{**labels, **row} for row in rows]


def _beside(
    content: Fields, parts: Mapping[str, Sequence[Fields]], used: Container[str]
) -> list[Fields]:
    """Return the rows of several parts of an object, each with what stands beside the parts."""
    flat = flat_settings({name: content[name] for name in content if name not in used}, "")
    if not parts:
        return [flat]
    rows = [
        {**row, LIST: part} if len(parts) > 1 else row
        for part, part_rows in parts.items()
        for row in part_rows
    ]
    taken = {name for row in rows for name in row}
    settings = {f"{SETTING}{name}" if name in taken else name: flat[name] for name in flat}
    return with_settings("an object of its JSON", settings, rows)


def _curves(content: Fields) -> list[Fields]:
    """Return lists that are equally long together; lists of texts alone are no curves."""
    curves = defaultdict[int, Fields](Fields)
    for name, value in content.items():
        if _shape(value) == CURVE:
            curves[len(value)][name] = value
    return [
        columns
        for columns in curves.values()
        if any(set(map(type, values)) != {str} for values in columns.values())
    ]


def _indexed(columns: Fields) -> list[Fields]:
    rows = enumerate(zip(*columns.values(), strict=True))
    return [{INDEX: place, **dict(zip(columns, row, strict=True))} for place, row in rows]


def _are_labels(content: Fields) -> bool:
    return content != {} and all(is_number(key.strip()) or settings_in(key) for key in content)


def _shapes(content: Any) -> set[str]:
    return set(map(_shape, _keys(content).values()))


def _shape(value: Any) -> str:
    """Return the kind of a value; objects with the same keys are of one kind."""
    if isinstance(value, list):
        kinds = set(map(type, value))
        is_curve = len(value) > 1 and kinds.isdisjoint({dict, list})
        return ROWS if kinds == {dict} else CURVE if is_curve else SCALAR
    if not isinstance(value, dict):
        return SCALAR
    return LABELS if _are_labels(value) else f"keys {sorted(value)}"
