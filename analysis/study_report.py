"""The report: reads the record of one study and writes tables, figures and a page that says what they rest on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.paper.lu2021.published import table_of
from lr_sweep.analysis.paper.paper import MEASURED, best_published, write_paper
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.code_versions import Now
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.report import further_tables, tables
from lr_sweep.analysis.report.blocks import (
    Block,
    Bullets,
    Paragraph,
    Section,
    SweepChart,
    Table,
    file_stem,
    report_markdown,
)
from lr_sweep.analysis.report.chart import chart_data
from lr_sweep.analysis.report.findings import count_problems, findings_table, findings_text, write_checks_json
from lr_sweep.analysis.report.folder import new_report
from lr_sweep.analysis.report.page import page_html
from lr_sweep.analysis.statistics.aggregate import GROUP, STATUSES, StudySummary, summarise
from lr_sweep.analysis.statistics.checks import CheckFinding, check_sweep, code_findings
from lr_sweep.analysis.statistics.comparisons import comparisons
from lr_sweep.analysis.statistics.importance import importances
from lr_sweep.analysis.statistics.ledger import ledger
from lr_sweep.analysis.statistics.orders import orders, reversals
from lr_sweep.analysis.statistics.selection import CELL, RULE
from lr_sweep.analysis.statistics.sensitivity import expected_bests, sensitivities
from lr_sweep.analysis.statistics.uncertainty import intervals

LIMITS = (
    f"{RULE} A learning rate where a seed has no value is chosen only if every learning rate lacks one. Test accuracy "
    "selects nothing.",
    "The test accuracy was read once for each run, at the step that validation chose. The figure shows it at every "
    "learning rate, for reading, not for choosing.",
    "The SEM is over seeds: initialisation, data order and dropout. Mean ± SEM is no 95% interval; those are under "
    '"How sure", with the choice of the learning rate in them. None holds the uncertainty from a finite test set.',
    "A run that diverged counts with its best model before that; without an evaluation it has no value. Failed and "
    "missing runs are never counted as zero.",
    "Numbers hold for the step budgets, the pretrained weights and the data named above, and for the learning rates "
    "tried.",
)

RUN_COLUMNS = (
    *("run_id", "status", "num_steps", "diverged_at_step", "failure", "git_commit", "git_dirty", "versions"),
    *("device", "device_s", "started_at", "finished_at", "lost_steps", "code"),
)
CURVE_COLUMNS = ("run_id", "step", "train_accuracy", "validation_accuracy", "test_accuracy")
"""What the report reads of the record: at 10,000 runs, leaving out the rest saves seconds and memory."""

MAX_FAILURES = 20
"""Failed runs listed in the report; the rest are counted."""

INTERVAL_SEED = 0
"""Of the generator that draws resamples for the intervals of cells with many seeds."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `write_report` wrote."""

    folder: Path
    files: tuple[Path, ...]
    text: str
    """For the terminal: status line, tables, findings."""
    findings: tuple[CheckFinding, ...]
    """What the checks found, problems first."""

    @property
    def page(self) -> Path:
        """The file to open in a browser."""
        return self.folder / "index.html"

    @property
    def num_problems(self) -> int:
        """Findings that `--strict` fails on."""
        return count_problems(self.findings)


@dataclass(frozen=True)
class _Study:
    """What a report is written from: the study's part of the record, and what was found in it."""

    info: StudyInfo
    runs: pd.DataFrame
    curves: pd.DataFrame
    planned: pd.DataFrame
    summary: StudySummary
    findings: tuple[CheckFinding, ...]


def write_report(results: Path, study: str, code_now: Now | None = None) -> Report:
    """Write `studies/<study>/report/` from the record, whatever is in it so far.

    The folder is replaced whole, and only once everything is written. The same record and code give the same files.
    `code_now` gives the version that a file of the code has now, to compare runs with; None: they are not compared.
    Raises RecordError if the record is missing, damaged, or of another format.
    """
    record.check_format(results)
    found = _read(results, study, code_now)
    study_dir = record.study_dir(results, study)
    with new_report(study_dir) as new:
        text = _write_files(new, found)
        names = sorted(path.name for path in new.iterdir())
    folder = study_dir / "report"
    return Report(folder=folder, files=tuple(folder / name for name in names), text=text, findings=found.findings)


def _read(results: Path, study: str, code_now: Now | None) -> _Study:
    info, wanted = record.read_study(results, study), record.read_wanted(results, study)
    runs = record.read_runs(results, wanted["run_id"], RUN_COLUMNS)
    curves = record.read_curves(results, wanted["run_id"], CURVE_COLUMNS)
    summary = summarise(wanted, runs, curves)
    findings = [*check_sweep(summary, curves), *code_findings(wanted, runs, code_now)]
    found = tuple(sorted(findings, key=lambda finding: finding.level != "problem"))
    return _Study(info, runs, curves, record.read_planned(results, study), summary, found)


def status_line(runs: pd.DataFrame) -> str:
    """Count the wanted runs by status, as one sentence."""
    counts = runs["status"].value_counts()
    parts = [f"{counts.get(status, 0)} {status}" for status in STATUSES]
    return f"{len(runs)} runs wanted: {', '.join(parts)}."


