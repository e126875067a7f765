"""Columns that are one seed each, as `seed_0, seed_1` or `split0_test_score`: their fields become rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lr_sweep.analysis.judge.content import Content
from lr_sweep.analysis.judge.names import MEANS, REPEATS, ROLES, SPREADS
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.judge.words import plain, words_of

_REPEAT = re.compile(rf"(.*?)(?:^|_|(?<=[^a-z]))({'|'.join(sorted({*REPEATS, 'split'}))})_?(\d+)(?:_(.*)|$)")
SEED, VALUE = "seed", "value"
"""Names of the columns of rows made here; the second where the fields' own columns name no metric."""


class _Field(NamedTuple):
    """A column that is one seed's."""

    metric: str
    repeat: str
    seed: int


def with_seed_rows(table: TableFile, given: Collection[str]) -> tuple[TableFile, str]:
    """Make a row a seed of columns of numbers whose names differ in the number of a seed alone.

    Returns the table, and what was read so; empty: there are none, or the user gives one of them a meaning.
    """
    if any(plain(name) in ROLES[SEED] for name in table.columns):
        return table, ""
    content = Content(table)
    found = {name: _field(name) for name in table.columns if content.is_numbers(name)}
    fields = {name: field for name, field in found.items() if field is not None}
    by_metric: dict[str, dict[int, str]] = defaultdict(dict)
    for name, field in fields.items():
        by_metric[field.metric][field.seed] = name
    seeds = sorted({field.seed for field in fields.values()})
    repeated = sum(map(len, by_metric.values())) < len(fields)  # two columns of one seed and metric
    if len(seeds) < 2 or repeated or fields.keys() & set(given):
        return table, ""
    named = list(fields)
    said = f"columns {', '.join(named[:2])}{', ...' if len(named) > 2 else ''} are {len(seeds)} seeds of each row"
    return _melted(table, fields, by_metric, seeds), said


def _field(name: str) -> _Field | None:
    if not (match := _REPEAT.fullmatch(plain(name))):
        return None
    before, repeat, seed, after = match.groups()
    words = "_".join(filter(None, [before.strip("_"), (after or "").strip("_")]))
    return _Field(words or VALUE, repeat, int(seed))


def _melted(
    table: TableFile, fields: Mapping[str, _Field], by_metric: Mapping[str, Mapping[int, str]], seeds: Sequence[int]
) -> TableFile:
    """Repeat rows for each seed; summaries of the fields, such as their mean, are left out."""
    measured = [set(metric.split("_")) for metric in by_metric]
    kept = [name for name in table.columns if name not in fields and not _summarises(name, measured)]
    empty = [""] * len(table.lines)
    columns = {name: [text for text in table.columns[name] for _ in seeds] for name in kept}
    columns[SEED] = [str(seed) for _ in table.lines for seed in seeds]
    for metric, names in by_metric.items():
        parts = [table.columns[names[seed]] if seed in names else empty for seed in seeds]
        columns[metric] = [text for row in zip(*parts, strict=True) for text in row]
    return replace(table, columns=columns, lines=[line for line in table.lines for _ in seeds])


def _summarises(name: str, measured: Sequence[set[str]]) -> bool:
    words = set(words_of(name))
    return bool(words & (MEANS | SPREADS | {"rank"})) and words - MEANS - SPREADS - {"rank"} in measured
