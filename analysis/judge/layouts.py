"""Layouts other than a row a run with a column for each meaning: rearranged into that, and said.

Columns that are one seed each, or one learning rate each, become rows; rows that are one split or one metric each
become columns; settings in the names of runs become columns.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from lr_sweep.analysis.judge.fields import Content, is_number
from lr_sweep.analysis.judge.names import (
    MEANS,
    METRIC_NAMES,
    RATE_WORDS,
    REPEATS,
    ROLES,
    SPLIT_NAMES,
    SPLITS,
    SPREADS,
    VALUES,
    is_metric,
    is_rate,
    is_result,
    plain,
    split_of,
    words_of,
)
from lr_sweep.analysis.judge.readers.labels import labels_of
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.common.errors import UserError

_REPEAT = re.compile(
    rf"(.*?)(?:^|_|(?<=[^a-z]))(?:{'|'.join(sorted({*REPEATS, 'split', 'run', 'trial'}))})_?(\d{{1,18}})(?:_(.*)|$)"
)
SEED, VALUE = "seed", "value"
"""Names of the columns of rows made here; the second where the fields' own columns name no metric."""


_RATE = re.compile(r"(?:(?:lr|learning_rate)\s*[=_@:]?\s*)?(\d*\.?\d+(?:e[+-]?\d+)?)", re.IGNORECASE)
_STEP = re.compile(r"(?:step|epoch|iteration)s?[\s_=@:]*(\d+)", re.IGNORECASE)
RATE = "learning_rate"
Key = TypeVar("Key")
MOST_RATE = 1.0
"""Numbers as names of columns are rates if none is greater, and some are no whole numbers."""
RUN_NAMES = {
    "#1",
    "_1",
    "1",
    "run",
    "name",
    "run_name",
    "experiment",
    "exp_name",
    "trial",
    "trial_name",
    "config",
    "run_id",
    "id",
}
"""Columns whose fields may have settings in them."""


def arranged(table: TableFile, given: Mapping[str, str]) -> tuple[TableFile, dict[str, str]]:
    """Return a table with a row a run or evaluation, and by meaning what was read in another way than by its name.

    Args:
        table: as it was read.
        given: column by what it means, as the user says; columns named there stay as they are.

    Raises:
        UserError: rows are of several splits, and which belong together cannot be seen.
    """
    said: dict[str, str] = {}
    names = {part for name in given.values() for part in (name, *name.split("+"))}
    if RATE not in given and not any(is_rate(name) and not _RATE.fullmatch(name.strip()) for name in table.columns):
        for arrange in (_with_labels, _with_rate_rows):
            table, why = arrange(table)
            said |= {RATE: why} if why else {}
    table, said = _with_variant_rows(_with_powers(table), names, said)
    table, splits = _with_metric_columns(table, names)
    said |= splits
    table, text = _with_seed_rows(table, names)
    return table, said | ({SEED: text} if text else {})


def _with_powers(table: TableFile) -> TableFile:
    """Add the rates of a column of their logarithms, all below 0, in a table without a column of rates."""
    content = Content(table)
    rates = [name for name in table.columns if any(f"_{word}_" in f"_{plain(name)}_" for word in RATE_WORDS)]
    logs = [name for name in rates if content.is_below_0(name)]
    if not logs or any(is_rate(name) and name not in logs and content.has_numbers(name) for name in rates):
        return table
    powers = {
        f"{base}^{logs[0]}": [f"{number ** float(text):.6g}" if text.strip() else "" for text in table.columns[logs[0]]]
        for base, number in (("10", 10.0), ("e", math.e))
    }
    return replace(table, columns=table.columns | powers)


def with_step_rows(table: TableFile) -> TableFile:
    """Make a row an evaluation of columns of numbers that are one step each, as `step 2750`."""
    steps = {name: match[1] for name in table.columns if (match := _STEP.fullmatch(name.strip()))}
    if len(steps) < 2 or not all(map(Content(table).is_numbers, steps)):
        return table
    return _melted(table, "step", steps, {VALUE: {name: name for name in steps}})


