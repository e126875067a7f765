"""Findings that say the same of several cells are one line for readers, and all there for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.report.findings import cell_names, folded
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord

pytestmark = pytest.mark.usefixtures("undrawn")


def finding(task: str, variant: str, message: str = "same", model: str = "m") -> CheckFinding:
    return CheckFinding(check="gap", level="note", task=task, model=model, variant=variant, message=message, fix="")


def cells(tasks: str, models: str, variants: str) -> pd.DataFrame:
    rows = [(t, m, v) for t in tasks for m in models for v in variants]
    return pd.DataFrame(rows, columns=["task", "model", "variant"])


def where(findings: list[CheckFinding], of: pd.DataFrame) -> list[str]:
    return list(folded(findings, cell_names(of)).values())


def test_cells_with_the_same_finding_are_named_together() -> None:
    of = cells("t", "m", "abcd")
    assert where([finding("t", each) for each in "abcd"], of) == ["all variants"]
    assert where([finding("t", each) for each in "abd"], of) == ["a, b, d"]
    assert where([finding("t", "a"), finding("t", "b", "another"), finding("t", "c")], of) == ["a, c", "b"]
    of = cells("st", "mn", "a")
    assert where([finding("s", "a"), finding("t", "a", model="n")], of) == ["s m a, t n a"]
    of = cells("s", "m", "abcdefghijk")
    assert where([finding("s", each) for each in "abcdefghij"], of) == ["a, b, c, d, e, f, g, h and 2 more"]


def test_a_report_says_it_once_and_its_json_has_all(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for variant in ("frozen-random", "unfrozen-random"):
        for rate, accuracy in {1e-4: 0.5, 1e-3: 0.6, 1e-2: 0.5}.items():
            made.add(rate, 0, [(300, accuracy, accuracy + 0.01 * variant.startswith("un"))], variant=variant)
        made.add(1e-1, 0, [], "diverged", 10, 10, variant=variant)
    report = write_report(made.write(), "small")
    assert "Checks: 1 note." in report.text
    assert report.text.splitlines()[-1] == "  note: all variants: 1 of 4 runs diverged: 1 of 1 at 1e-1"
    page = (report.folder / "report.md").read_text()
    assert page.count("1 of 4 runs diverged: 1 of 1") == 1
    assert "- note: all variants: 1 of 4 runs diverged" in page
    listed = json.loads((report.folder / "checks.json").read_text())["findings"]
    assert [each["variant"] for each in listed] == ["frozen-random", "unfrozen-random"]


def by_seed(made: SyntheticRecord, values: dict[float, tuple[float, float]]) -> list[CheckFinding]:
    for rate, accuracies in values.items():
        for seed, accuracy in enumerate(accuracies):
            made.add(rate, seed, [(300, accuracy, accuracy)])
    report = write_report(made.write(), "small")
    assert "‡" not in (report.folder / "report.md").read_text()
    return list(report.findings)


def test_a_tie_over_all_rates_has_no_edge(tmp_path: Path) -> None:
    """Each seed has one value whatever the rate, as where the rate does not reach the optimizer."""
    rates = (1e-4, 1e-3, 1e-2)
    (flat,) = by_seed(SyntheticRecord(tmp_path / "a"), dict.fromkeys(rates, (0.6, 0.5)))
    assert (flat.check, flat.level) == ("flat", "problem")
    assert "all learning rates have the same mean" in flat.message
    one_value = dict.fromkeys(rates, (0.6, 0.6))  # at all six evaluations
    (stuck,) = by_seed(SyntheticRecord(tmp_path / "c"), one_value)
    assert (stuck.check, stuck.level) == ("stuck", "problem")


def test_a_tie_with_a_rate_inside_is_judged_by_that_rate(tmp_path: Path) -> None:
    """1e-4, the smallest, and 1e-3 tie. Beyond all diverge, so 1e-3 lies inside the rates that were tried."""
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-2, seed, [], "diverged", 9, 9)
    found = by_seed(made, {1e-4: (0.6, 0.5), 3e-4: (0.4, 0.5), 1e-3: (0.5, 0.6)})
    assert [(each.check, each.level) for each in found] == [("diverged", "note")]
