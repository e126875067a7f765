"""Rows in JSON of any nesting: runs with their evaluations in lists, and keys that are settings.

A list of objects is a list of rows, wherever it is; what stands beside it belongs to each of them. The keys of an
object are labels, not names, where its values are alike and no key names a column: `{"adam": {"lr=0.1": ...}}`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from lr_sweep.analysis.judge.names import is_metric, is_named, is_rate, split_of
from lr_sweep.analysis.judge.readers.labels import MOST_DEPTH, flattened, labels_of, repeat_in
from lr_sweep.analysis.judge.table_file import TableFile, raise_mistakes, table_of_rows
from lr_sweep.common.errors import reason
from lr_sweep.common.files import Fields, as_version_1_2

STEP, SEED, VALUE = "step", "seed", "value"
CELLS = (str, int, float, bool, type(None))


def read_json(path: Path, text: str) -> TableFile:
    """Read JSON, or a line of it each; raises UserError with the lines that are none."""
    try:
        return table_of_rows(path, rows_in(json.loads(text)), "JSON")
    except ValueError:
        return _read_lines(path, text)


def _read_lines(path: Path, text: str) -> TableFile:
    rows: list[Fields] = []
    numbers: list[int] = []
    mistakes = []
    for number, line in enumerate(io.StringIO(text, newline=None), 1):  # other ends of lines may be in a text
        try:
            rows += rows_in([json.loads(line)]) if line.strip() else []
            numbers += [number] * (len(rows) - len(numbers))
        except (ValueError, RecursionError) as error:
            mistakes.append(f"{path}:{number}: no JSON ({reason(error)}): want an object a line, or one list of them")
    raise_mistakes(mistakes)
    head = next((number for number, row in enumerate(rows) if any(map(is_metric, row))), 0)  # lines of settings
    settings = {name: value for row in rows[:head] for name, value in row.items()}
    return table_of_rows(path, [settings | row for row in rows[head:]], "JSON lines", numbers[head:])


def yaml_content(text: str) -> Any:
    """Return what YAML says as JSON has it, whatever its tags: nothing is made of them; raises as ruamel does."""
    return json.loads(json.dumps(YAML().load(as_version_1_2(text)), default=str))


def rows_in(content: Any) -> list[Fields]:
    """Return the rows of a list, or of an object, with flat settings; raises ValueError if there are none."""
    return [flattened(row) for row in _rows(content)]


def _rows(content: Any) -> list[Fields]:
    if isinstance(content, list) and all(isinstance(row, Mapping) for row in content):
        return [row for number, item in enumerate(content) for row in _of_run(str(number), _unfolded(item))]
    if not isinstance(content, Mapping):
        raise ValueError("want rows as objects")
    if rows := _columns(content):
        return rows
    rows = _unfolded(content)
    return _of_run("0", rows) if any(is_named(name, "step") for name in rows[0]) else rows


def _of_run(number: str, rows: list[Fields]) -> list[Fields]:
    """Number a run whose rows are evaluations, unless it has a name."""
    named = len(rows) < 2 or any(is_named(name, "run", "seed") for name in rows[0])
    return rows if named else [{"run": number, **row} for row in rows]


def _columns(content: Mapping[str, Any]) -> list[Fields]:
    """Return rows of columns, as W&B and pandas write tables; empty: the content has another form."""
    names, data, values = content.get("columns"), content.get("data"), list(content.values())
    if isinstance(names, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return [dict(zip(map(str, names), row, strict=True)) for row in data]
    if values and all(isinstance(value, list) for value in values) and len(set(map(len, values))) == 1:
        return [dict(zip(content, row, strict=True)) for row in zip(*values, strict=True)]
    alike = len(values) > 1 and all(isinstance(each, Mapping) and each.keys() == values[0].keys() for each in values)
    if alike and all(str(key).isdigit() for key in values[0]) and any(map(_is_name, content)):
        return [{name: column[key] for name, column in content.items()} for key in values[0]]
    return []


def _is_name(key: str) -> bool:
    """Return whether a key names a column, and is no label."""
    return not labels_of(key) and bool(is_named(key) or is_rate(key) or is_metric(key) or split_of(key))


def _unfolded(content: Mapping[Any, Any], parent: str = "", depth: int = MOST_DEPTH) -> list[Fields]:
    """Return the rows within an object, each with what stands beside them; a row, if there are none within it."""
    beside: Fields = {}
    parts: list[list[Fields]] = []
    if labelled := _labelled(content, parent, depth):
        return labelled
    if curves := _curves(content):
        parts.append(curves)
    for key, value in content.items():
        if isinstance(value, Mapping) and depth:
            rows = _unfolded(value, str(key), depth - 1)
            if len(rows) == 1:
                beside |= {f"{key}.{name}": each for name, each in rows[0].items()}
            else:
                parts.append(rows)
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            rows = [_of_split(str(key), row) for each in value for row in _unfolded(each, str(key), depth - 1)]
            if any(_measures(name) for row in rows for name in row):
                parts.append(rows)
            else:
                beside[str(key)] = value
        elif not curves or str(key) not in curves[0]:
            beside[str(key)] = value
    return [beside | row for rows in parts for row in rows] if parts else [beside]


def _of_split(key: str, row: Fields) -> Fields:
    """Return a row of a list that is named for its data, as `val_history`, with metrics of that name."""
    split = split_of(key)
    return {f"{split}_{name}" if split and is_metric(name) and not split_of(name) else name: row[name] for name in row}


def _measures(name: str) -> bool:
    return is_metric(name) or is_named(name, "value")


def _curves(content: Mapping[Any, Any]) -> list[Fields]:
    """Return the rows of metrics that are lists of one length, a value an evaluation."""
    lists = {str(key): value for key, value in content.items() if _is_numbers(value) and is_metric(str(key))}
    if not lists or len(set(map(len, lists.values()))) > 1:
        return []
    return [
        {STEP: step, **dict(zip(lists, row, strict=True))}
        for step, row in enumerate(zip(*lists.values(), strict=True), 1)
    ]


def _is_numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(each, int | float) for each in value)


def _labelled(content: Mapping[Any, Any], parent: str, depth: int) -> list[Fields]:
    """Return the rows of an object whose keys are labels; empty: it is none."""
    values = list(content.values())
    if len(values) < 2 or not depth or any(map(_is_name, map(str, content))):
        return []
    if all(map(_is_numbers, values)):
        within: Callable[[Any, str], list[Fields]] = _seeds
    elif all(isinstance(value, Mapping) and value and value.keys() == values[0].keys() for value in values):
        within = lambda value, name: _unfolded(value, name, depth - 1)  # noqa: E731 - with the depth
    elif any(map(labels_of, map(str, content))) and all(isinstance(value, CELLS) for value in values):
        within = lambda value, _: [{VALUE: value}]  # noqa: E731
    else:
        return []
    parts = [within(value, "") for value in values]
    names = {name for rows in parts for row in rows for name in row}
    keys = [*map(str, content)]
    has_settings = any(map(is_rate, names)) and any(is_named(name, "variant", "seed") for name in names)
    named = has_settings and not _are_repeats(keys)  # each key is the name of a run
    labels = [{"run": key} for key in keys] if named else _labels(keys, parent)
    return [_joined(label, row) for label, rows in zip(labels, parts, strict=True) for row in rows]


def _joined(label: Fields, row: Fields) -> Fields:
    """Join the labels of two levels; a second name without a meaning belongs to the variant of the first one."""
    both = [str(each["variant"]) for each in (label, row) if "variant" in each]
    return label | row | ({"variant": " ".join(both)} if both else {})


def _seeds(values: Sequence[Any], _: str) -> list[Fields]:
    return [{SEED: number, VALUE: value} for number, value in enumerate(values)]


def _are_repeats(keys: Sequence[str]) -> bool:
    return all((found := repeat_in(key)) and not found[0] for key in keys)


def _labels(keys: Sequence[str], parent: str) -> Iterator[Fields]:
    """Yield what each of some keys says: the settings in it, or a number or name of what the level above names."""
    name = next((each for each in (parent, parent.removesuffix("s")) if is_named(each) or is_rate(each)), "")
    if not name and all(each.replace(".", "", 1).replace("e-", "", 1).isdigit() for each in keys):
        name = SEED if all(map(str.isdigit, keys)) else "learning_rate"
    if not name and _are_repeats(keys):
        name = SEED
    for key in keys:
        found = {} if name else labels_of(key)
        yield {**found} or {name or "variant": key}
