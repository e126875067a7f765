"""Layouts other than a row a run with a column for each meaning: rearranged into that, and said.

Columns that are one seed each, one learning rate, one variant or one run each, become rows; rows that are one split or
one metric each become columns; settings in the names of runs become columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress

from lr_sweep.analysis.judge.fields import Column, as_number, columns_in, is_nothing, is_number
from lr_sweep.analysis.judge.names import (
    JOIN,
    MEANS,
    ROLES,
    SPLITS,
    SPREADS,
    has_rate_word,
    is_metric,
    is_named,
    is_rate,
    is_result,
    listed,
    plain,
    split_of,
    words,
    words_of,
)
from lr_sweep.analysis.judge.readers.labels import (
    SETTING,
    labels_of,
    numbers_in,
    repeat_in,
    settings_by_place,
    settings_in,
)
from lr_sweep.analysis.judge.table_file import TableFile, check_size
from lr_sweep.common.errors import UserError

_RATE = re.compile(r"(?:(?:lr|learning_rate)\s*[=_@:]?\s*)?(\d*\.?\d+(?:e[+-]?\d+)?)", re.IGNORECASE)
_STEP = re.compile(r"(?:step|epoch|iteration)s?[\s_=@:]*(\d+)", re.IGNORECASE)
RUN, RATE, VARIANT, SEED, STEP, VALUE = "run", "learning_rate", "variant", "seed", "step", "value"
"""Names of the columns of rows made here; the last where the fields' own columns name no metric."""
MOST_RATE = 1.0
"""Numbers as names of columns are rates if none is greater, and some are no whole numbers."""
RUN_NAMES = words("#1 _1 1 run name run_name run_id id experiment exp_name trial trial_name config")
"""Columns whose fields may have settings in them."""
BETWEEN = " - "
"""Separator that W&B writes between the names of a run and of a metric."""
ENDS = ("__MIN", "__MAX")
"""Endings of the columns that W&B writes beside a run's."""
SUMMARIES = MEANS | SPREADS | {"rank"}
"""Words of columns that say of others what their values are together."""
SPLIT_OF = {word: split for split, meaning in SPLITS.items() for word in meaning}
Cells = Mapping[str, tuple[str, str]]
"""By the name of a column that becomes rows: the metric of its values, and the label of these rows."""


def arranged(table: TableFile, given: Mapping[str, str]) -> tuple[TableFile, dict[str, str]]:
    """Return a table with a row a run or evaluation, and by meaning what was read in another way than by its name.

    Args:
        table: as it was read.
        given: column by what it means, as the user says; columns named there stay as they are.

    Raises:
        UserError: rows are of several splits, and which belong together cannot be seen.
    """
    names = {part for name in given.values() for part in (name, *name.split(JOIN))}
    said: dict[str, str] = {}
    for values in [name for role, name in given.items() if role in SPLITS and name not in table.columns]:
        cells: Cells = {name: (values, name) for name in values.split(JOIN)}
        if cells.keys() <= table.columns.keys():
            table, said[VARIANT] = _melted(table, cells, VARIANT), f"the names of {len(cells)} columns"
    for label in [label for label in (RUN, RATE, VARIANT, SEED) if label != RATE or RATE not in given]:
        if cells := _cells(table, names, label):
            said[label] = f"the names of {len(cells)} columns"
            table = _melted(table, cells, label)
        if label == RUN and not given.get(RATE):
            table, labels = _with_labels(table)
            said |= labels
    table, splits = _with_metric_columns(_with_powers(table), names)
    return _with_numbers(table), said | splits


def with_step_rows(table: TableFile) -> TableFile:
    """Make a row an evaluation of columns of numbers that are one step each, as `step 2750`."""
    cells = _cells(table, set(), STEP)
    return _melted(table, cells, STEP) if cells else table


def _cells(table: TableFile, given: Collection[str], label: str) -> Cells:
    """Return the columns that are one run, rate, variant, seed or step each; empty: the table has another layout."""
    columns = columns_in(table)
    named = {name: cell for name in table.columns if (cell := _cell(name, label))}
    cells = {name: named[name] for name in named if label == RUN or columns[name].numbers}
    whole = [columns[name] for name in cells if columns[name].is_whole]
    if label == VARIANT and any(2 * len(each.values) <= len(each.texts) for each in whole):  # as sizes of a model are
        return {}
    others = [name for name in table.columns if name not in cells and not name.endswith(ENDS)]
    texts = {text for _, text in cells.values()}
    is_repeated = len(set(cells.values())) < len(cells) or len(texts) < (1 if label == RUN else 2)
    if is_repeated or any(name in cells for name in given) or not _fit(table, texts, others, label):
        return {}
    metrics = list(filter(is_metric, others))
    if metrics and all(SUMMARIES & set(words_of(name)) for name in metrics):  # their mean names the metric
        measures = "_".join(word for word in words_of(metrics[0]) if word not in SUMMARIES)
        return {name: (measures if metric == VALUE else metric, text) for name, (metric, text) in cells.items()}
    return {} if metrics and VALUE in {metric for metric, _ in cells.values()} else cells