def _with_variant_rows(
    table: TableFile, given: Collection[str], said: dict[str, str]
) -> tuple[TableFile, dict[str, str]]:
    """Make a row a seed and variant of columns of numbers beside a column of seeds, where no name says more."""
    content = Content(table)
    seeds = [name for name in table.columns if plain(name) in ROLES[SEED] or is_rate(name)]
    others = {name: name for name in table.columns if name not in seeds}
    known = [name for name in others if is_rate(name) or is_metric(name) or is_result(name) or name in given]
    known += [
        name for name in others if plain(name) in {*VALUES, *(each for names in ROLES.values() for each in names)}
    ]
    if not seeds or len(others) < 2 or known or not all(map(content.is_numbers, others)):
        return table, said
    return _melted(table, "variant", others, {VALUE: others}), said | {"variant": f"the names of {len(others)} columns"}


def _with_labels(table: TableFile) -> tuple[TableFile, str]:
    """Read settings in the names of runs, as in `adam-lr0.1-s1`, where each name has a learning rate."""
    for name in [each for each in table.columns if plain(each) in RUN_NAMES]:
        labels = {text: labels_of(text) for text in dict.fromkeys(table.columns[name])}
        keys = list(dict.fromkeys(key for found in labels.values() for key in found))
        if labels and all(any(map(is_rate, found)) for found in labels.values()):
            new = {f"config.{key}": [labels[text].get(key, "") for text in table.columns[name]] for key in keys}
            known = {plain(each) for each in table.columns}
            kept = {key: values for key, values in new.items() if plain(key) not in known}
            return replace(table, columns=table.columns | kept), f"in {name}"
    return table, ""


def _with_rate_rows(table: TableFile) -> tuple[TableFile, str]:
    content = Content(table)
    found = {name: match[1] for name in table.columns if (match := _RATE.fullmatch(name.strip()))}
    rates = {name: text for name, text in found.items() if content.is_numbers(name)}
    numbers = [float(text) for text in rates.values()]
    bare = any(is_number(name.strip()) for name in rates)
    if len(set(numbers)) < 2 or min(numbers) <= 0 or _has_metric(table, rates):
        return table, ""
    if bare and (max(numbers) > MOST_RATE or all(number.is_integer() for number in numbers)):
        return table, ""
    return _melted(table, RATE, rates, {VALUE: {name: name for name in rates}}), f"the names of {len(rates)} columns"


def _with_metric_columns(table: TableFile, given: Collection[str]) -> tuple[TableFile, dict[str, str]]:
    """Make a column a split, or a metric, where a column says of which one each row is."""
    content = Content(table)
    values = [name for name in table.columns if plain(name) in VALUES and content.has_numbers(name)]
    labels = [n for n in table.columns if plain(n) in {*SPLIT_NAMES, *METRIC_NAMES} and n not in given]
    for label in [name for name in labels if len(content.values(name)) > 1]:
        kinds = {text: _split(text) for text in content.values(label)}
        if plain(label) in SPLIT_NAMES and all(kinds.values()):
            metrics = [
                n for n in table.columns if is_metric(n) and not split_of(n) and content.has_numbers(n)
            ] or values
            if metrics and not set(metrics) & set(given):
                why = {split: f"rows with {label} = {text}" for text, split in kinds.items()}
                return _spread(table, label, metrics, kinds), {k: v for k, v in why.items() if k != "train"}
        if plain(label) in METRIC_NAMES and len(values) == 1 and values[0] not in given:
            return _spread(table, label, values, None), {}
    return table, {}


def _split(text: str) -> str:
    return next((split for split, words in SPLITS.items() if text.strip().lower() in words), "")


