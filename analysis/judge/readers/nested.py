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
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.limits import with_settings
from lr_sweep.analysis.judge.names import SETTING
from lr_sweep.analysis.judge.readers.labels import flat_settings, settings_in
from lr_sweep.analysis.judge.table_file import TableFile, table_of_rows
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, load_yaml

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
    names, data = _keys(content).get("columns"), _keys(content).get("data")
    if names and isinstance(data, list) and {*map(type, data)} == {list}:
        return [dict(zip(names, row, strict=True)) for row in data]
    (index, *others) = {tuple(_keys(column)) for column in _keys(content).values()} or {()}
    if others or list(index) != [str(number) for number in range(len(index))]:
        return []
    rows = [{name: column[row] for name, column in content.items()} for row in index]
    shapes = {_shape(field) for row in rows for field in row.values()}
    return rows if shapes == {SCALAR} else []


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
    are_alike = len(content) > 1 == len(shapes) and shapes.isdisjoint((SCALAR, CURVE))
    if _are_labels(content) or (are_alike and (not is_run or shapes <= {ROWS, LABELS})):
        return [
            {f"key{depth}": key, **flat_settings(settings_in(key)), **row}
            for key, value in content.items()
            for row in _rows(value, depth + 1, is_run=SCALAR in _shapes(value))
        ]
    if shapes <= {SCALAR}:
        return [content]
    parts = _parts(content, depth, is_run) or _curves(content, is_inner)
    used = {name for names in parts for name in names}
    flat = flat_settings({name: content[name] for name in content if name not in used}, "")
    if not parts:
        return [flat]
    names = {name for rows in parts.values() for row in rows for name in row}
    beside = {_free(name, names): value for name, value in flat.items()}
    rows = [
        row | {LIST: f"{first}.{row[LIST]}" if LIST in row else first} if len(parts) > 1 else row
        for (first, *_), rows in parts.items()
        for row in rows
    ]
    return with_settings("an object of its JSON", beside, rows)


def _free(name: str, names: set[str]) -> str:
    return _free(f"{SETTING}{name}", names) if name in names else name


def _parts(content: Fields, depth: int, is_run: bool) -> dict[tuple[str, ...], list[Fields]]:
    """Return the rows below the keys of an object: of its lists of rows or, without any, of nested objects."""
    lists = {name for name, value in content.items() if _shape(value) == ROWS}
    parts = {
        (name,): _rows(value, depth, is_run=is_run, is_inner=True)
        for name, value in content.items()
        if name in lists or (_keys(value) and not lists)
    }
    return {
        (name,): rows
        for (name,), rows in parts.items()
        if lists or rows != [flat_settings(content[name], "")]
    }


def _curves(content: Fields, is_inner: bool) -> dict[tuple[str, ...], list[Fields]]:
    """Return the rows of lists that are equally long, by the names of these lists."""
    curves = defaultdict[int, Fields](Fields)
    for name, value in content.items():
        if _shape(value) == CURVE:
            curves[len(value)][name] = value
    return {
        tuple(columns): _indexed(columns)
        for columns in curves.values()
        if not all(map(_are_texts, columns.values())) and (not is_inner or columns == content)
    }


def _are_texts(values: list[Any]) -> bool:
    return {*map(type, values)} == {str}


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
