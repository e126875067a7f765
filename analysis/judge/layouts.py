"""Layouts other than a row a run with a column for each meaning: rearranged into that, and said.

Columns that are one seed each, one learning rate, one variant or one run each, become rows; rows that are one split or
one metric each become columns; settings in the names of runs become columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from lr_sweep.analysis.judge.fields import Column, columns_in, is_number
from lr_sweep.analysis.judge.names import (
    MEANS,
    ROLES,
    SPLITS,
    SPREADS,
    has_rate_word,
    is_metric,
    is_named,
    is_rate,
    is_result,
    plain,
    split_of,
    words_of,
)
from lr_sweep.analysis.judge.readers.labels import labels_of, repeat_in, settings_in
from lr_sweep.analysis.judge.table_file import MOST_ROWS, TableFile, check_size
from lr_sweep.common.errors import UserError

_RATE = re.compile(r"(?:(?:lr|learning_rate)\s*[=_@:]?\s*)?(\d*\.?\d+(?:e[+-]?\d+)?)", re.IGNORECASE)
_STEP = re.compile(r"(?:step|epoch|iteration)s?[\s_=@:]*(\d+)", re.IGNORECASE)
SEED, RATE, VARIANT, VALUE = "seed", "learning_rate", "variant", "value"
"""Names of the columns of rows made here; the last where the fields' own columns name no metric."""
MOST_RATE = 1.0
"""Numbers as names of columns are rates if none is greater, and some are no whole numbers."""
RUN_NAMES = {*("#1", "_1", "1", "run", "name", "run_name", "experiment", "exp_name", "trial", "trial_name", "config")}
RUN_NAMES |= {"run_id", "id"}
"""Columns whose fields may have settings in them."""
BETWEEN = " - "
"""Separator that W&B writes between the names of a run and of a metric."""
ENDS = ("__MIN", "__MAX")
"""Endings of the columns that W&B writes beside a run's."""
SUMMARIES = MEANS | SPREADS | {"rank"}
"""Words of columns that say of others what their values are together."""
Cells = Mapping[str, tuple[str, Mapping[str, str]]]
"""Metric of the columns that become rows, and the labels of their rows."""


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
    if RATE not in given:
        table, said = _with_labels(table)
    for find in (_chart, *([_rates] if RATE not in given else []), _variants, _seeds):
        if cells := find(table, names):
            said |= {label: f"the names of {len(cells)} columns" for label in [*next(iter(cells.values()))[1]][:1]}
            table = _melted(table, cells, is_chart=find is _chart)
    table, splits = _with_metric_columns(_with_powers(table), names)
    return table, said | splits


def _with_powers(table: TableFile) -> TableFile:
    """Add the rates of a column of their logarithms, all below 0, in a table without a column of rates."""
    rates = [column for name, column in columns_in(table).items() if has_rate_word(name)]
    logs = [column.name for column in rates if column.is_below_0]
    if not logs or any(is_rate(each.name) and each.name not in logs and each.has_numbers for each in rates):
        return table
    texts = table.columns[logs[0]]
    powers = {
        f"{base}^{logs[0]}": [f"{number ** float(text):.6g}" if text.strip() else "" for text in texts]
        for base, number in (("10", 10.0), ("e", math.e))
    }
    return replace(table, columns=table.columns | powers)


def with_step_rows(table: TableFile) -> TableFile:
    """Make a row an evaluation of columns of numbers that are one step each, as `step 2750`."""
    steps = {name: match[1] for name in table.columns if (match := _STEP.fullmatch(name.strip()))}
    if len(steps) < 2 or not all(Column(name, table.columns[name]).is_numbers for name in steps):
        return table
    return _melted(table, {name: (VALUE, {"step": step}) for name, step in steps.items()}, is_chart=False)


def _has_rate(table: TableFile) -> bool:
    """Return whether a column has learning rates, and is not one learning rate itself."""
    return any(is_rate(name) and not _RATE.fullmatch(name.strip()) for name in table.columns)


def _with_labels(table: TableFile) -> tuple[TableFile, dict[str, str]]:
    """Read settings in the names of runs, as in `adam-lr0.1-s1`, where each name has a learning rate."""
    known = {plain(name) for name in table.columns}
    for name in [name for name in table.columns if plain(name) in RUN_NAMES and not _has_rate(table)]:
        found = {text: settings_in(text) for text in dict.fromkeys(table.columns[name])}
        if found and all(any(map(is_rate, labels)) for labels in found.values()):
            keys = dict.fromkeys(key for each in found.values() for key in each if plain(key) not in known)
            new = {key: [found[text].get(key, "") for text in table.columns[name]] for key in keys}
            return replace(table, columns=table.columns | new), {RATE: f"in {name}"}
    return table, {}


def _chart(table: TableFile, _given: set[str]) -> Cells:
    """Return the columns of a chart of W&B: one of steps, and for each run one of values with its least and greatest.

    The names of runs give their settings; raises UserError if they have no rate.
    """
    steps, *others = table.columns
    runs = [name for name in others if BETWEEN in name or any(map(is_rate, labels_of(name)))]
    if len(runs) < max(len(others), 1) or not all(map(is_number, table.columns[steps])):
        return {}
    cells = {}
    for name in [name for name in others if not name.endswith(ENDS)]:
        run, _, metric = name.rpartition(BETWEEN) if BETWEEN in name else (name, "", VALUE)
        cells[name] = (metric, {"run": run, **labels_of(run)})
        if not any(map(is_rate, cells[name][1])):
            raise UserError(
                f"{table.path}: a chart of W&B, in which the name of the run {run[:60]!r} has no learning rate: export "
                "the table of runs instead, or group the runs by it"
            )
    return cells


