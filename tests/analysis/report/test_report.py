from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.columns import CURVES
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.report import figure_frame
from lr_sweep.analysis.report.folder import LOCK
from lr_sweep.analysis.report.results import results, results_table
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.tests.support.figures import drawn_sweep
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh, summary_of, write

VARIANTS = ["frozen-random", "unfrozen-pretrained"]


def small_record(results: Path) -> SyntheticRecord:
    """Two tasks; every accuracy is the same at each seed but for +-0.01 on test."""
    made = SyntheticRecord(results)
    for seed in (0, 1):
        shift = 0.01 * (2 * seed - 1)
        for rate, accuracy in ((1e-5, 0.5), (1e-4, 0.6), (1e-3, 0.4)):
            made.add(rate, seed, [(300, accuracy, accuracy + shift)])
            if rate < 1e-3:  # the best is the largest that was tried
                made.add(rate, seed, [(300, accuracy + 0.2, accuracy + 0.2 + shift)], variant="unfrozen-pretrained")
            else:
                made.want(rate, seed, variant="unfrozen-pretrained")
            made.want(rate, seed, task="cifar10")
        made.add(1e-3, seed, [], "diverged", 9, 9, task="cifar10", variant="unfrozen-pretrained")
    return made


def points(line: Line2D) -> list[list[float]]:
    return np.asarray(line.get_xydata()).round(6).tolist()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_record(tmp_path_factory.mktemp("results")).write()


@pytest.fixture(scope="module")
def report(small: Path) -> Report:
    return write_report(small, "small")


@pytest.mark.usefixtures("undrawn")
def test_what_was_logged_changes_no_file_of_the_report(tmp_path: Path) -> None:
    results = small_record(tmp_path / "results").write()
    before = {path.name: path.read_bytes() for path in write_report(results, "small").files}
    logged = [{"step": 300, "name": name, "value": 9.0} for name in ("loss", "learning_rate", "test")]
    for path in Paths(results).curves.iterdir():
        write(path, [{**row, "logged": logged} for row in record.read_rows(path, CURVES) or ()], CURVES)
    assert {path.name: path.read_bytes() for path in write_report(results, "small").files} == before


def test_the_results_by_hand(small: Path, report: Report) -> None:
    """The other cells have no value; cifar10 differs from mnist only there."""
    summary = summary_of(small)
    table = results_table(summary, results(summary, {}))
    assert table.header == (
        "task",
        "variant",
        "learning rate",
        "runs",
        "mean",
        "95% interval",
        "difference to the best",
    )
    assert table.rows == (
        ("mnist", "unfrozen-pretrained", "1e-4", "2", "80.0 †‡", "67.3 to 92.7", ""),
        ("mnist", "frozen-random", "1e-4", "2", "60.0", "47.3 to 72.7", "−20.0"),
        ("cifar10", "frozen-random", "–", "0 of 2", "– (6 of 6 missing)", "–", ""),
        ("cifar10", "unfrozen-pretrained", "–", "0 of 2", "– (2 of 2 diverged)", "–", ""),
    )
    assert table.bold == {(0, 4)}
    for part in ("nothing is tested", "†: runs are missing, short or failed", "‡: the chosen learning rate"):
        assert part in table.caption
    assert "§" not in table.caption
    markdown = (report.folder / "report.md").read_text()
    for fact in (
        *("Study small.", "2 seeds", "highest validation accuracy", "Step budgets: 300 (mnist, cifar10)"),
        *("Pretrained on: English web text (gpt2)", "Data: torchvision (mnist"),
    ):
        assert fact in markdown


def test_report_has_its_parts(report: Report) -> None:
    names = {path.name for path in report.files}
    assert names == {
        *("report.md", "index.html", "checks.json", "learning_rates.csv", "runs.csv"),
        *("report.json", "cells.csv", "comparisons.csv", "comparisons-at-rates.csv"),
        *("optima.csv", "orders.csv"),
        *("learning-rates-gpt2.png", "figure3-gpt2.png"),
    }
    assert all(path.stat().st_size > 0 for path in report.files)
    page = (report.folder / "report.md").read_text()
    assert "20 runs wanted: 10 complete, 2 diverged, 0 failed, 8 missing." in page
    for part in ("# A small study", "How to read and check it", "60.0 ± 1.0", "commit abc"):
        assert part in page
    cells = pd.read_csv(report.folder / "cells.csv").set_index(["task", "variant"])
    assert cells.loc[("mnist", "frozen-random"), "test_mean"] == pytest.approx(0.6)
    assert "60.0 ± 1.0" in report.text
    for text in (report.text, page):
        assert "problem: mnist unfrozen-pretrained: 2 of 6 runs missing: 2 of 2 at 1e-3" in text
    assert "| mnist | 1e-5 | unfrozen-pretrained > frozen-random |  | as tuned |" in page


