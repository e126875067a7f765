"""The report: reads the record of one study and writes tables, figures and a page that says what they rest on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis import record, tables
from analysis.aggregate import STATUSES, Summary, summarise
from analysis.checks import check_sweep
from analysis.code_findings import code_findings
from analysis.code_versions import Now
from analysis.comparisons import comparisons, write_uncertainty
from analysis.findings import Finding, findings_text, sorted_findings, write_findings
from analysis.importance import importances
from analysis.ledger import write_ledger
from analysis.orders import write_conclusions
from analysis.page import write_page
from analysis.page_figure import chart_data
from analysis.paper import MEASURED, write_paper
from analysis.record import StudyInfo
from analysis.report_folder import new_report
from analysis.sections import Block, Bullets, Paragraph, Section, SweepChart, report_markdown
from analysis.selection import CELL, RULE
from analysis.sensitivity import write_sensitivity
from analysis.table_formats import file_stem, write_tables

LIMITS = (
    f"{RULE} Learning rates where a seed has no value are eligible only if none has them all. Test accuracy selects "
    "nothing.",
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


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `write_report` wrote."""

    folder: Path
    files: tuple[Path, ...]
    text: str
    """For the terminal: status line, tables, findings."""
    findings: tuple[Finding, ...]
    """What the checks found."""

    @property
    def page(self) -> Path:
        """The file to open in a browser."""
        return self.folder / "index.html"


def write_report(results: Path, study: str, code_now: Now | None = None) -> Report:
    """Write `studies/<study>/report/` from the record, whatever is in it so far.

    The folder is replaced whole, and only once everything is written. The same record and code give the same files.

    Args:
        results: the results directory.
        study: name of a recorded study.
        code_now: the version that a file of the code has now, to compare runs with; None: they are not compared.

    Raises:
        RecordError: the record is missing, damaged, or of another format.
    """
    record.check_format(results)
    info = record.read_study(results, study)
    wanted = record.read_wanted(results, study)
    runs = record.read_runs(results, wanted["run_id"], RUN_COLUMNS)
    curves = record.read_curves(results, wanted["run_id"], CURVE_COLUMNS)
    summary = summarise(wanted, runs, curves)
    study_dir = record.study_dir(results, study)
    with new_report(study_dir) as new:
        findings = sorted_findings([*check_sweep(summary, curves), *code_findings(wanted, runs, code_now)])
        planned = record.read_planned(results, study)
        text = _write_files(new, info, wanted, runs, summary, curves, findings, planned)
        names = sorted(path.name for path in new.iterdir())
    folder = study_dir / "report"
    return Report(folder=folder, files=tuple(folder / name for name in names), text=text, findings=tuple(findings))


def status_line(runs: pd.DataFrame) -> str:
    """Count the wanted runs by status, as one sentence.

    Args:
        runs: as `Summary.runs`.
    """
    counts = runs["status"].value_counts()
    parts = [f"{counts.get(status, 0)} {status}" for status in STATUSES]
    return f"{len(runs)} runs wanted: {', '.join(parts)}."