def _write_files(folder: Path, study: _Study) -> str:
    """Write every file of the report; return the text for the terminal."""
    info, summary = study.info, study.summary
    main, sweeps, further = write_paper(folder, info, summary, study.curves)
    by_rate = [
        tables.learning_rate_table(summary, task, model).write(folder, f"rates-{file_stem(task)}-{file_stem(model)}")
        for task, model in summary.runs[GROUP].drop_duplicates().itertuples(index=False, name=None)
    ]
    summary.learning_rates.to_csv(folder / "learning_rates.csv", index=False)
    summary.runs.to_csv(folder / "runs.csv", index=False)
    tried = summary.runs["learning_rate"].unique()
    write_checks_json(folder, info.study, study.findings, tried)
    checks = findings_table(study.findings, tried).write(folder, "checks")
    detail = tables.detail_table(info, summary).write(folder, "cells", _cell_numbers(info, summary))
    shares, pairs, status = importances(summary.runs), comparisons(summary), status_line(summary.runs)
    moved = further_tables.importance_table(summary.runs, shares).write(folder, "importance", shares)
    device_s = ledger(summary.runs, study.runs, study.planned)
    timed_by = sorted(study.planned["timed_by"].unique())
    cost = further_tables.ledger_table(device_s, timed_by).write(folder, "ledger", device_s)
    chart = SweepChart(tables.caption(info, summary.runs, MEASURED))
    sections = [
        Section("", [Paragraph(f"Study `{info.study}`. {status}")]),
        Section("Test accuracy", main),
        Section("Test accuracy against learning rate", [chart, *sweeps, *by_rate]),
        Section("Checks", [checks if study.findings else Paragraph("Nothing found.")]),
        Section("Cells", [detail]),
        Section("How sure", _uncertainty(folder, summary, pairs)),
        Section("Conclusions over the learning rate", _conclusions(folder, summary, pairs)),
        *([Section("Further tables and figures of the paper", further)] if further else []),
        Section("What moved the accuracy", [moved]),
        Section("What this is and is not", [Bullets(LIMITS)]),
        *_failures(summary.runs),
        Section("What it cost", [cost]),
        Section("How it was made", [_provenance(study.runs)]),
    ]
    (folder / "report.md").write_text(report_markdown(info.title, sections), encoding="utf-8")
    page = page_html(info.title, sections, chart_data(summary, best_published(info, summary.cells)))
    (folder / "index.html").write_text(page, encoding="utf-8")
    by_model = [tables.main_table(info, summary, model) for model in summary.runs["model"].unique()]
    shown = main if table_of(info.study) else [*by_rate, *by_model]
    heading = info.study if info.title == info.study else f"{info.title} ({info.study})"
    return "\n".join([heading, status, "", *(table.text() for table in shown), findings_text(study.findings, tried)])


def _uncertainty(folder: Path, summary: StudySummary, pairs: pd.DataFrame) -> list[Block]:
    cells = intervals(summary, np.random.default_rng(INTERVAL_SEED))
    shown = further_tables.interval_table(cells).write(folder, "intervals", cells)
    compared = further_tables.comparison_table(pairs).write(folder, "comparisons", pairs)
    return [shown, compared if len(pairs) else Paragraph("One variant: nothing to compare.")]


def _conclusions(folder: Path, summary: StudySummary, pairs: pd.DataFrame) -> list[Block]:
    """Write orders, reversals and sensitivities; return those that the study has variants for."""
    ordered, turned = orders(summary), reversals(summary)
    measured, bests = sensitivities(summary), expected_bests(summary)
    order = further_tables.order_table(ordered).write(folder, "orders", further_tables.order_texts(ordered))
    opposite = further_tables.reversal_table(turned, pairs)
    opposite.write(folder, "reversals", further_tables.reversal_texts(turned))
    sensitivity = further_tables.sensitivity_table(measured, bests).write(folder, "sensitivity", measured)
    bests.to_csv(folder / "expected_best.csv", index=False)
    return [*([order] if len(pairs) else []), *([opposite] if len(turned) else []), sensitivity]


def _cell_numbers(info: StudyInfo, summary: StudySummary) -> pd.DataFrame:
    """Return `StudySummary.cells` with what its numbers rest on."""
    facts = summary.runs.groupby(CELL, sort=False).agg(
        num_steps=("num_steps", "max"), pretrained_on=("pretrained_on", "first"), data_origin=("data_origin", "first")
    )
    cells = summary.cells.merge(facts.reset_index(), on=CELL)
    cells.insert(0, "study", info.study)
    return cells.assign(best_steps=cells["best_steps"].map(tables.steps_text))


def _failures(runs: pd.DataFrame) -> list[Section]:
    """List failed runs with their reasons; nothing if none failed."""
    failed = runs[runs["status"] == "failed"]
    shown = failed.head(MAX_FAILURES)
    about = f"{len(shown)} of {len(failed)}. `run STUDY --retry-failed` trains them again."
    columns = {name: name for name in (*CELL, "learning_rate", "seed", "run_id", "failure")}
    return [Section("Failed runs", [Table.of(shown, "Why runs failed", about, columns)])] if len(failed) else []


def _provenance(runs: pd.DataFrame) -> Block:
    if runs.empty:
        return Paragraph("No run has ended yet.")
    dirty = " (some with uncommitted changes)" if runs["git_dirty"].fillna(False).any() else ""
    commits = ", ".join(sorted(runs["git_commit"].dropna().unique())) or "unknown"
    versions = sorted({pair for recorded in runs["versions"].unique() for pair in json.loads(recorded).items()})
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