def test_the_same_record_gives_the_same_files(small: Path, report: Report) -> None:
    before = {path.name: path.read_bytes() for path in report.files}
    (report.folder / "stale.csv").write_text("left by an older version")
    again = write_report(small, "small")
    assert {path.name: path.read_bytes() for path in again.files} == before
    assert {path.name for path in report.folder.iterdir()} == set(before)
    assert [path.name for path in report.folder.parent.iterdir() if path.name.startswith(".")] == [LOCK]


@pytest.mark.usefixtures("undrawn")
def test_a_report_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(300, 0.5, 0.5)])
    made.add(1e-2, 0, [(300, 0.5, 0.5)])
    page = write_report(made.write(), "small").folder / "report.md"
    before = page.read_bytes()

    def fail(figure: Figure, stem: Path) -> tuple[Path, Path]:
        raise OSError("disk full")

    monkeypatch.setattr(figure_frame, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path, "small")
    assert page.read_bytes() == before
    assert sorted(path.name for path in page.parent.parent.iterdir()) == [
        LOCK,
        "report",
        "study.json",
        "wanted.parquet",
    ]


@pytest.mark.usefixtures("undrawn")
def test_a_report_on_an_empty_record_says_what_is_missing(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in (1e-4, 1e-3, 1e-2):
        made.want(rate, 0)
    report = write_report(made.write(), "small")
    assert "3 runs wanted: 0 complete, 0 diverged, 0 failed, 3 missing." in report.text
    assert "– (3 of 3 missing)" in report.text
    (found,) = report.findings
    assert found.message == "3 of 3 runs missing: 1 of 1 at 1e-4, 1 of 1 at 1e-3, 1 of 1 at 1e-2"
    assert "No run has ended yet" in (report.folder / "report.md").read_text()


@pytest.mark.usefixtures("undrawn")
def test_failed_runs_are_listed_with_their_reason(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [], status="failed", trained=0, failure="out of memory | on\nnode 3")
    page = (write_report(made.write(), "small").folder / "report.md").read_text()
    assert r"out of memory \| on node 3 |" in page


def test_figure_shows_what_was_chosen_and_what_diverged(tmp_path: Path) -> None:
    made = small_record(tmp_path)
    for seed in (0, 1):
        made.add(1e-2, seed, [], "diverged", 9, 9, variant="unfrozen-pretrained")
    summary = summary_of(made.write())
    figure = drawn_sweep(summary)
    assert [panel.get_title() for panel in figure.axes] == ["mnist", "cifar10"]
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [*VARIANTS, "chosen on validation", "all seeds diverged"]
    lines = figure.axes[0].lines
    rings = [points(line) for line in lines if line.get_fillstyle() == "none"]
    assert rings == [[[1e-4, 60.0]], [[1e-4, 80.0]]]
    shown = summary.learning_rates[summary.learning_rates["task"].eq("mnist")].dropna(subset=["test_sem"])
    bars = [segment for bars in figure.axes[0].collections for segment in bars.get_segments()]  # type: ignore[attr-defined]
    assert [(low[1] + high[1]) / 200 for low, high in bars] == pytest.approx(shown["test_mean"].tolist())
    assert [(high[1] - low[1]) / 200 for low, high in bars] == pytest.approx(shown["test_sem"].tolist())
    (cross,) = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert points(cross)[0][0] == 1e-2
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    for path in (first, second):
        figure_frame.save(figure, path)
    assert first.stat().st_size > 20_000
    assert first.read_bytes() == second.read_bytes()


def test_the_figure_shows_single_seeds_and_the_mean_of_fresh_ones(tmp_path: Path) -> None:
    """The mean of 0.70, 0.72 and 0.74 is 0.72; by Student's t of 2 its interval is 72 -+ 4.303 x 1.155."""
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-3, seed, [(300, 0.6, 0.6)])
    add_fresh(made, 1e-3, "frozen-random", [0.70, 0.72, 0.74])
    summary = summary_of(made.write(fresh={"max": 3}))
    (panel,) = drawn_sweep(summary).axes
    drawn = [points(line) for line in panel.lines]
    assert [[1e-3, 70.0], [1e-3, 72.0], [1e-3, 74.0]] in drawn
    assert [[1e-3, 72.0]] in drawn
    assert [[1e-3, pytest.approx(67.03, abs=0.01)], [1e-3, pytest.approx(76.97, abs=0.01)]] in drawn
    assert panel.get_ylim()[1] > 77  # all of it is seen, far above the mean of the seeds that chose
