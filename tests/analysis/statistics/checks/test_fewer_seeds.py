"""Means over fewer seeds than others: marked wherever they are written, named by a check and by the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import write_judged
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.analysis.study_summary import Study
from lr_sweep.tests.support.figures import drawn_sweep
from lr_sweep.tests.support.judged import rows_of, study_of
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")
SGD = {1e-3: (0.60, 0.60, 0.60), 1e-2: (0.79, 0.80, 0.81), 1e-1: (0.93,), 1.0: (0.50, 0.50, 0.50)}
ADAM = {1e-3: (0.60, 0.60, 0.60), 1e-2: (0.89, 0.90, 0.91), 1e-1: (0.70, 0.70, 0.70), 1.0: (0.50, 0.50, 0.50)}
BETTER = (
    "seeds with a value: 1 of 3 at 1e-1, so it cannot be chosen; validation is better there than at the chosen 1e-2"
)


def table(folder: Path, sgd: Mapping[float, tuple[float, ...]] = SGD) -> Study:
    """A table that has no rows of runs that crashed."""
    rows = []
    for method, rates in (("sgd", sgd), ("adam", ADAM)):
        rows += [f"{method},{rate},{i},{x},{x}" for rate, found in rates.items() for i, x in enumerate(found)]
    return study_of(folder, rows_of("method,lr,seed,val_acc,test_acc", rows), name="runs.csv")


def judged(folder: Path, sgd: Mapping[float, tuple[float, ...]] = SGD) -> Report:
    return write_judged(table(folder, sgd), folder / "judged")


def recorded(folder: Path, status: str = "failed") -> SyntheticRecord:
    """The same runs; two seeds of sgd at 1e-1 ended without a value."""
    made = SyntheticRecord(folder)
    for variant, rates in (("sgd", SGD), ("adam", ADAM)):
        for rate, values in rates.items():
            for seed in range(3):
                if seed < len(values):
                    made.add(rate, seed, [(300, values[seed], values[seed])], variant=variant)
                else:
                    made.add(rate, seed, [], status, 9, 9 if status == "diverged" else None, "lost", variant=variant)
    return made


def test_seeds_that_a_table_lacks_do_not_vanish(tmp_path: Path) -> None:
    """sgd at 1e-1 has 93% by one seed; adam, at 90%, leads sgd at 1e-2, 80%, by 10 points."""
    report = judged(tmp_path)
    (problem,) = [each for each in report.findings if each.check == "fewer-seeds"]
    assert (problem.level, problem.variant) == ("problem", "sgd")
    assert problem.message == f"{BETTER} by 13.0 points"
    flat = " ".join(report.text.split())
    assert "adam beats sgd by 10.0 points" in flat
    assert "93.0 (1 of 3 seeds)" in flat
    assert "22 runs in the table: all complete. Not in the table: 2 runs with seeds" in flat
    page = (report.folder / "report.md").read_text()
    assert "| sgd | 60.0 ± 0.0 | 80.0 ± 0.6 * | 93.0 (1 of 3 seeds) | 50.0 ± 0.0 |" in page
    assert "| 1e-1 | sgd > adam | sgd: 2 without a value | another winner, not significant |" in page


@pytest.mark.parametrize("status", ["failed", "missing"])
def test_in_a_record_as_in_a_table(tmp_path: Path, status: str) -> None:
    made = recorded(tmp_path)
    if status == "missing":
        for each in made.wanted:
            path = Paths(made.results).run(each["run_id"])
            if "failed" in record.read_runs(made.results, [each["run_id"]])["status"].tolist():
                path.unlink()
    report = write_report(made.write(), "small")
    found = {each.check: each for each in report.findings if each.variant == "sgd"}
    assert found["missing"].message == f"2 of 12 runs {status}: 2 of 3 at 1e-1"
    assert found["fewer-seeds"].message == f"{BETTER} by 13.0 points"
    data = (report.folder / "index.html").read_text()
    points = json.loads(data.partition('id="data">')[2].partition("</script>")[0])["panels"][0]["lines"][0]["points"]
    assert [point["few"] for point in points] == ["", "", " (1 of 3 seeds)", ""]
    assert [point["kind"] for point in points] == ["full", "full", "partial", "full"]


def test_a_better_rate_where_seeds_diverged_is_a_note(tmp_path: Path) -> None:
    summary = summary_of(recorded(tmp_path, "diverged").write())
    found = {each.check: each for each in check_sweep(summary, record.read_curves(tmp_path)) if each.variant == "sgd"}
    assert found.keys() == {"fewer-seeds", "diverged"}
    assert found["fewer-seeds"].level == "note"
    assert found["fewer-seeds"].message == f"{BETTER} by 13.0 points; seeds diverged there"


def test_a_worse_rate_with_fewer_seeds_is_marked_and_no_finding(tmp_path: Path) -> None:
    report = judged(tmp_path, SGD | {1e-1: (0.70,)})
    assert "fewer-seeds" not in {each.check for each in report.findings}
    assert "70.0 (1 of 3 seeds)" in report.text


def test_rates_beside_winners_have_one_seed_by_design(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate, values in {1e-3: (0.6,), 1e-2: (0.8, 0.6), 1e-1: (0.75,)}.items():
        for seed, value in enumerate(values):
            made.add(rate, seed, [(300, value, value)])
    summary = replace(summary_of(made.write()), winners=1)
    found = {each.check for each in check_sweep(summary, record.read_curves(tmp_path))}
    assert found == set()


def test_a_cell_with_fewer_seeds_than_another_is_marked(tmp_path: Path) -> None:
    report = judged(tmp_path, {rate: values[:1] for rate, values in SGD.items()} | {1e-1: (0.7,)})
    page = (report.folder / "report.md").read_text()
    assert "3 seeds unless marked" in page
    assert "| sgd | 60.0 (1 seed) | 79.0 (1 seed) * | 70.0 (1 seed) | 50.0 (1 seed) |" in page


def test_a_test_value_that_is_nan_at_the_chosen_rate(tmp_path: Path) -> None:
    """Test of 0.62, nan and 0.90: 76.0 ± 14.0, of two seeds."""
    rows = "a,.3,0,.5,.48 a,.3,1,.51,.47 a,.3,2,.52,.49 a,.03,0,.7,.62 a,.03,1,.71,nan a,.03,2,.72,.9"
    rows += " a,.003,0,.6,.58 a,.003,1,.61,.57 a,.003,2,.62,.59"
    report = write_judged(study_of(tmp_path, rows_of("variant,lr,seed,val_acc,test_acc", rows)), tmp_path / "judged")
    (problem,) = [each for each in report.findings if each.check == "fewer-seeds"]
    assert problem.level == "problem"
    assert problem.message == "test accuracy at the chosen 3e-2 has a value for 2 of 3 seeds"
    assert "9 runs in the table: all complete" in report.text
    page = (report.folder / "report.md").read_text()
    assert "76.0 ± 14.0 (2 of 3 seeds)" in page
    assert "−101.9 to 253.9" in page  # ± 12.706 x 14.0


def test_figures_draw_fewer_seeds_differently(tmp_path: Path) -> None:
    summary = table(tmp_path, {rate: values[:1] for rate, values in SGD.items()}).summary
    curves = drawn_sweep(summary)
    assert "fewer seeds" in [text.get_text() for text in curves.legends[0].get_texts()]
