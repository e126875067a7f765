"""How the runs of a record ended, what they cost and how they were made."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.report import tables
from lr_sweep.analysis.report.blocks import Block, Bullets, Paragraph, Section
from lr_sweep.analysis.report.texts import laid_out
from lr_sweep.analysis.statistics.selection.summary import ledger
from lr_sweep.common.text import failure_line

MAX_FAILURES = 20
"""Failed runs listed in the report; the rest are counted."""


def made_sections(folder: Path, runs: pd.DataFrame, ended: pd.DataFrame) -> list[Section]:
    """Write the failures and the costs; `runs`: all of a study, fresh ones too; `ended`: columns of `RUNS`."""
    device_s = ledger(runs, ended)
    cost = tables.ledger_table(device_s).write(folder, "ledger", device_s)
    return [
        *_failures(runs),
        Section("What it cost", [cost]),
        Section("How it was made", [_provenance(ended)]),
    ]


def _failures(runs: pd.DataFrame) -> list[Section]:
    failed = runs[runs["status"] == "failed"]
    shown = failed.head(MAX_FAILURES).assign(failure=failed["failure"].map(failure_line))
    table = laid_out("failed", shown, shown=len(shown), failed=len(failed))
    return [Section("Failed runs", [table])] if len(failed) else []


def _provenance(runs: pd.DataFrame) -> Block:
    if runs.empty:
        return Paragraph("No run has ended yet.")
    dirty = " (some with uncommitted changes)" if runs["git_dirty"].fillna(False).any() else ""
    commits = ", ".join(sorted(runs["git_commit"].dropna().unique())) or "unknown"
    versions = sorted(
        {pair for recorded in runs["versions"].unique() for pair in json.loads(recorded).items()}
    )
    listed = [
        f"{name} {' and '.join(version for _, version in found)}"
        for name, found in groupby(versions, key=lambda pair: pair[0])
    ]
    began, ended = runs["started_at"].min(), runs["finished_at"].max()
    return Bullets(
        [
            f"Code: commit {commits}{dirty}.",
            f"Devices: {', '.join(sorted(runs['device'].unique()))}; {runs['device_s'].sum() / 3600:.2f} device hours.",
            f"Trained from {began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} UTC.",
            f"Versions: {', '.join(listed)}.",
        ]
    )
