"""Rows in JSON of any nesting: runs with their evaluations in lists, and keys that are settings.

A list of objects is a list of rows, wherever it is; what stands beside it belongs to each of them. Lists of numbers of
one length are columns. The keys of an object are labels, not names, where what is below each of them has values of the
same metrics and no key names a column: `{"adam": {"lr=0.1": ...}}`.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.limits import with_settings
from lr_sweep.analysis.judge.names import (
    has_word,
    is_metric,
    is_named,
    is_rate,
    is_result,
    split_of,
)
from lr_sweep.analysis.judge.readers.labels import labels_of, repeat_in
from lr_sweep.analysis.judge.table_file import TableFile, raise_mistakes, table_of_rows
from lr_sweep.common.errors import reason
from lr_sweep.common.files import Fields, load_yaml

STEP, SEED, VALUE = "step", "seed", "value"
CLOSE = 1e-3  # relative difference between a mean as it is written, perhaps rounded, and that of its values
MEDIA = "_type"  # key of what W&B writes for a picture, a film or a table
_BY_STEP = re.compile(
    r"_(by|per|each)_(epoch|step|iteration)s?$"
)  # end of the name of a list of evaluations


def read_json(path: Path, text: str) -> TableFile:
    """Read JSON, or a line of it each; raises UserError with the lines that are none."""
    try:
        content = json.loads(text)
    except ValueError:
        return _read_lines(path, text)
    items = content if isinstance(content, list) else [content]
    return table_of_rows(
        path, [row for number, item in enumerate(items) for row in _numbered(number, item)], "JSON"
    )


def _read_lines(path: Path, text: str) -> TableFile:
    rows, numbers, mistakes = list[Fields](), list[int](), list[str]()
    for number, line in enumerate(
        io.StringIO(text, newline=None), 1
    ):  # other ends of lines may be in a text
        try:
            rows += _numbered(number, json.loads(line)) if line.strip() else []
            numbers += [number] * (len(rows) - len(numbers))
        except (ValueError, RecursionError) as error:
            mistakes.append(
                f"{path}:{number}: no JSON ({reason(error)}): want an object a line, or one list of them"
            )
    raise_mistakes(mistakes)
    head = next(
        (number for number, row in enumerate(rows) if any(map(is_metric, row))), 0
    )  # lines of settings
    settings = {name: value for row in rows[:head] for name, value in row.items()}
    rows = with_settings(path, settings, rows[head:])
    return table_of_rows(path, rows, "JSON lines", numbers[head:])


def yaml_content(text: str) -> Any:
    """Return what YAML says as JSON has it, whatever its tags: nothing is made of them; raises as ruamel does."""
    return json.loads(json.dumps(load_yaml(text, "rt"), default=str))


def _numbered(number: int, content: Any, parent: str = "") -> list[Fields]:
    """Return the rows in a line or an item of a list, with the number of the run if they are evaluations of one.

    The number has the key of the list before it, as other lists have runs of these numbers. Metrics in a list that is
    named for its data, as `val_history`, have that name, too.
    """
    rows, split = _rows(content, parent), split_of(parent)
    differ = {name for row in rows for name in row if row[name] != rows[0].get(name)}
    are_steps = any(is_named(name, STEP) for name in rows[0]) or all(
        is_metric(n) or is_result(n) for n in differ
    )
    has_runs = any(is_named(name, "run", SEED) for name in rows[0])
    has_runs = has_runs or any(is_named(name, "task", "model", "variant") for name in differ)
    run = (
        {"run": f"{parent} {number}".strip()}
        if len(rows) > 1 and are_steps and not has_runs
        else {}
    )
    names = {
        name for row in rows for name in row if split and is_metric(name) and not split_of(name)
    }
    return [
        run | {f"{split}_{x}" if x in names else x: value for x, value in row.items()}
        for row in rows
    ]


def _rows(content: Any, parent: str = "") -> list[Fields]:
    """Return the rows within what stands below a key, or in all of a file; one row, if there are none within it."""
    if _is_list_of(content, Mapping):
        return [
            row for number, each in enumerate(content) for row in _numbered(number, each, parent)
        ]
    if _is_list_of(content, int, float):
        return [{SEED: number, VALUE: value} for number, value in enumerate(content)]
    if not isinstance(content, Mapping):
        return [{VALUE: content}]
    if found := _columns(content, parent):
        return found
    are_labels = len(content) > 1 and not any(map(_is_name, content))
    parts = {
        name: _rows(value, name)
        for name, value in content.items()
        if are_labels or _is_nested(value)
    }
    return (are_labels and _labelled(content, parts, parent)) or _with_beside(content, parts)


def _is_list_of(value: Any, *kinds: type) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, kinds) for each in value)
    )


def _columns(content: Mapping[str, Any], parent: str) -> list[Fields]:
    """Return rows of columns, as W&B and pandas write tables; empty: the content has another form."""
    if _is_list_of(content.get("columns"), str) and _is_list_of(content.get("data"), list):
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]
    is_table, columns = any(map(_is_name, content)), list(content.values())
    if is_table and all(
        isinstance(each, Mapping) and each and all(map(str.isdigit, each)) for each in columns
    ):
        return _zipped({name: list(column.values()) for name, column in content.items()})
    are_lists = all(isinstance(each, list) and not _is_nested(each) for each in columns)
    return _zipped(content, parent) if are_lists and (is_table or not parent) else []


def _meaning(key: str) -> str:
    """Return a key that names a column, of one or of several values; empty: it names none."""
    return next(
        (each for each in (key, key.removesuffix("s")) if is_named(each) or is_rate(each)), ""
    )


def _zipped(lists: Mapping[str, Sequence[Any]], run: str = "") -> list[Fields]:
    """Return the rows of lists of one length; those of metrics, and of a schedule's rates, are evaluations of a run."""
    if len(set(map(len, lists.values()))) != 1:
        return []
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    others = {name: values for name, values in lists.items() if not _measures(name)}
    rates = [
        values
        for name, values in others.items()
        if is_rate(name) and _is_list_of(values, int, float)
    ]
    are_falling = len(rates) == len(others) and all(
        values == sorted(values, reverse=True) for values in rates
    )
    if others and not (are_falling and any(split_of(name) == "train" for name in lists)):
        return rows
    named = {"run": run} if others and run else {}  # its rates alone do not tell it from other runs
    return [{**named, STEP: step, **row} for step, row in enumerate(rows, 1)]


