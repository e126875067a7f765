"""Layouts other than a row a run with a column for each meaning: rearranged into that, and said.

Columns that are one seed each, one learning rate, one variant or one run each, become rows; rows that are one split or
one metric each become columns; settings in the names of runs become columns.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress, product

from lr_sweep.analysis.judge import names
from lr_sweep.analysis.judge.fields import Column, as_number, columns_in, is_nothing, is_number
from lr_sweep.analysis.judge.limits import check_size
from lr_sweep.analysis.judge.names import JOIN, SPLITS, has_word, is_named, is_rate, plain
from lr_sweep.analysis.judge.readers.labels import (
    MOST_LABEL,
    SETTING,
    labels_of,
    repeat_in,
    settings_by_place,
)
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.common.errors import UserError

_RATE = re.compile(
    r"(?:(?:lr|learning_rate)\s*[=_@:]?\s*)?(\d*\.?\d+(?:e[+-]?\d+)?)", re.IGNORECASE
)
_STEP = re.compile(r"(?:step|epoch|iteration)s?[\s_=@:]*(\d+)", re.IGNORECASE)
_WORD = re.compile(r"([A-Za-z]*)(\d+(?:\.\d+)?(?:e-?\d+)?)([A-Za-z]*)")
# Names of the columns of rows made here; the last where the fields' own columns name no metric.
RUN, RATE, VARIANT, SEED, STEP, VALUE = "run", "learning_rate", "variant", "seed", "step", "value"
MOST_RATE = (
    1.0  # numbers as names of columns are rates if none is greater, and some are no whole numbers
)
RUN_NAMES = names.words(
    "#1 _1 1 run name run_name run_id id experiment exp_name trial trial_name config"
)  # of runs
BETWEEN, ENDS = (
    " - ",
    ("__MIN", "__MAX"),
)  # W&B: between the names of a run and of a metric; of a run's extremes
Cells = Mapping[
    str, tuple[str, str]
]  # the metric of a column's values, and the label of the rows that it becomes


def arranged(table: TableFile, reading: Reading) -> TableFile:
    """Return a table with a row a run or evaluation, and `said`, how it was read in another way than by its names.

    Columns that the user gives a meaning stay as they are. Columns of one step each become rows only for a target.
    Raises UserError where rows are of several splits, and which of these belong together cannot be seen.
    """
    given = {part for name in reading.columns.values() for part in (name, *name.split(JOIN))}
    for values in [
        name
        for role, name in reading.columns.items()
        if role in SPLITS and name not in table.columns
    ]:
        cells: Cells = {name: (values, name) for name in values.split(JOIN)}
        if cells.keys() <= table.columns.keys():
            table = _melted(table, cells, VARIANT)
    unwanted = {STEP: reading.target is None, RATE: RATE in reading.columns}
    for label in [label for label in (STEP, RUN, RATE, VARIANT, SEED) if not unwanted.get(label)]:
        if cells := _cells(table, given, label):
            table = _melted(table, cells, label)
        if label == RUN and not reading.columns.get(RATE):
            table = _with_labels(table)
    return _with_numbers(_with_metric_columns(table, given))


def _cells(table: TableFile, given: Collection[str], label: str) -> Cells:
    """Return the columns that are one run, rate, variant, seed or step each; empty: the table has another layout."""
    columns = columns_in(table)
    named = {
        name: cell for name, column in columns.items() if (cell := _cell(column, label))
    }  # before fields are read
    cells = {name: cell for name, cell in named.items() if label == RUN or columns[name].numbers}
    others = [
        column for name, column in columns.items() if name not in cells and not name.endswith(ENDS)
    ]
    is_repeated = len({*cells.values()}) < len(cells)
    if is_repeated or not cells.keys().isdisjoint(given) or not _fit(columns, cells, others, label):
        return {}
    metrics = [column.name for column in others if column.is_metric]
    if metrics and all(
        has_word(name, "summary") for name in metrics
    ):  # their mean names the metric
        measures = "_".join(_summarised(metrics[0]))
        return {
            name: (measures if metric == VALUE else metric, text)
            for name, (metric, text) in cells.items()
        }
    return {} if metrics and VALUE in {metric for metric, _ in cells.values()} else cells


def _cell(column: Column, label: str) -> tuple[str, str] | None:
    """Return the metric and the label in the name of a column; None: it has none."""
    name = column.name
    if label == RUN:
        run, _, metric = name.rpartition(BETWEEN)
        is_run = not name.endswith(ENDS) and (run or any(map(is_rate, labels_of(name))))
        return (metric if run else VALUE, run or name) if is_run else None
    if label == VARIANT:
        is_known = (
            column.is_metric
            or column.is_result
            or column.is_rate
            or is_named(name, *names.ROLES, VALUE)
        )
        return None if is_known else (VALUE, name)
    if label == SEED:
        found = repeat_in(name)
        return (found[0] or VALUE, str(found[1])) if found else None
    match = (_RATE if label == RATE else _STEP).fullmatch(name.strip())
    return (VALUE, match[1]) if match else None


def _fit(columns: Mapping[str, Column], cells: Cells, others: Sequence[Column], label: str) -> bool:
    """Return whether the columns beside those of some labels leave it open what these are."""
    texts = {text for _, text in cells.values()}
    if label == RUN:  # a chart
        return [each.name for each in others] == [*columns][:1] and all(
            map(is_number, others[0].texts)
        )
    if len(texts) < 2:
        return False
    if label == VARIANT:
        whole = [
            columns[name] for name in cells if columns[name].is_whole
        ]  # as sizes of a model are
        has_sizes = any(2 * len(each.values) <= len(each.texts) for each in whole)
        are_known = all(each.is_rate or is_named(each.name, SEED, "metric") for each in others)
        return bool(others) and are_known and not has_sizes
    if label != RATE:
        return not any(is_named(each.name, label) for each in others)
    numbers = list(map(float, texts))
    are_named = columns.keys().isdisjoint(texts)
    are_like_rates = max(numbers) <= MOST_RATE and not all(map(float.is_integer, numbers))
    return (
        min(numbers) > 0
        and (are_named or are_like_rates)
        and not any(each.is_rate for each in others)
    )


def _summarised(name: str) -> list[str]:
    """Return the words of a name without those that say what several values are together."""
    return [word for word in names.words_of(name) if word not in names.WORDS["summary"]]


def _melted(table: TableFile, cells: Cells, label: str) -> TableFile:
    """Repeat the rows for each label, with a column of the labels and of each metric.

    Summaries of the columns that become rows, such as their mean, are left out; of a chart rows without a value, too.
    """
    metrics = dict.fromkeys(metric for metric, _ in cells.values())
    texts = dict.fromkeys(text for _, text in cells.values())
    check_size(table.path, len(table.lines) * len(texts), 1)
    fields = {cell: table.columns[name] for name, cell in cells.items()}
    rows = list(product(range(len(table.lines)), texts))
    values = {
        x: [fields[x, text][at] if (x, text) in fields else "" for at, text in rows]
        for x in metrics
    }
    summaries = [metric.split("_") for metric in metrics]
    kept = {
        name if label != RUN or is_named(name, STEP, SEED) else STEP: column
        for name, column in table.columns.items()
        if not (name in cells or name.endswith(ENDS))
        if not (has_word(name, "summary") and _summarised(name) in summaries)
    }
    found = replace(
        table, columns=kept, said=table.said | {label: f"the names of {len(cells)} columns"}
    )
    found = found.rows_at([at for at, _ in rows])
    found = replace(found, columns=found.columns | {label: [text for _, text in rows]} | values)
    filled = [
        at
        for at, fields_at in enumerate(zip(*values.values(), strict=True))
        if any(map(str.strip, fields_at))
    ]
    return found.rows_at(filled) if label == RUN else found


def _with_labels(table: TableFile) -> TableFile:
    """Read settings in the names of runs, as in `adam-lr0.1-s1`, where each has a rate; or by place, as in paths."""
    known = {plain(name) for name in table.columns}
    has_rate = any(is_rate(name) and not _RATE.fullmatch(name.strip()) for name in table.columns)
    for name in [name for name in table.columns if plain(name) in RUN_NAMES and not has_rate]:
        kept, left_out = _without_means(table, name)
        of = {text: labels_of(text) for text in dict.fromkeys(kept.columns[name])}
        keys = dict.fromkeys(
            key for labels in of.values() for key in labels if plain(key) not in known
        )
        if not all(any(map(is_rate, labels)) for labels in of.values()):
            of = dict(
                zip(of, settings_by_place([*of]) if table.path.is_dir() else [], strict=False)
            )
            keys = dict.fromkeys(key for labels in of.values() for key in labels)
        if of:
            new = {
                SETTING + key: [of[text].get(key, "") for text in kept.columns[name]]
                for key in keys
            }
            return replace(
                kept, columns=kept.columns | new, said=table.said | {RATE: f"in {name}{left_out}"}
            )
    return table


def _without_means(table: TableFile, name: str) -> tuple[TableFile, str]:
    """Leave out rows whose names say no seed where others do, and that have fewer fields than those, as means have."""
    texts = list(map(str.strip, table.columns[name]))
    seeded = {text: any(is_named(key, SEED) for key in labels_of(text)) for text in set(texts)}
    filled = [not any(map(is_nothing, row)) for row in zip(*table.columns.values(), strict=True)]
    if all(filled) or not any(seeded.values()) or not all(compress(filled, map(seeded.get, texts))):
        return table, ""
    means = [text for text, is_filled in zip(texts, filled, strict=True) if not is_filled]
    return table.rows_at([*compress(range(len(texts)), filled)]), f"; without {names.listed(means)}"


def _with_numbers(table: TableFile) -> TableFile:
    """Add settings that are only numbers in the names of runs, as in `net_7lg_4lf`, to a table without seeds.

    The names differ in nothing else. Each number is named by the word beside it: `lg`, `lf`.
    """
    columns, found = columns_in(table), dict[str, list[str]]()
    has_seeds = any(is_named(name, SEED, VARIANT) for name in table.columns)
    for column in [
        columns[name] for name in table.columns if plain(name) in RUN_NAMES and not has_seeds
    ]:
        texts = dict.fromkeys(column.texts)
        if (
            max(map(len, texts)) > MOST_LABEL
            or len({_WORD.sub(r"\1#\3", text) for text in texts}) > 1
        ):
            continue
        for at, (before, _, after) in enumerate(_WORD.findall(column.texts[0])):
            word = (after or before).lower() or column.name
            new = Column(
                SETTING + word, [as_number(_WORD.findall(text)[at][1]) for text in column.texts]
            )
            known = any(new.texts == list(map(as_number, each.texts)) for each in columns.values())
            if (
                not (known or new.counts or new.name in columns)
                and 2 <= len(new.values) <= len(texts) / 2
            ):
                found[f"{new.name}_{at}" if new.name in found else new.name] = list(new.texts)
    return replace(table, columns=table.columns | found)


def _with_metric_columns(table: TableFile, given: Collection[str]) -> TableFile:
    """Make a column a split, or a metric, where a column says of which one each row is."""
    columns = columns_in(table)
    values = [
        each.name for each in columns.values() if is_named(each.name, VALUE) and each.has_numbers
    ]
    metrics = [
        each.name
        for each in columns.values()
        if each.is_metric and not each.split and each.has_numbers
    ]
    for label in [
        name for name in table.columns if is_named(name, "split", "metric") and name not in given
    ]:
        splits = {
            text: next((x for x in SPLITS if text.lower() in SPLITS[x]), "")
            for text in columns[label].values
        }
        is_split = is_named(label, "split") and all(splits.values())
        moved = (
            metrics or values
            if is_split
            else values
            if is_named(label, "metric") and len(values) == 1
            else []
        )
        if len(splits) > 1 and moved and not any(name in given for name in moved):
            splits = splits if is_split else {}
            why = {
                split: f"rows with {label} = {text}"
                for text, split in splits.items()
                if split != "train"
            }
            return _spread(replace(table, said=table.said | why), label, moved, splits)
    return table


def _spread(
    table: TableFile, label: str, metrics: Sequence[str], splits: Mapping[str, str]
) -> TableFile:
    """Bring the rows of one run, which differ in a label and in results, into one."""
    keys = [
        name
        for name in table.columns
        if name not in (label, *metrics) and not names.is_result(name)
    ]
    rows = defaultdict[tuple[str, ...], dict[str, int]](dict)
    for at, (text, *key) in enumerate(
        zip(*(table.columns[name] for name in (label, *keys)), strict=True)
    ):
        of_run = rows[tuple(key)]
        if (first := of_run.setdefault(text.strip(), at)) != at:
            what = f"rows of one run have {label} {text.strip()} twice, at {table.lines[first]} and"
            raise UserError(f"{table.lines[at]}: {what} here: add a column of seeds, or of steps")
    if not splits and len(rows) == len(table.lines):  # each run has another metric
        return table
    found = table.rows_at([min(of_run.values()) for of_run in rows.values()])
    columns = {name: found.columns[name] for name in keys}
    for text, metric in product(dict.fromkeys(chain.from_iterable(rows.values())), metrics):
        name = f"{splits.get(text) or text}_{metric}" if splits else text
        columns[name] = [
            table.columns[metric][each[text]] if text in each else "" for each in rows.values()
        ]
    return replace(found, columns=columns)
