"""The meanings of the columns of a table: as its user says, as its format defines, or by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import pandas as pd

from lr_sweep.analysis.judge import names
from lr_sweep.common.errors import unknown

from .fields import are_numbers, is_nothing, is_number
from .names import ROLES, SPLITS
from .table_file import TableFile, raise_mistakes

JOIN = "+"
"""Joins the names of columns that mean one thing together."""
ROWS = "rows"
"""Given in place of a column of seeds: each row is a seed of its own."""
NAMES = "names"
"""Column of the names of the columns of validation, where these are turned into rows."""
VALUE = "value of names"
"""Column of their values, where no metric is known that names it."""
_SEPARATOR = re.compile(r"[/\\\s_,;]+|(?<!\d[eE])-")
"""Separator of the parts of a name; the sign of an exponent is none."""
_HAS_SETTINGS = re.compile(r"=|\d\.\d|\de-?\d|(?<![a-z])(lr|seed|eta)(?![a-z])", re.IGNORECASE)
"""Signs of settings in a name, which is then not the name of what is compared."""
Columns = Mapping[str, list[str]]
"""Names of columns by what they mean, or may mean."""


def turned(table: TableFile, texts: Mapping[str, str]) -> tuple[TableFile, dict[str, str]]:
    """Turn the columns of validation into rows, if the user gives a meaning to their `names`, or to parts of these."""
    means_names = any(text.partition(".")[0] == NAMES for text in texts.values())
    if not means_names or NAMES in table.columns or not texts.get("validation"):
        return table, dict(texts)
    table, given = with_given(table, {"validation": texts["validation"]})
    values = given["validation"]
    kept = [name for name in table.columns if name not in values]
    metrics = {names.metric_of(name) for name in values}
    value = metrics.pop() if len(metrics) == 1 else VALUE
    if value in ("", *kept):
        value = VALUE
    frame = pd.DataFrame(table.columns, dtype=object)
    rows = frame.melt(kept, values, NAMES, value)
    columns = {str(name): rows[name].tolist() for name in rows}
    lines = table.lines * len(values)
    return replace(table, columns=columns, lines=lines), {**texts, "validation": value}


def with_given(
    table: TableFile, texts: Mapping[str, str]
) -> tuple[TableFile, dict[str, list[str]]]:
    """Return the columns that the user names, by name, position (`#2`), pattern (`acc_*`) or part (`name.2`).

    The second part of `adam-lr0.1-s1` is `lr0.1`; parts become columns of the table. Raises UserError with every
    mistake.
    """
    columns: dict[str, list[str]] = {}
    mistakes = []
    for meaning, text in texts.items():
        columns[meaning] = []
        names_given = [text] if text in table.columns else text.split(JOIN) if text else []
        for name in map(str.strip, names_given):
            parts = _parts_of(table, name)
            table = replace(table, columns=table.columns | parts)
            named = [*parts] or _columns_named(table, name)
            if meaning == "ignored" and not named:
                continue
            if not named and name != ROWS:
                mistakes.append(f"--columns: {unknown('column', name, table.columns)}")
            columns[meaning] += named or [name]
    for name in table.columns:
        meanings = [meaning for meaning, named in columns.items() if name in named]
        if len(meanings) > 1:
            mistakes.append(f"--columns: {name} is given as {' and as '.join(meanings)}")
    raise_mistakes(mistakes)
    return table, columns


def _parts_of(table: TableFile, name: str) -> dict[str, list[str]]:
    """Return the column of a part of another one's texts; empty: the name is that of a column, or of none."""
    whole, _, number = name.rpartition(".")
    sources = _columns_named(table, whole)
    if name in table.columns or not number.isdigit() or not sources:
        return {}
    texts = table.columns[sources[0]]
    place = slice(int(number) - 1, int(number))
    parts = {text: "".join(parts_in(text)[place]) for text in set(texts)}
    return {name: [parts[text] for text in texts]} if any(parts.values()) else {}


def parts_in(text: str) -> list[str]:
    """Return the parts of a name, as `adam`, `lr0.1` and `s1`."""
    return _SEPARATOR.split(text)


def _columns_named(table: TableFile, text: str) -> list[str]:
    columns = list(table.columns)
    if text in columns:
        return [text]
    positions = {f"#{place}": name for place, name in enumerate(columns, 1)}
    if text in positions:
        return [positions[text]]
    is_pattern = "*" in text or "?" in text
    return [name for name in columns if is_pattern and fnmatchcase(name, text)]