@lru_cache
def _measures(name: str) -> bool:
    return is_metric(name) or is_named(name, VALUE)


@lru_cache
def _is_name(key: str) -> bool:
    """Return whether a key names a column, and is no label."""
    return not labels_of(key) and bool(
        is_named(key) or is_rate(key) or is_metric(key) or split_of(key)
    )


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping) or _is_list_of(value, Mapping)


def _with_beside(content: Mapping[str, Any], rows_of: Mapping[str, list[Fields]]) -> list[Fields]:
    """Return the rows within an object, each with what stands beside them."""
    lists = {
        key: value
        for key, value in content.items()
        if _is_list_of(value, int, float) and len(value) > 1
    }
    means = [
        value
        for key, value in content.items()
        if has_word(key, "mean") and isinstance(value, float)
    ]
    repeats = [key for key in lists if has_word(key, "repeat", "runs")]
    repeats = [
        key
        for key in repeats
        if any(math.isclose(fmean(lists[key]), each, rel_tol=CLOSE) for each in means)
    ]
    names = {key: _BY_STEP.sub("", key) for key in lists if key not in repeats}
    curves = _zipped(
        {name: lists[key] for key, name in names.items() if _measures(name) or is_named(name, STEP)}
    )
    columns, seeds = _side_by_side(rows_of), _seeds(content)
    taken = {name for row in [*curves[:1], *columns] for name in row}
    parts, others, beside = [curves, columns], list[list[Fields]](), Fields()
    for key, value in content.items():
        if names.get(key, key) in taken or value is seeds:
            continue
        rows = _rows(value) if key in repeats else rows_of[key] if _is_nested(value) else []
        if _is_list_of(value, Mapping) and len(rows) == len(seeds):
            rows = [{SEED: seed, **row} for seed, row in zip(seeds, rows, strict=True)]
        is_measured = any(map(_measures, chain.from_iterable(rows)))
        if isinstance(value, Mapping) and len(rows) == 1:
            beside |= {
                f"{key}.{name}": each for name, each in rows[0].items() if MEDIA not in value
            }
        elif isinstance(value, Mapping) or is_measured:
            (parts if is_measured else others).append(rows)
        elif value != []:
            beside[key] = value
    if not any(_is_list_of(value, Mapping) for value in content.values()):
        parts += others  # beside a history they are settings, as of callbacks
    found = list(chain.from_iterable(parts))
    known = {name for row in found for name in row}
    summaries = [
        name
        for name in beside
        if has_word(name, "summary") and (repeats or name.rpartition(".")[0] in known)
    ]
    beside = {name: each for name, each in beside.items() if name not in summaries}
    return with_settings("an object of its JSON", beside, found) or [beside]