def _write_files(
    folder: Path,
    info: StudyInfo,
    wanted: pd.DataFrame,
    runs: pd.DataFrame,
    summary: Summary,
    curves: pd.DataFrame,
    findings: Sequence[Finding],
    planned: pd.DataFrame,
) -> str:
    """Write every file of the report; return the text for the terminal."""
    models = list(wanted["model"].unique())
    main = [tables.main_table(info, wanted, summary.cells, model) for model in models]
    by_rate = {
        f"rates-{file_stem(task)}-{file_stem(model)}": tables.learning_rate_table(
            wanted, summary.learning_rates, summary.cells, task, model
        )
        for task, model in wanted[["task", "model"]].drop_duplicates().itertuples(index=False)
    }
    shares = importances(summary.runs)
    detail, moved = tables.detail_table(info, wanted, summary.cells), tables.importance_table(wanted, shares)
    write_tables(folder, {"cells": detail}, _cell_numbers(info, wanted, summary))
    write_tables(folder, {"importance": moved}, shares)
    write_tables(folder, by_rate)
    summary.learning_rates.to_csv(folder / "learning_rates.csv", index=False)
    summary.runs.to_csv(folder / "runs.csv", index=False)
    paper = write_paper(folder, info, wanted, summary, curves)
    pairs = comparisons(summary)
    conclusions = [*write_conclusions(folder, summary, pairs), write_sensitivity(folder, summary)]
    tried = wanted["learning_rate"].unique()
    checks = write_findings(folder, info, findings, tried)
    status = status_line(summary.runs)
    chart = SweepChart(tables.caption(info, wanted, MEASURED))
    sections = [
        Section("", [Paragraph(f"Study `{info.study}`. {status}")]),
        Section("Test accuracy", paper.tables_of(1)),
        Section("Test accuracy against learning rate", [chart, *paper.sweep_figures, *by_rate.values()]),
        Section("Checks", [checks if findings else Paragraph("Nothing found.")]),
        Section("Cells", [detail]),
        Section("How sure", write_uncertainty(folder, summary, pairs)),
        Section("Conclusions over the learning rate", conclusions),
        Section("Further tables and figures of the paper", paper.further()),
        Section("What moved the accuracy", [moved]),
        Section("What this is and is not", [Bullets(LIMITS)]),
        *_failures(summary.runs),
        Section("What it cost", [write_ledger(folder, summary.runs, runs, planned)]),
        Section("How it was made", [_provenance(runs)]),
    ]
    (folder / "report.md").write_text(report_markdown(info.title, sections), encoding="utf-8")
    write_page(folder, info.title, sections, chart_data(summary))
    return "\n".join(
        [
            info.study if info.title == info.study else f"{info.title} ({info.study})",
            status,
            "",
            *(table.text() for table in [*by_rate.values(), *main]),
            findings_text(findings, tried),
        ]
    )


def _cell_numbers(info: StudyInfo, wanted: pd.DataFrame, summary: Summary) -> pd.DataFrame:
    """Return `Summary.cells` with what its numbers rest on; accuracies are fractions."""
    facts = wanted.groupby(CELL, sort=False).agg(
        num_steps=("num_steps", "max"), pretrained_on=("pretrained_on", "first"), data_origin=("data_origin", "first")
    )
    cells = summary.cells.merge(facts.reset_index(), on=CELL)
    cells.insert(0, "study", info.study)
    steps = cells["best_steps"].map(lambda found: " ".join(map(str, found)) if isinstance(found, tuple) else "")
    return cells.assign(best_steps=steps)


def _failures(runs: pd.DataFrame) -> list[Section]:
    """List failed runs with their reasons; nothing if none failed."""
    failed = runs[runs["status"] == "failed"]
    if failed.empty:
        return []
    names = failed[[*CELL, "learning_rate", "seed", "run_id", "failure"]].head(MAX_FAILURES).astype(str)
    listed = tables.Table(
        title="Why runs failed",
        caption=f"{len(names)} of {len(failed)}. `python -m sweep run STUDY --retry-failed` trains them again.",
        header=tuple(names.columns),
        rows=tuple(names.itertuples(index=False, name=None)),
    )
    return [Section("Failed runs", [listed])]


def _provenance(runs: pd.DataFrame) -> Block:
    """Say what code and devices the runs come from."""
    if runs.empty:
        return Paragraph("No run has ended yet.")
    dirty = " (some with uncommitted changes)" if runs["git_dirty"].fillna(False).any() else ""
    commits = ", ".join(sorted(runs["git_commit"].dropna().unique())) or "unknown"
    packages: dict[str, set[str]] = {}
    for versions in runs["versions"].unique():
        for package, version in json.loads(versions).items():
            packages.setdefault(package, set()).add(version)
    listed = [f"{name} {' and '.join(sorted(found))}" for name, found in sorted(packages.items())]
    began, ended = runs["started_at"].min(), runs["finished_at"].max()
    return Bullets(
        [
            f"Code: commit {commits}{dirty}.",
            f"Devices: {', '.join(sorted(runs['device'].unique()))}; {runs['device_s'].sum() / 3600:.2f} device hours.",
            f"Trained from {began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} UTC.",
            f"Versions: {', '.join(listed)}.",
        ]
    )
