"""Rows in JSON of any nesting: runs with their evaluations in lists, and keys that are settings.

A list of objects is a list of rows, wherever it is; what stands beside it belongs to each of them. The keys of an
object are labels, not names, where its values are alike and no key names a column: `{"adam": {"lr=0.1": ...}}`.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, permutations, product
from pathlib import Path
from statistics import fmean
from typing import Any

from ruamel.yaml import YAML

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.names import has_word, is_metric, is_named, is_rate, is_result, split_of
from lr_sweep.analysis.judge.readers.labels import labels_of, repeat_in
from lr_sweep.analysis.judge.table_file import TableFile, raise_mistakes, table_of_rows
from lr_sweep.common.errors import reason
from lr_sweep.common.files import Fields, ReadFields, as_version_1_2

STEP, SEED, VALUE = "step", "seed", "value"
SUMMARIES = ("mean", "deviation", "count")
"""Kinds of words of what stands beside a list of repeats."""
CLOSE = 1e-3
"""Relative difference between a mean as it is written, perhaps rounded, and that of its values."""


def read_json(path: Path, text: str) -> TableFile:
    """Read JSON, or a line of it each; raises UserError with the lines that are none."""
    try:
        content = json.loads(text)
    except ValueError:
        return _read_lines(path, text)
    items = content if isinstance(content, list) else [content]
    rows = [row for number, item in enumerate(items) for row in _numbered(number, _rows(item))]
    return table_of_rows(path, rows, "JSON")


def _read_lines(path: Path, text: str) -> TableFile:
    rows: list[Fields] = []
    numbers: list[int] = []
    mistakes = []
    for number, line in enumerate(io.StringIO(text, newline=None), 1):  # other ends of lines may be in a text
        try:
            rows += _numbered(number, _rows(json.loads(line))) if line.strip() else []
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


def _numbered(number: int | str, rows: list[Fields]) -> list[Fields]:
    """Return the rows in a line or an item of a list; if they are evaluations of one run, they have its number.

    The number has the key of the list before it, as other lists have runs of these numbers.
    """
    differ = {name for row in rows for name in row if row[name] != rows[0].get(name)}
    are_steps = any(is_named(name, STEP) for name in rows[0]) or all(is_metric(n) or is_result(n) for n in differ)
    is_run = len(rows) > 1 and are_steps and not any(is_named(name, "run", SEED) for name in rows[0])
    is_run = is_run and not any(is_named(name, "task", "model", "variant") for name in differ)
    return [{"run": str(number), **row} for row in rows] if is_run else rows


def _rows(content: Any, parent: str | None = None) -> list[Fields]:
    """Return the rows within what stands below a key, or in all of a file; one row, if there are none within it."""
    if _is_list_of(content, Mapping):
        runs = (
            _numbered(f"{parent or ''} {number}".strip(), _rows(each, parent or ""))
            for number, each in enumerate(content)
        )
        return [_of_split(parent or "", row) for rows in runs for row in rows]
    if _is_list_of(content, int, float):
        return [{SEED: number, VALUE: value} for number, value in enumerate(content)]
    if not isinstance(content, Mapping):
        return [{VALUE: content}]
    found = _columns(content, parent is None) or _repeats(content) or _grid(content)
    return found or _labelled(content, parent or "") or _with_beside(content)


def _is_list_of(value: Any, *kinds: type) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(each, kinds) for each in value)


def _of_split(key: str, row: Fields) -> Fields:
    """Return a row of a list that is named for its data, as `val_history`, with metrics of that name."""
    split = split_of(key)
    return {f"{split}_{name}" if split and is_metric(name) and not split_of(name) else name: row[name] for name in row}


def _columns(content: Mapping[str, Any], is_whole: bool) -> list[Fields]:
    """Return rows of columns, as W&B and pandas write tables; empty: the content has another form."""
    values = list(content.values())
    if _is_list_of(content.get("columns"), str) and _is_list_of(content.get("data"), list):
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]
    if _are_alike(values) and all(map(str.isdigit, values[0])) and any(map(_is_name, content)):
        return _zipped({name: list(column.values()) for name, column in content.items()})
    are_lists = all(isinstance(value, list) and not _is_nested(value) for value in values)
    return _zipped(content) if are_lists and (is_whole or any(map(_is_name, content))) else []


def _repeats(content: Mapping[str, Any]) -> list[Fields]:
    """Return a row a repeat of a list of numbers beside its mean; empty: there is none."""
    means = [value for key, value in content.items() if has_word(key, "mean") and isinstance(value, float)]
    lists = {key: value for key, value in content.items() if _is_list_of(value, int, float) and len(value) > 1}
    named = [key for key in lists if has_word(key, "repeat", "runs") and not has_word(key, "time")]
    repeats = [key for key in named if any(math.isclose(fmean(lists[key]), mean, rel_tol=CLOSE) for mean in means)]
    beside = {key: content[key] for key in content if key not in lists and not has_word(key, *SUMMARIES)}
    if len(repeats) != 1 or any(map(_measures, beside)):
        return []
    return [{**beside, SEED: number, VALUE: value} for number, value in enumerate(lists[repeats[0]])]


def _grid(content: Mapping[str, Any]) -> list[Fields]:
    """Return a row a number of a list of lists whose places two lists beside it name; empty: there is none."""
    lists = {key: value for key, value in content.items() if _is_list_of(value, int, float, str)}
    grids = {key: value for key, value in content.items() if _is_list_of(value, list) and key not in lists}
    named = [(name, lists[key]) for key in lists if (name := _meaning(key))]
    for (key, rows), ((outer, keys), (inner, places)) in product(grids.items(), permutations(named, 2)):
        if len(places) != len(keys) == len(rows) and all(
            _is_list_of(row, int, float) and len(row) == len(places) for row in rows
        ):
            cells = zip(product(keys, places), chain(*rows), strict=True)
            return [{outer: one, inner: other, key: value} for (one, other), value in cells]
    return []


def _meaning(key: str) -> str:
    """Return a key that names a column, of one or of several values; empty: it names none."""
    return next((each for each in (key, key.removesuffix("s")) if is_named(each) or is_rate(each)), "")


def _zipped(lists: Mapping[str, Sequence[Any]]) -> list[Fields]:
    """Return the rows of lists of one length; those of metrics alone are evaluations."""
    if len(set(map(len, lists.values()))) != 1:
        return []
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return [{STEP: step, **row} for step, row in enumerate(rows, 1)] if all(map(_measures, lists)) else rows


@lru_cache
def _measures(name: str) -> bool:
    return is_metric(name) or is_named(name, VALUE)


@lru_cache
def _is_name(key: str) -> bool:
    """Return whether a key names a column, and is no label."""
    return not labels_of(key) and bool(is_named(key) or is_rate(key) or is_metric(key) or split_of(key))


def _are_alike(values: Sequence[Any]) -> bool:
    mappings = [each for each in values if isinstance(each, Mapping) and each]
    return len(mappings) == len(values) > 1 and all(each.keys() == mappings[0].keys() for each in mappings)


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping) or _is_list_of(value, Mapping)


def _is_grid(value: object) -> bool:
    return isinstance(value, Mapping) and len(value) > 0 and all(is_number(key) or labels_of(key) for key in value)


def _with_beside(content: Mapping[str, Any]) -> list[Fields]:
    """Return the rows within an object, each with what stands beside them."""
    lists = {key: value for key, value in content.items() if _is_list_of(value, int, float) and len(value) > 1}
    curves = _zipped({key: lists[key] for key in lists if _measures(key) or is_named(key, STEP)})
    beside: Fields = {}
    parts, others = [curves], list[list[Fields]]()
    for key, value in content.items():
        rows = _rows(value, key) if _is_nested(value) else []
        if isinstance(value, Mapping) and len(rows) == 1:
            beside |= {f"{key}.{name}": each for name, each in rows[0].items()}
        elif isinstance(value, Mapping) or _measure(rows):
            (parts if _measure(rows) else others).append(rows)
        elif not curves or key not in curves[0]:
            beside[key] = value
    if len(parts) == 1 or not any(_is_list_of(value, Mapping) for value in content.values()):
        parts += others  # beside a history they are settings, as of callbacks
    return [beside | row for rows in parts for row in rows] or [beside]


def _measure(rows: Sequence[ReadFields]) -> bool:
    return any(_measures(name) for row in rows for name in row)


def _labelled(content: Mapping[str, Any], parent: str) -> list[Fields]:
    """Return the rows of an object whose keys are labels; empty: it is none."""
    keys, values = list(content), list(content.values())
    if len(keys) < 2 or any(map(_is_name, keys)):
        return []
    are_rates = all(map(is_number, keys)) and not all(map(str.isdigit, keys))
    are_scalars = not any(isinstance(value, list | Mapping) for value in values)
    are_cells = are_scalars and (are_rates or any(map(labels_of, keys)))
    are_runs = _are_alike(values) or all(_is_list_of(value, int, float) or _is_grid(value) for value in values)
    if not (are_cells or are_runs):
        return []
    parts = [_rows(value, "") for value in values]
    names = {name for rows in parts for row in rows for name in row}
    has_settings = any(map(is_rate, names)) and any(is_named(name, "variant", SEED) for name in names)
    named = has_settings and not _are_repeats(keys)  # each key is the name of a run
    labels = [{"run": key} for key in keys] if named else _labels(keys, parent)
    return [_joined(label, row) for label, rows in zip(labels, parts, strict=True) for row in rows]


def _joined(label: Fields, row: Fields) -> Fields:
    """Join the labels of two levels; a second name without a meaning belongs to the variant of the first one."""
    both = [str(each["variant"]) for each in (label, row) if "variant" in each]
    return label | row | ({"variant": " ".join(both)} if both else {})


def _are_repeats(keys: Sequence[str]) -> bool:
    return all((found := repeat_in(key)) and not found[0] for key in keys)


def _labels(keys: Sequence[str], parent: str) -> Iterator[Fields]:
    """Yield what each of some keys says: the settings in it, or a number or name of what the level above names."""
    name = _meaning(parent)
    if not name and (_are_repeats(keys) or all(map(str.isdigit, keys))):
        name = SEED
    elif not name and all(map(is_number, keys)):
        name = "learning_rate"
    for key in keys:
        found = {} if name else labels_of(key)
        yield {**found} or {name or "variant": key}
