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
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.names import SETTING, is_number, is_setting
from lr_sweep.analysis.judge.table_file import TableFile, check_size, table_of_rows
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, ReadFields, load_yaml

SCALAR, CURVE, ROWS, LABELS = "scalar", "curve", "rows", "labels"
"""Kinds of values."""
LIST, INDEX = "list", "index"
"""Columns: which of several lists, and the position in one of numbers."""
MOST_LABEL = 2000
"""Characters of a name that are searched; file systems allow 255."""
_TRIAL = re.compile(r"^.*_[0-9a-f]{5,8}_\d{5}_\d+_|_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\w*")
"""Text around the settings in Ray's name of a trial: its id, and the time."""
_PAIR = re.compile(
    r"(?:^|[\s,;/]|(?<=\d)_)\+*([A-Za-z][\w.-]*)=['\"]?([^\s,;/='\"]+?)['\"]?"
    r"(?=$|[\s,;/]|(?<=\d)_[A-Za-z][\w.-]*=)"
)
"""Setting after and before a separator, or `_` behind a digit."""


def settings_in(name: str) -> dict[str, str]:
    """Return the pairs in a part of a path, such as `lr=0.1,seed=1`, or in a name that Ray gives a trial.

    What can be read in several ways is left out: `opt=adam_lr=0.1`.
    """
    return dict(_PAIR.findall(_TRIAL.sub("", name[:MOST_LABEL]))) if "=" in name else {}