def possible_columns(table: TableFile, given: Columns) -> dict[str, list[str]]:
    """Return the columns that may have each meaning which the user has not given; if it is one, it has the meaning."""
    taken = {name for columns in given.values() for name in columns}
    free = [name for name in table.columns if name not in taken]
    possible = {role: _deciding(table, role, free) for role in ROLES}
    possible |= {role: [name] for role, name in table.known.items() if name in free}
    decided = [{**possible, **given}.get(role) for role in ("variant", "model", "learning_rate")]
    if not any(decided):
        possible["variant"] = _only_names(table, free)
    possible = _possible_values(table, free, given) | possible
    return {
        meaning: columns
        for meaning, columns in possible.items()
        if columns and meaning not in given
    }


def _deciding(table: TableFile, role: str, free: list[str]) -> list[str]:
    """Return the columns whose names mean a role, without those that decide nothing.

    These are constant ones beside others, a schedule's rate beside the setting, and all but one column of steps, as
    all of them grow together.
    """
    named = [name for name in free if names.role_of(name) == role]
    columns = [name for name in named if any(table.columns[name])]
    if len(columns) < 2:
        return columns
    if role == "step":
        order = names.SYNONYMS["step"].split()
        return [min(columns, key=lambda name: order.index(names.synonym_of(name)))]
    settings = [name for name in columns if names.is_setting(name)]
    if role == "learning_rate" and settings:
        columns = settings
    varying = [name for name in columns if len(set(table.columns[name])) > 1]
    return varying or columns[:1]


def _only_names(table: TableFile, free: list[str]) -> list[str]:
    """Return the columns of texts that name each row of a table in which nothing else was varied."""
    settings = [
        name
        for name in free
        if not (names.role_of(name) or names.is_measurement(name) or names.split_of(name))
        and len(set(table.columns[name])) > 1
    ]
    are_names = all(_names_each_row(table.columns[name]) for name in settings)
    return settings if are_names else []


def _names_each_row(texts: list[str]) -> bool:
    """Return whether texts are different in each row, and none has settings in it."""
    if len(set(texts)) < len(texts):
        return False
    return not any(
        is_number(text) or is_nothing(text) or _HAS_SETTINGS.search(text) for text in texts
    )


def _possible_values(table: TableFile, free: list[str], given: Columns) -> dict[str, list[str]]:
    """Return the columns of the metric on validation, test and training data, by their names.

    A number that was measured on validation data may be the metric, whether or not its name is known.
    """
    values = [name for name in free if _may_be_metric(table, name)]
    known = [name for name in free if names.metric_of(name) and any(table.columns[name])]
    possible = {split: _of(split, values) or _of(split, known) for split in SPLITS}
    is_split = possible["validation"] or possible["test"] or given.get("test")
    unsplit = _of("", values)
    # A loss that does not say its data may be that of training, and so may an accuracy beside it.
    may_be_tested = any(names.is_higher_better(names.metric_of(name)) for name in unsplit)
    if not is_split and may_be_tested:
        possible["validation"] = unsplit
    chosen = given.get("validation") or possible["validation"] or given.get("test")
    if chosen:
        metric = names.measured(chosen[0])
        for split in ("test", "train"):
            same = [name for name in possible[split] if names.measured(name) == metric]
            possible[split] = same
    if len(possible["train"]) > 1:
        possible["train"] = []
    return possible


def _of(split: str, columns: list[str]) -> list[str]:
    return [name for name in columns if names.split_of(name) == split]


def _may_be_metric(table: TableFile, name: str) -> bool:
    """Return whether a name is that of a metric or of data, and its column has different numbers.

    Of a known metric some fields may be no numbers: each is named later.
    """
    metric = names.metric_of(name)
    is_other = any(names.has_word(name, kind) for kind in ("time", "about", "spread"))
    is_setting = names.is_setting(name) or bool(names.role_of(name))
    if not (metric or names.split_of(name)) or is_other or is_setting:
        return False
    texts = set(table.columns[name])
    if len(texts) == 1 < len(table.lines):
        return False
    has_number = any(map(is_number, texts))
    return (bool(metric) and has_number) or are_numbers(texts)
