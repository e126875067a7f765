"""YAML, always by the rules of version 1.2: by those of 1.1 `1:30` is 90, `010` is 8, `on` is true, and 1e-3 a text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_VERSION = re.compile(r"^(\ufeff?%YAML +)1\.[01](?=\s)", re.MULTILINE)


def as_version_1_2(text: str) -> str:
    """Return a document that says it is of an earlier version as one of 1.2, as which that version wants it read."""
    return _VERSION.sub(r"\g<1>1.2", text)


def load_yaml(source: str | Path) -> Any:
    """Read a text, or a file, as plain values; raises YAMLError, OSError."""
    text = source if isinstance(source, str) else source.read_text(encoding="utf-8", errors="replace")
    return YAML(typ="safe").load(as_version_1_2(text))
