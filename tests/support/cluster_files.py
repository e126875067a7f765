"""The shipped cluster files."""

from __future__ import annotations

from typing import Any

import yaml

from lr_sweep.tests.support.tiny_study import ROOT

FILES = {"aws": ROOT / "cluster.yaml", "local": ROOT / "docs" / "cluster" / "local.yaml"}


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILES[name].read_text())
    return loaded
