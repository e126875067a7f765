"""How the runs of a record ended, and how they were made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

import pandas as pd

from lr_sweep.analysis.report.blocks import Bullets, Section, entries_of, laid_out
from lr_sweep.common.text import failure_line, rate_text

MAX_FAILURES = 20
"""Failed runs listed in the report; the rest are counted."""
PROGRAM = "lr-sweep"
SHOWN = 12
"""Hexadecimal digits of a commit and of a sha256 that are shown."""


def made_sections(facts: Sequence[str], runs: pd.DataFrame, ended: pd.DataFrame) -> list[Section]:
    """Describe the failures, and what was trained.

    Args:
        facts: sentences on what the study's numbers rest on.
        runs: all of a study, fresh ones too.
        ended: columns of `RUNS`.
    """
    made = Section("What was trained", [Bullets([*facts, *_provenance(ended)])])
    return [*_failures(runs), made]


def _failures(runs: pd.DataFrame) -> list[Section]:
    failed = runs[runs["status"] == "failed"]
    if failed.empty:
        return []
    shown = failed.head(MAX_FAILURES)
    columns = {
        "variant": entries_of("variant"),
        "learning rate": lambda row: rate_text(row["learning_rate"]),
        "seed": entries_of("seed"),
        "run": entries_of("run_id"),
        "failure": lambda row: failure_line(row["failure"]),
    }
    caption = f"{len(shown)} of {len(failed)}. `run STUDY --retry-failed` trains them again."
    return [Section("Failed runs", [laid_out("Why runs failed", caption, shown, columns)])]


def _provenance(runs: pd.DataFrame) -> Iterator[str]:
    """Yield the code, the versions, the devices and the time of the runs that have ended."""
    if runs.empty:
        yield "No run has ended yet."
        return
    versions = sorted(
        {pair for recorded in runs["versions"].unique() for pair in json.loads(recorded).items()}
    )
    listed = [
        f"{name} {' and '.join(version for _, version in pairs)}"
        for name, pairs in groupby(versions, key=lambda pair: pair[0])
    ]
    if code := _code(runs, is_versioned=PROGRAM in dict(versions)):
        yield f"Code: {'; '.join(code)}."
    if listed:
        yield f"Versions: {', '.join(listed)}."
    devices, device_h = sorted(runs["device"].unique()), runs["device_s"].sum() / 3600
    yield f"Devices: {', '.join(devices)}; {device_h:.2f} device hours."
    began, ended = runs["started_at"].min(), runs["finished_at"].max()
    yield f"Trained from {began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} UTC."


def _code(runs: pd.DataFrame, *, is_versioned: bool) -> list[str]:
    """Name commits, and the user's own code files, which the runs of a study share.

    `is_versioned`: earlier versions, which did not record their own, recorded their own commit with the user's code.
    """
    files = json.loads(runs["content"].iloc[0]).get("code", {})
    whose = "your repository" if files and is_versioned else PROGRAM
    dirty = ", with uncommitted changes" if runs["git_dirty"].fillna(False).any() else ""
    commits = sorted(runs["git_commit"].dropna().unique())
    return [
        *(f"commit {commit[:SHOWN]} of {whose}{dirty}" for commit in commits),
        *(f"{name} (sha256 {sha256[:SHOWN]}...)" for name, sha256 in files.items()),
    ]
