"""How runs were made: whose commit, which files, which versions; what is not known is left out."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pandas as pd

from lr_sweep.analysis.study_texts import _provenance
from lr_sweep.tests.support.records import NOON

FILES = {"code": {"train.py": "0123456789abcdef", "parts/model.py": "fedcba9876543210"}}
DEVICES = "Devices: CPU; 0.50 device hours."
TRAINED = "Trained from 2026-01-02 12:00 to 2026-01-02 13:00 UTC."


def made(*runs: dict[str, Any], content: object, **versions: str) -> list[str]:
    same = {"device": "CPU", "device_s": 1800.0 / len(runs), "content": json.dumps(content)}
    same |= {"versions": json.dumps(versions), "started_at": NOON, "finished_at": NOON + timedelta(hours=1)}
    return list(_provenance(pd.DataFrame([same | run for run in runs])))


def commit(name: str | None, *, dirty: bool | None = False) -> dict[str, Any]:
    return {"git_commit": name, "git_dirty": dirty}


def test_own_code_has_its_commit_and_its_files() -> None:
    versions = {"torch": "2.15.0", "python": "3.11", "lr-sweep": "0.2.0"}
    files = "train.py (sha256 0123456789ab...); parts/model.py (sha256 fedcba987654...)"
    assert made(commit("a" * 40, dirty=True), commit("b" * 40), content=FILES, **versions) == [
        f"Code: commit {'a' * 12} of your repository, with uncommitted changes; "
        f"commit {'b' * 12} of your repository, with uncommitted changes; {files}.",
        "Versions: lr-sweep 0.2.0, python 3.11, torch 2.15.0.",
        DEVICES,
        TRAINED,
    ]
    assert made(commit(None, dirty=None), content=FILES)[0] == f"Code: {files}."


def test_the_commit_of_this_program_is_called_so() -> None:
    """That of built-in runs, and of own code what an earlier version recorded, without its number."""
    for content in ({}, FILES):
        assert made(commit("a" * 40), content=content, torch="2")[0].startswith(f"Code: commit {'a' * 12} of lr-sweep")
    assert made(commit(None, dirty=None), content={}) == [DEVICES, TRAINED]