def flat_settings(settings: ReadFields, above: str = SETTING) -> Fields:
    """Return settings by the names of their columns, nested ones by the path of their keys, without private ones."""
    flat = Fields()
    for name, value in settings.items():
        if above == SETTING and name[:1] == "_":
            continue
        path = f"{above}{name}"
        if isinstance(value, dict) and "value" in value and value.keys() <= {"desc", "value"}:
            value = value["value"]  # a setting of W&B
        flat |= flat_settings(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def yaml_content(text: str) -> Any:
    """Return what YAML says as JSON has it, whatever its tags: nothing is made of them; raises as ruamel does."""
    return json.loads(json.dumps(load_yaml(text, "rt"), default=str))


def read_json(path: Path, text: str) -> TableFile:
    """Read JSON, or lines of JSON, the first of which has settings if it has no key of the others; raises UserError."""
    try:
        content = json.loads(text)
    except ValueError:
        return _read_lines(path, text)
    return table_of_rows(path, _rows_of_pandas(content) or _rows(content))


def _read_lines(path: Path, text: str) -> TableFile:
    items, number = list[Any](), 0
    try:
        for line in io.StringIO(text):
            number += 1
            if line.strip():
                items.append(json.loads(line))
    except (ValueError, RecursionError) as error:
        want = "want an object in each line, or a list of objects: remove a line that was cut"
        raise UserError(f"{path}:{number}: no JSON ({reason(error)}): {want}") from error
    first, *below = items
    names = {name for item in below for name in _fields(item)}
    is_above = names and _fields(first) and names.isdisjoint(first)
    rows = [row for item in items[bool(is_above) :] for row in _rows(item, is_run=True)]
    return table_of_rows(path, rows).beside(flat_settings(first, "") if is_above else {})


def _rows_of_pandas(content: Any) -> list[Fields]:
    """Return the rows that `DataFrame.to_json` wrote, split or by columns; empty: the content has another form."""
    fields = _fields(content)
    if fields.keys() >= {"columns", "data"}:
        return [dict(zip(fields["columns"], row, strict=True)) for row in fields["data"]]
    columns = list(map(_fields, fields.values()))
    index = list(map(str, range(len(columns[0])))) if columns else []
    are_columns = all(
        list(column) == index and {SCALAR}.issuperset(map(_kind, column.values()))
        for column in columns
    )
    if not index or not are_columns:
        return []
    rows = zip(*map(dict.values, columns), strict=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def _fields(content: Any) -> Fields:
    return content if isinstance(content, dict) else {}


def _rows(content: Any, depth: int = 1, *, is_run: bool = False) -> list[Fields]:
    """Return the rows in any content, at least one.

    `depth`: of its labels; `is_run`: an object is a row already, in which keys are names.
    """
    if _kind(content) == ROWS:
        return [row for item in content for row in _rows(item, depth, is_run=True)]
    if isinstance(content, list):
        return _indexed({"value": content}) or [{}]
    if not isinstance(content, dict):
        return [{"value": content}]
    if _has_labels(content, is_run=is_run):
        return [row for key, value in content.items() for row in _labelled(key, value, depth)]
    leaves = _leaves(content, is_run=is_run)
    nested = [path for path, value in leaves.items() if _kind(value) == ROWS]
    nested = nested or [path for path, value in leaves.items() if isinstance(value, dict)]
    parts = {path: _rows(leaves[path], depth, is_run=is_run) for path in nested}
    if not parts:
        curves = _curves(leaves)
        parts = {next(iter(columns)): _indexed(columns) for columns in curves}
        nested = [path for columns in curves for path in columns]
    beside = {path: value for path, value in leaves.items() if path not in nested}
    return _beside(flat_settings(beside, ""), parts)


def _curves(leaves: Fields) -> list[Fields]:
    """Return lists that are equally long together; settings, and lists of texts alone, are no curves."""
    curves = defaultdict[int, Fields](Fields)
    for path, values in leaves.items():
        if _kind(values) == CURVE and not is_setting(path):
            curves[len(values)][path] = values
    return [
        columns
        for columns in curves.values()
        if any(set(map(type, values)) != {str} for values in columns.values())
    ]


def _leaves(content: Fields, above: str = "", *, is_run: bool) -> Fields:
    """Return the values in an object by their paths, down to lists and to objects whose keys are labels."""
    leaves = Fields()
    for name, value in content.items():
        is_leaf = not isinstance(value, dict) or _has_labels(value, is_run=is_run)
        path = f"{above}{name}"
        leaves |= {path: value} if is_leaf else _leaves(value, f"{path}.", is_run=is_run)
    return leaves


def _labelled(key: str, value: Any, depth: int) -> list[Fields]:
    """Return the rows below a label."""
    labels = {f"key{depth}": key, **flat_settings(settings_in(key))}
    is_run = SCALAR in map(_kind, _fields(value).values())
    return [{**labels, **row} for row in _rows(value, depth + 1, is_run=is_run)]


def _beside(fields: Fields, parts: Mapping[str, Sequence[Fields]]) -> list[Fields]:
    """Return the rows of several parts of an object, each with the fields that stand beside the parts."""
    if not parts:
        return [fields]
    rows = [
        {**row, LIST: part} if len(parts) > 1 else row
        for part, part_rows in parts.items()
        for row in part_rows
    ]
    taken = {name for row in rows for name in row}
    settings = {f"{SETTING}{name}" if name in taken else name: fields[name] for name in fields}
    check_size("an object of its JSON", len(rows), len(settings))
    return [{**settings, **row} for row in rows]


def _indexed(columns: Fields) -> list[Fields]:
    rows = enumerate(zip(*columns.values(), strict=True))
    return [{INDEX: place, **dict(zip(columns, row, strict=True))} for place, row in rows]


def _has_labels(content: Fields, *, is_run: bool) -> bool:
    """Return whether the keys of an object are labels: numbers, settings, or those of several objects of one kind."""
    kinds = set(map(_kind, content.values()))
    is_alike = len(kinds) == 1 and kinds.isdisjoint({SCALAR, CURVE})
    if is_run:
        is_alike = kinds in ({ROWS}, {LABELS})
    return _are_labels(content) or (is_alike and len(content) > 1)


def _are_labels(content: Fields) -> bool:
    return content != {} and all(is_number(key.strip()) or settings_in(key) for key in content)


def _kind(value: Any) -> str:
    """Return the kind of a value; objects with the same keys are of one kind."""
    if isinstance(value, list):
        kinds = set(map(type, value))
        is_curve = len(value) > 1 and kinds.isdisjoint({dict, list})
        return ROWS if kinds == {dict} else CURVE if is_curve else SCALAR
    if not isinstance(value, dict):
        return SCALAR
    return LABELS if _are_labels(value) else f"keys {sorted(value)}"
