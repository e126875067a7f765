"""The shipped cluster files, and the section of docs/cluster.md that is typed in."""

from __future__ import annotations

import re
from typing import Any

import yaml

from lr_sweep.tests.support.tiny_study import ROOT

FIRST_SWEEP = re.compile(r"^## Try it without a cloud\n(.*?)^## ", re.DOTALL | re.MULTILINE)
"""A section of docs/cluster.md."""
FILES = {"aws": ROOT / "cluster.yaml", "local": ROOT / "docs" / "cluster" / "local.yaml"}


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILES[name].read_text())
    return loaded
