"""The check `inexact` on synthetic records, and the report's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.tests.support.records import SyntheticRecord

pytestmark = pytest.mark.usefixtures("undrawn")
INEXACT: dict[str, Any] = {"resumed": "inexactly", "not_saved": "average, scheduler"}
TESTS = (0.59, 0.6, 0.61)
"""Test values of the seeds of variant `a`; `b` is 0.2 below."""


def reported(folder: Path, changed: dict[tuple[str, float, int], dict[str, Any]]) -> Report:
    """Report two variants, best at 1e-3, of two rates and three seeds; `changed`: columns of runs."""
    made = SyntheticRecord(folder)
    for variant, below in (("a", 0.0), ("b", 0.2)):
        for rate, worse in ((1e-3, 0.0), (1e-2, 0.1)):
            for seed, value in enumerate(TESTS):
                made.want(rate, seed, variant=variant)
                number = value - below - worse
                curve = [(300, number, number)]
                made.end(made.wanted[-1], curve, "complete", 300, **changed.get((variant, rate, seed), {}))
    made.write()
    return write_report(folder, "small")


def inexact(report: Report) -> list[CheckFinding]:
    return [finding for finding in report.findings if finding.check == "inexact"]


def test_an_inexact_run_at_the_chosen_rate_is_a_problem(tmp_path: Path) -> None:
    more = {"resumed": "inexactly", "not_saved": "average"}
    report = reported(tmp_path, {("a", 1e-3, 0): INEXACT, ("b", 1e-2, 1): more, ("b", 1e-2, 2): {"resumed": "exactly"}})
    found = [(each.variant, each.level, each.message) for each in inexact(report)]
    assert found == [
        ("a", "problem", "1 of 6 runs were interrupted and resumed inexactly (not saved: average, scheduler)"),
        ("b", "note", "1 of 6 runs were interrupted and resumed inexactly (not saved: average)"),
    ]
    assert inexact(report)[0].fix.startswith("`run --restart-inexact` trains them anew")
    line = "2 of 12 runs were interrupted and resumed inexactly (not saved: average, scheduler). Checks: "
    assert line in report.text
    assert line in (report.folder / "report.md").read_text()


def test_an_unchecked_run_is_a_note(tmp_path: Path) -> None:
    report = reported(tmp_path, {("a", 1e-3, seed): {"resumed": "unchecked"} for seed in (0, 1)})
    (found,) = inexact(report)
    text = "runs were interrupted, and whether they resumed exactly was not checked"
    assert (found.level, found.message, found.fix) == ("note", f"2 of 6 {text}", "")
    assert f"2 of 12 {text}. " in report.text


@pytest.mark.parametrize("resumed", ["never", "exactly", None])
def test_other_runs_are_not_named(tmp_path: Path, resumed: str | None) -> None:
    """Rows of earlier versions have none."""
    report = reported(tmp_path, {("a", 1e-3, 0): {"resumed": resumed}})
    assert (inexact(report), "interrupted" in report.text) == ([], False)