def _seeds(content: Mapping[str, Any]) -> list[Any]:
    """Return the seeds beside a list of as many runs; empty: there are none."""
    counts = {
        len(value)
        for key, value in content.items()
        if _is_list_of(value, Mapping) and has_word(key, "runs")
    }
    lists = (
        value
        for key, value in content.items()
        if is_named(_meaning(key), SEED) and isinstance(value, list)
    )
    return next((value for value in lists if len(value) in counts), [])


def _side_by_side(rows_of: Mapping[str, list[Fields]]) -> list[Fields]:
    """Return the values below several keys with a column for each key; empty: there are none."""
    values = {
        key: rows
        for key, rows in rows_of.items()
        if len(rows) > 1 and all(VALUE in row for row in rows)
    }
    found: dict[str, Fields] = {}
    for column in (
        values if len({frozenset(rows[0]) for rows in values.values()}) == 1 < len(values) else ()
    ):
        for row in values[column]:
            labels = {name: value for name, value in row.items() if name != VALUE}
            found.setdefault(json.dumps(labels), labels)[column] = row[VALUE]
    return list(found.values())


def _labelled(
    content: Mapping[str, Any], parts: Mapping[str, list[Fields]], parent: str
) -> list[Fields]:
    """Return the rows of an object whose keys are labels, and not names; empty: it is none.

    The keys are the names of runs or tasks where the rows have settings. Elsewhere each says settings, or is a number
    or a name of what the level above names.
    """
    are_repeats = all((found := repeat_in(key)) and not found[0] for key in content)
    are_whole = all(map(str.isdigit, content))
    are_rates = all(map(is_number, content)) and not are_whole
    are_nested = {_is_nested(value) or _is_list_of(value, int, float) for value in content.values()}
    heads = {frozenset(rows[0]) for rows in parts.values()}
    metrics = {frozenset(filter(_measures, head)) for head in heads}
    are_runs = len(heads) == 1 and all(_is_list_of(value, Mapping) for value in content.values())
    is_uniform = len(are_nested) == len(metrics) == 1 and (all(metrics) or are_runs)
    if not is_uniform or not (are_rates or all(are_nested) or any(map(labels_of, content))):
        return []
    names = {name for rows in parts.values() for row in rows for name in row}
    has_settings = any(map(is_rate, names)) and any(
        is_named(name, "variant", SEED) for name in names
    )
    name = _meaning(parent) or (
        SEED if are_repeats or are_whole else "learning_rate" if are_rates else ""
    )
    if has_settings and not are_repeats and "run" not in names:
        name = (
            "task"
            if all(len({row.get("variant") for row in rows}) > 1 for rows in parts.values())
            else "run"
        )
    labels = {key: {name: key} if name else labels_of(key) or {"variant": key} for key in content}
    return [_joined(labels[key], row) for key in content for row in parts[key]]


def _joined(label: Mapping[str, Any], row: Fields) -> Fields:
    """Join the labels of two levels; a second name without a meaning belongs to the variant of the first one."""
    names = [name for name in ("variant", "run") if "variant" in label and name in row]
    variant = str(label.get("variant", ""))
    return {
        **label,
        **row,
        **{name: f"{variant} {str(row[name]).removeprefix(variant).strip()}" for name in names},
    }