def _spread(table: TableFile, label: str, metrics: Sequence[str], kinds: Mapping[str, str] | None) -> TableFile:
    """Bring the rows of one run, which differ in a label and in results, into one."""
    keys = [name for name in table.columns if name not in (label, *metrics) and not is_result(name)]
    rows: dict[tuple[str, ...], dict[str, int]] = {}
    for index, key in enumerate(zip(*(table.columns[name] for name in keys), strict=True)):
        of_run = rows.setdefault(key, {})
        if (text := table.columns[label][index].strip()) in of_run:
            what = f"rows of one run have {label} {text} twice, at {table.lines[of_run[text]]} and"
            raise UserError(f"{table.lines[index]}: {what} here: add a column of seeds, or of steps")
        of_run[text] = index
    if kinds is None and len(rows) == len(table.lines):  # each run has another metric
        return table
    firsts = [next(iter(of_run.values())) for of_run in rows.values()]
    columns = {name: [table.columns[name][index] for index in firsts] for name in keys}
    for text in dict.fromkeys(text for of_run in rows.values() for text in of_run):
        for metric in metrics:
            name = text if kinds is None else f"{kinds.get(text) or text}_{metric}"
            columns[name] = [table.columns[metric][each[text]] if text in each else "" for each in rows.values()]
    return replace(table, columns=columns, lines=[table.lines[index] for index in firsts])


def _with_seed_rows(table: TableFile, given: set[str]) -> tuple[TableFile, str]:
    """Make a row a seed of columns of numbers whose names differ in the number of a seed alone.

    Returns the table, and what was read so; empty: there are none, or the user gives one of them a meaning.
    """
    if any(plain(name) in ROLES[SEED] for name in table.columns):
        return table, ""
    content = Content(table)
    named = {name: field for name in table.columns if (field := _field(name))}
    fields = {name: field for name, field in named.items() if content.is_numbers(name)}
    by_metric: dict[str, dict[int, str]] = defaultdict(dict)
    for name, (metric, seed) in fields.items():
        by_metric[metric][seed] = name
    others = [name for name in table.columns if is_metric(name) and name not in fields]
    if VALUE in by_metric and others and all(set(words_of(name)) & (MEANS | SPREADS) for name in others):
        by_metric["_".join(word for word in words_of(others[0]) if word not in MEANS | SPREADS)] = by_metric.pop(VALUE)
    seeds = sorted({seed for _, seed in fields.values()})
    repeated = sum(map(len, by_metric.values())) < len(fields)  # two columns of one seed and metric
    if len(seeds) < 2 or repeated or fields.keys() & given or (VALUE in by_metric and _has_metric(table, fields)):
        return table, ""
    first = ", ".join(list(fields)[:2])
    said = f"columns {first}{', ...' if len(fields) > 2 else ''} are {len(seeds)} seeds of each row"
    return _melted(table, SEED, {seed: str(seed) for seed in seeds}, by_metric), said


def _has_metric(table: TableFile, but: Collection[str]) -> bool:
    """Return whether other columns are metrics: then nameless numbers are something else."""
    return any(is_metric(name) and name not in but for name in table.columns)


def _field(name: str) -> tuple[str, int] | None:
    if not (match := _REPEAT.fullmatch(plain(name))):
        return None
    before, seed, after = match.groups()
    words = "_".join(filter(None, [before.strip("_"), (after or "").strip("_")]))
    return words or VALUE, int(seed)


def _melted(
    table: TableFile, label: str, labels: Mapping[Key, str], by_metric: Mapping[str, Mapping[Key, str]]
) -> TableFile:
    """Repeat each row for each label, with a column of labels and one of each metric.

    `by_metric`: the column of a metric and label. Summaries of these columns, such as their mean, are left out.
    """
    melted = {name for names in by_metric.values() for name in names.values()}
    measured = [set(metric.split("_")) for metric in by_metric]
    kept = [name for name in table.columns if name not in melted and not _summarises(name, measured)]
    empty = [""] * len(table.lines)
    columns = {name: [text for text in table.columns[name] for _ in labels] for name in kept}
    columns[label] = [text for _ in table.lines for text in labels.values()]
    for metric, names in by_metric.items():
        parts = [table.columns[names[key]] if key in names else empty for key in labels]
        columns[metric] = [text for row in zip(*parts, strict=True) for text in row]
    return replace(table, columns=columns, lines=[line for line in table.lines for _ in labels])


def _summarises(name: str, measured: Sequence[set[str]]) -> bool:
    words = set(words_of(name))
    return bool(words & (MEANS | SPREADS | {"rank"})) and words - MEANS - SPREADS - {"rank"} in measured