def _cell(name: str, label: str) -> tuple[str, str] | None:
    """Return the metric and the label in the name of a column of numbers; None: it has none."""
    if label == RUN:
        run, _, metric = name.rpartition(BETWEEN)
        is_run = not name.endswith(ENDS) and (run or any(map(is_rate, labels_of(name))))
        return (metric if run else VALUE, run or name) if is_run else None
    if label == VARIANT:
        is_known = is_metric(name) or is_result(name) or is_rate(name) or is_named(name, *ROLES, VALUE)
        return None if is_known else (VALUE, name)
    if label == SEED:
        found = repeat_in(name)
        return (found[0] or VALUE, str(found[1])) if found else None
    match = (_RATE if label == RATE else _STEP).fullmatch(name.strip())
    return (VALUE, match[1]) if match else None


def _fit(table: TableFile, texts: Collection[str], others: Sequence[str], label: str) -> bool:
    """Return whether the columns beside those of some labels leave it open what these are."""
    if label == RUN:  # a chart
        return others == [*table.columns][:1] and all(map(is_number, table.columns[others[0]]))
    if label == VARIANT:
        return bool(others) and all(is_named(name, SEED, "metric") or is_rate(name) for name in others)
    if label == RATE:
        numbers = list(map(float, texts))
        is_bare = any(text in table.columns for text in texts)
        if min(numbers) <= 0 or (is_bare and (max(numbers) > MOST_RATE or all(each.is_integer() for each in numbers))):
            return False
    return not any(is_rate(name) if label == RATE else is_named(name, label) for name in others)


def _melted(table: TableFile, cells: Cells, label: str) -> TableFile:
    """Repeat the rows for each label, with a column of the labels and of each metric.

    Summaries of the columns that become rows, such as their mean, are left out; of a chart rows without a value, too.
    """
    metrics = dict.fromkeys((metric for metric, _ in cells.values()), [""] * len(table.lines))
    by_label: dict[str, dict[str, list[str]]] = {}
    for name, (metric, text) in cells.items():
        by_label.setdefault(text, {**metrics})[metric] = table.columns[name]
    check_size(table.path, len(table.lines) * len(by_label), 1)
    kept = {name: table.columns[name] for name in table.columns if name not in cells and not _summarises(name, metrics)}
    if label == RUN:
        kept = {name if is_named(name, STEP, SEED) else STEP: texts for name, texts in kept.items()}
    rows = [(place, text) for place in range(len(table.lines)) for text in by_label]
    if label == RUN:
        rows = [(place, text) for place, text in rows if any(texts[place].strip() for texts in by_label[text].values())]
    found = replace(table, columns=kept).rows_at([place for place, _ in rows])
    values = {metric: [by_label[text][metric][place] for place, text in rows] for metric in metrics}
    return replace(found, columns=found.columns | {label: [text for _, text in rows]} | values)


def _summarises(name: str, metrics: Iterable[str]) -> bool:
    named = set(words_of(name))
    measures = any(named - SUMMARIES == set(metric.split("_")) for metric in metrics)
    return name.endswith(ENDS) or (bool(named & SUMMARIES) and measures)


def _with_labels(table: TableFile) -> tuple[TableFile, dict[str, str]]:
    """Read settings in the names of runs, as in `adam-lr0.1-s1`, where each has a rate; or by place, as in paths."""
    known = {plain(name) for name in table.columns}
    has_rate = any(is_rate(name) and not _RATE.fullmatch(name.strip()) for name in table.columns)
    for name in [name for name in table.columns if plain(name) in RUN_NAMES and not has_rate]:
        kept, left_out = _without_means(table, name)
        texts = list(dict.fromkeys(kept.columns[name]))
        said = [settings_in(text) for text in texts]
        have_rates = all(any(map(is_rate, labels)) for labels in said)
        found = said if have_rates else settings_by_place(texts) if table.path.is_dir() else []
        if found:
            keys = dict.fromkeys(key for labels in found for key in labels if not have_rates or plain(key) not in known)
            of = dict(zip(texts, found, strict=True))
            new = {key: [of[text].get(key, "") for text in kept.columns[name]] for key in keys}
            return replace(kept, columns=kept.columns | new), {RATE: f"in {name}{left_out}"}
    return table, {}


