"""The report of a study: reads its record and writes tables, figures and a page that says what they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.contents import Now
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.report.findings import count_problems
from lr_sweep.analysis.report.folder import new_report
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, problems_first
from lr_sweep.analysis.statistics.checks.sweep import check_sweep, code_findings
from lr_sweep.analysis.statistics.checks.unequal import unequal_tuning
from lr_sweep.analysis.study_files import Study, write_files
from lr_sweep.analysis.study_summary import read_summary

RUN_COLUMNS = (
    *("git_commit", "git_dirty", "versions", "device", "device_s"),
    *("started_at", "finished_at", "lost_steps", "code", "content"),
)
"""What the report reads of runs beside what the summary does."""


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


def write_report(results: Path, study: str, code_now: Now | None = None) -> Report:
    """Write `studies/<study>/report/` from the record, whatever is in it so far.

    The folder is replaced whole, and only once everything is written. The same record and code give the same files.
    `code_now` gives the version that a file of the code has now, to compare runs with; None: they are not compared.
    Raises RecordError if the record is missing, damaged, or of another format.
    """
    record.check_format(results)
    found = _read(results, study, code_now)
    study_dir = Paths(results).study(study)
    with new_report(study_dir) as new:
        text = write_files(new, found)
        names = sorted(path.name for path in new.iterdir())
    folder = study_dir / "report"
    return Report(folder=folder, files=tuple(folder / name for name in names), text=text, findings=found.findings)


def _read(results: Path, study: str, code_now: Now | None) -> Study:
    read = read_summary(results, study, RUN_COLUMNS)
    curves = read.curves[read.curves["run_id"].isin(read.summary.runs["run_id"])]  # without those of fresh runs
    found = [
        *check_sweep(read.summary, curves),
        *unequal_tuning(read.summary),
        *code_findings(read.wanted, read.runs, code_now),
    ]
    return Study(
        info=read.info,
        summary=read.summary,
        curves=curves,
        findings=problems_first(found),
        recorded=read.runs,
        axes=read.axes(),
        fresh=read.fresh,
        decision=read.decision,
    )
