"""Rows of other tools as a table of texts."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.table_file import MOST_FIELDS, MOST_ROWS, Line, TableFile
from lr_sweep.common.errors import UserError

MOST_DEPTH = 20
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


def table_of_rows(path: Path, rows: Sequence[Mapping[str, Any]], reader: str) -> TableFile:
    """Return rows with any columns as a table; raises UserError if there are none, or too many."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows or not names:
        raise UserError(f"{path} has no runs to read, as {reader}")
    if len(rows) > MOST_ROWS or len(rows) * len(names) > MOST_FIELDS:
        raise UserError(f"{path} has {len(rows):,} rows of {len(names)} columns, want at most {MOST_ROWS:,} rows")
    columns = {name: [as_text(row.get(name)) for row in rows] for name in names}
    digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()
    lines = [Line(path, row) for row in range(1, len(rows) + 1)]
    return TableFile(path=path, sha256=digest, columns=columns, lines=lines, decimal_comma=False, reader=reader)


def as_text(value: object) -> str:
    """Write a value as a field; NaN is `nan`, nothing is empty."""
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def flattened(values: Mapping[Any, Any], start: str = "", mark: str = ".", depth: int = MOST_DEPTH) -> dict[str, Any]:
    """Return nested mappings as one, with the names of levels joined by a mark."""
    found: dict[str, Any] = {}
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


def with_labels(runs: Sequence[tuple[str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return the rows of runs with their names, and with the settings in the names, as those of a configuration."""
    named = [(name, {f"config.{key}": value for key, value in labels_of(name).items()}, rows) for name, rows in runs]
    return [{"run": name, **labels, **row} for name, labels, rows in named for row in rows]