def _rates(table: TableFile, _given: set[str]) -> Cells:
    """Return the columns that are one learning rate each."""
    columns = columns_in(table)
    found = {name: match[1] for name in table.columns if (match := _RATE.fullmatch(name.strip()))}
    rates = {name: text for name, text in found.items() if columns[name].is_numbers}
    numbers = [float(text) for text in rates.values()]
    if _has_rate(table) or len(set(numbers)) < 2 or min(numbers) <= 0 or _metrics(table, rates):
        return {}
    if any(map(is_number, rates)) and (max(numbers) > MOST_RATE or all(number.is_integer() for number in numbers)):
        return {}
    return {name: (VALUE, {RATE: text}) for name, text in rates.items()}


def _variants(table: TableFile, given: set[str]) -> Cells:
    """Return columns of numbers beside a column of seeds or rates, one variant each, where no name says more."""
    columns = columns_in(table)
    others = [name for name in table.columns if not is_named(name, SEED) and not is_rate(name)]
    known = [name for name in others if is_metric(name) or is_result(name) or is_named(name, *ROLES, "value")]
    if known or given & {*others} or not 1 < len(others) < len(table.columns):
        return {}
    if not all(columns[name].is_numbers for name in others):
        return {}
    return {name: (VALUE, {VARIANT: name}) for name in others}


def _with_metric_columns(table: TableFile, given: Collection[str]) -> tuple[TableFile, dict[str, str]]:
    """Make a column a split, or a metric, where a column says of which one each row is."""
    columns = columns_in(table)
    values = [name for name in table.columns if is_named(name, "value") and columns[name].has_numbers]
    labels = [n for n in table.columns if is_named(n, "split", "metric") and n not in given]
    for label in [name for name in labels if len(columns[name].values) > 1]:
        kinds = {text: _split(text) for text in columns[label].values}
        if is_named(label, "split") and all(kinds.values()):
            metrics = [
                n for n in table.columns if is_metric(n) and not split_of(n) and columns[n].has_numbers
            ] or values
            if metrics and not set(metrics) & set(given):
                why = {split: f"rows with {label} = {text}" for text, split in kinds.items()}
                return _spread(table, label, metrics, kinds), {k: v for k, v in why.items() if k != "train"}
        if is_named(label, "metric") and len(values) == 1 and values[0] not in given:
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


def _seeds(table: TableFile, given: set[str]) -> Cells:
    """Return the columns of numbers whose names differ in the number of a seed alone."""
    columns = columns_in(table)
    named = sorted((found[1], name, found[0]) for name in table.columns if (found := repeat_in(name)))
    fields = {name: (metric or VALUE, seed) for seed, name, metric in named if columns[name].is_numbers}
    others = _metrics(table, fields)
    if others and all(SUMMARIES & set(words_of(name)) for name in others):  # their mean names the metric
        measures = "_".join(word for word in words_of(others[0]) if word not in SUMMARIES)
        fields = {name: (measures if metric == VALUE else metric, seed) for name, (metric, seed) in fields.items()}
        others = []
    has_seeds = any(is_named(name, SEED) for name in table.columns)
    repeated = len(set(fields.values())) < len(fields) or len({seed for _, seed in fields.values()}) < 2
    nameless = bool(others) and VALUE in {metric for metric, _ in fields.values()}
    if has_seeds or repeated or nameless or given & fields.keys():
        return {}
    return {name: (metric, {SEED: str(seed)}) for name, (metric, seed) in fields.items()}


def _metrics(table: TableFile, but: Collection[str]) -> list[str]:
    """Return the other columns that are metrics: nameless numbers beside them are something else."""
    return [name for name in table.columns if is_metric(name) and name not in but]


def _melted(table: TableFile, cells: Cells, *, is_chart: bool) -> TableFile:
    """Repeat each row for each set of labels, with a column of each label and of each metric.

    Summaries of the columns that become rows, such as their mean, are left out; of a chart rows without a value, too.
    """
    by_labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for name, (metric, labels) in cells.items():
        by_labels.setdefault(tuple(labels.items()), {})[metric] = name
    every = (
        (place, dict(labels), names)
        for place in range(len(table.lines))
        for labels, names in by_labels.items()
        if not is_chart or any(table.columns[name][place].strip() for name in names.values())
    )
    each = list(islice(every, MOST_ROWS + 1))
    check_size(table.path, len(each), 1)
    metrics = list(dict.fromkeys(metric for metric, _ in cells.values()))
    kept = [name for name in table.columns if name not in cells and not _summarises(name, metrics)]
    columns = {"step" if is_chart and not is_named(name, "step", SEED) else name: table.columns[name] for name in kept}
    found = replace(table, columns=columns).rows_at([place for place, _, _ in each])
    for label in dict.fromkeys(label for labels in by_labels for label, _ in labels):
        found.columns[label] = [labels.get(label, "") for _, labels, _ in each]
    for metric in metrics:
        found.columns[metric] = [table.columns[names[metric]][at] if metric in names else "" for at, _, names in each]
    return found


def _summarises(name: str, metrics: Sequence[str]) -> bool:
    words = set(words_of(name))
    measures = any(words - SUMMARIES == set(metric.split("_")) for metric in metrics)
    return name.endswith(ENDS) or (bool(words & SUMMARIES) and measures)