def _without_means(table: TableFile, name: str) -> tuple[TableFile, str]:
    """Leave out rows whose names say no seed where others do, and that have fewer fields than those, as means have."""
    texts = list(map(str.strip, table.columns[name]))
    seeded = {text: any(is_named(key, SEED) for key in labels_of(text)) for text in set(texts)}
    if all(seeded.values()) or not any(seeded.values()):
        return table, ""
    filled = [not any(map(is_nothing, row)) for row in zip(*table.columns.values(), strict=True)]
    is_mean = [not (is_filled or seeded[text]) for text, is_filled in zip(texts, filled, strict=True)]
    if not any(is_mean) or not all(compress(filled, map(seeded.__getitem__, texts))):
        return table, ""
    kept = [place for place, mean in enumerate(is_mean) if not mean]
    return table.rows_at(kept), f"; without {listed(list(compress(texts, is_mean)))}"


def _with_numbers(table: TableFile) -> TableFile:
    """Add settings that are only numbers in the names of runs, as in `net_7lg_4lf`, to a table without seeds."""
    columns, found = columns_in(table), dict[str, list[str]]()
    has_seeds = any(is_named(name, SEED, VARIANT) for name in table.columns)
    for column in [columns[name] for name in table.columns if plain(name) in RUN_NAMES and not has_seeds]:
        for word, numbers in numbers_in(names := list(dict.fromkeys(column.texts))).items():
            of = dict(zip(names, map(as_number, numbers), strict=True))
            new = Column(SETTING + (word or column.name), [of[text] for text in column.texts])
            known = any(new.texts == list(map(as_number, each.texts)) for each in columns.values())
            if (
                len(new.values) > 1
                and 2 * len(new.values) <= len(names)
                and not (known or new.counts or new.name in columns)
            ):
                found[new.name] = list(new.texts)
    return replace(table, columns=table.columns | found)


def _with_powers(table: TableFile) -> TableFile:
    """Add the rates of a column of their logarithms, all below 0, in a table without a column of rates."""
    rates = [column for name, column in columns_in(table).items() if has_rate_word(name)]
    logs = [column.name for column in rates if max(column.numbers, default=0) < 0]
    if not logs or any(is_rate(each.name) and each.name not in logs and each.has_numbers for each in rates):
        return table
    texts = table.columns[logs[0]]
    powers = {
        f"{base}^{logs[0]}": [f"{number ** float(text):.6g}" if text.strip() else "" for text in texts]
        for base, number in (("10", 10.0), ("e", math.e))
    }
    return replace(table, columns=table.columns | powers)


def _with_metric_columns(table: TableFile, given: Collection[str]) -> tuple[TableFile, dict[str, str]]:
    """Make a column a split, or a metric, where a column says of which one each row is."""
    columns = columns_in(table)
    values = [name for name in table.columns if is_named(name, VALUE) and columns[name].has_numbers]
    metrics = [name for name in table.columns if is_metric(name) and not split_of(name) and columns[name].has_numbers]
    for label in [name for name in table.columns if is_named(name, "split", "metric") and name not in given]:
        kinds = {text: SPLIT_OF.get(text.lower(), "") for text in columns[label].values}
        is_split = is_named(label, "split") and all(kinds.values())
        moved = metrics or values if is_split else values if is_named(label, "metric") and len(values) == 1 else []
        if len(kinds) > 1 and moved and not any(name in given for name in moved):
            why = {split: f"rows with {label} = {text}" for text, split in kinds.items() if split != "train"}
            return _spread(table, label, moved, kinds if is_split else {}), why if is_split else {}
    return table, {}


def _spread(table: TableFile, label: str, metrics: Sequence[str], splits: Mapping[str, str]) -> TableFile:
    """Bring the rows of one run, which differ in a label and in results, into one."""
    keys = [name for name in table.columns if name not in (label, *metrics) and not is_result(name)]
    rows: dict[tuple[str, ...], dict[str, int]] = {}
    for index, key in enumerate(zip(*(table.columns[name] for name in keys), strict=True)):
        of_run = rows.setdefault(key, {})
        if (text := table.columns[label][index].strip()) in of_run:
            what = f"rows of one run have {label} {text} twice, at {table.lines[of_run[text]]} and"
            raise UserError(f"{table.lines[index]}: {what} here: add a column of seeds, or of steps")
        of_run[text] = index
    if not splits and len(rows) == len(table.lines):  # each run has another metric
        return table
    found = table.rows_at([next(iter(of_run.values())) for of_run in rows.values()])
    columns = {name: found.columns[name] for name in keys}
    for text in dict.fromkeys(text for of_run in rows.values() for text in of_run):
        for metric in metrics:
            name = f"{splits.get(text) or text}_{metric}" if splits else text
            columns[name] = [table.columns[metric][each[text]] if text in each else "" for each in rows.values()]
    return replace(found, columns=columns)
