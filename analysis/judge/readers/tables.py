"""Rows of other tools as a table of texts: JSON, the chart export of W&B, and settings in the names of runs."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.table_file import MOST_BYTES, MOST_FIELDS, MOST_ROWS, Line, TableFile, raise_mistakes
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, ReadFields, read_plain

MOST_DEPTH = 20
BETWEEN = " - "
"""Separator that W&B writes between the names of a run and of a metric."""
ENDS = ("__MIN", "__MAX")
STEPS = {"step", "_step", "epoch", "global_step", "trainer/global_step", "relative time (process)"}
MOST_LABEL = 2000
"""Characters of a name that is searched for settings: file systems take 255 of a folder."""
_PAIR = re.compile(r"([A-Za-z][\w.]*?)\s*[=:]\s*([^\s,;/=:]+)")
_JOINED = re.compile(
    r"(?<![^\W_])(?!base|init|initial|peak|max|start)([A-Za-z0-9]+)_(lr|learning_rate|seed)(?=\s*[=:])"
)
_NUMBERED = re.compile(
    r"(?<![A-Za-z])(?<!vit[-_])(?<!mixer[-_])"  # ViT-S/16 has no seed
    r"(lr|learning_rate|seed|s)[_-]?(\d[\d.]*(?:e[+-]?\d+)?)(?![^\W_]|\.\d)",
    re.IGNORECASE,
)


def table_of_rows(path: Path, rows: Sequence[ReadFields], reader: str) -> TableFile:
    """Return rows with any columns as a table; raises UserError if there are none, or too many."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows or not names:
        raise UserError(f"{path} has no runs to read, as {reader}")
    if len(rows) > MOST_ROWS or len(rows) * len(names) > MOST_FIELDS:
        raise UserError(f"{path} has {len(rows):,} rows of {len(names)} columns, want at most {MOST_ROWS:,} rows")
    columns = {name: [_as_text(row.get(name)) for row in rows] for name in names}
    digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()
    lines = [Line(path, row) for row in range(1, len(rows) + 1)]
    return TableFile(path=path, sha256=digest, columns=columns, lines=lines, decimal_comma=False, reader=reader)


def _as_text(value: object) -> str:
    """Write a value as a field; NaN is `nan`, nothing is empty."""
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def flattened(values: Mapping[Any, Any], start: str = "", mark: str = ".", depth: int = MOST_DEPTH) -> Fields:
    """Return nested mappings as one, with the names of levels joined by a mark."""
    found: Fields = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and depth:
            found |= flattened(value, f"{start}{name}{mark}", mark, depth - 1)
        else:
            found[f"{start}{name}"] = value
    return found


def labels_of(name: str) -> dict[str, str]:
    """Return the settings in the name of a run or a folder: `lr=0.1,seed=1`, `adam-lr0.1-s1`; the rest is a variant."""
    if len(name) > MOST_LABEL:
        return {}
    found: dict[str, str] = dict(_PAIR.findall(_JOINED.sub(r"\1 \2", name)))
    rest = _PAIR.sub(" ", _JOINED.sub(r"\1 \2", name))
    for key, value in _NUMBERED.findall(rest):
        found.setdefault("seed" if key.lower() == "s" else key, value.rstrip("."))
    rest = " ".join(re.sub(r"[\s,;/()_-]+", " ", _NUMBERED.sub(" ", rest)).split())
    return {**found, "variant": rest} if found and rest and "variant" not in found else found


def with_labels(runs: Sequence[tuple[str, list[Fields]]]) -> list[Fields]:
    """Return the rows of runs with their names, and with the settings in the names, as those of a configuration."""
    named = [(name, {f"config.{key}": value for key, value in labels_of(name).items()}, rows) for name, rows in runs]
    return [{"run": name, **labels, **row} for name, labels, rows in named for row in rows]


def read_json_file(path: Path) -> TableFile:
    """Read a file; raises UserError."""
    try:
        return read_json(path, read_plain(path, MOST_BYTES))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or reason(error)})") from error


def read_json(path: Path, content: bytes) -> TableFile:
    """Read JSON; raises UserError with the lines that are none."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8 (byte {error.start})") from error
    try:
        return table_of_rows(path, [flattened(row) for row in _rows(json.loads(text))], "JSON")
    except ValueError:
        return table_of_rows(path, _read_lines(path, text), "JSON lines")
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply: write a row a run") from error


def _read_lines(path: Path, text: str) -> list[Fields]:
    rows, mistakes = [], []
    for number, line in enumerate(io.StringIO(text, newline=None), 1):  # other ends of lines may be in a text
        if not line.strip():
            continue
        try:
            rows += [flattened(row) for row in _rows([json.loads(line)])]
        except (ValueError, RecursionError) as error:
            mistakes.append(f"{path}:{number}: no JSON ({reason(error)}): want an object a line, or one list of them")
    raise_mistakes(mistakes)
    return rows


def _rows(content: Any) -> list[ReadFields]:
    if isinstance(content, list) and all(isinstance(row, Mapping) for row in content):
        return content
    if not isinstance(content, Mapping):
        raise ValueError("want rows as objects")
    names, data = content.get("columns"), content.get("data")
    # As W&B and pandas write tables.
    if isinstance(names, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return [dict(zip(map(str, names), row, strict=True)) for row in data]
    values = list(content.values())
    if values and all(isinstance(value, list) for value in values) and len(set(map(len, values))) == 1:
        return [dict(zip(content, row, strict=True)) for row in zip(*values, strict=True)]
    if len(values) > 1 and all(isinstance(value, Mapping) and value.keys() == values[0].keys() for value in values):
        return [{name: column[key] for name, column in content.items()} for key in values[0]]
    return [content]


def without_chart(table: TableFile) -> TableFile:
    """Return a chart of W&B with a row a run and step, and any other table as it is.

    A chart has a column of steps, and for each run one of values with its least and greatest; the names of runs give
    their settings. Raises UserError if they have no rate.
    """
    first, *others = table.columns
    if first.lower() not in STEPS or not others or not all(BETWEEN in name for name in others):
        return table
    rows = []
    for name in [name for name in others if not name.endswith(ENDS)]:
        run, _, metric = name.rpartition(BETWEEN)
        labels = {"run": run, **labels_of(run)}
        if not {"lr", "learning_rate"} & {key.lower().rpartition(".")[2] for key in labels}:
            raise UserError(
                f"{table.path}: a chart of W&B, in which the name of the run {run[:60]!r} has no learning rate: export "
                "the table of runs instead, or group the runs by it"
            )
        steps = zip(table.columns[first], table.columns[name], strict=True)
        rows += [{**labels, "step": step, metric: value} for step, value in steps if value.strip()]
        if len(rows) > MOST_ROWS:  # which is refused: the rest would fill the memory
            break
    found = table_of_rows(table.path, rows, "a chart of W&B")
    return replace(found, sha256=table.sha256, decimal_comma=table.decimal_comma)
