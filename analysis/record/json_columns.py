"""Columns of the record whose texts are JSON: what must be in it. Other programs may have written them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lr_sweep.analysis.record.access import RecordError

JSON_OF_RUNS = ("versions", "code")
"""Columns of `RUNS`, beside `content`."""


def checked(path: Path, found: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return a table of the record; raises RecordError where one of these columns has anything but its JSON."""
    for name in [name for name in names if name in found.column_names]:
        for text in found[name].unique().to_pylist():
            if text is not None and not is_sound(name, text):
                shown = f"{path}: got {text[:80]!r} as {name}, want what docs/record.md says"
                raise RecordError(f"{shown}. `verify` names the file: delete it and run the study again")
    return found


def is_sound(name: str, text: str) -> bool:
    """Return whether a text is what `options` or one of `JSON_OF_RUNS` wants."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if name == "options":
        return isinstance(value, dict)
    if name == "versions":
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    return isinstance(value, list) and all(isinstance(each, dict) and _is_version(each) for each in value)


def _is_version(found: Mapping[str, Any]) -> bool:
    files = found.get("files")
    named = files is None or (isinstance(files, dict) and all(isinstance(each, str) for each in files.values()))
    return "files" in found and named and isinstance(found.get("from_step"), int)
