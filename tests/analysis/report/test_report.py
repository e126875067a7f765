from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lr_sweep.analysis.paper import paper
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.report import figure_frame, figures, tables
from lr_sweep.analysis.report.folder import LOCK
from lr_sweep.analysis.report.page import chart_data
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh, orders_in, summary_of

VARIANTS = ["frozen-random", "unfrozen-pretrained"]
PAPER_TABLES = ("table1-gpt2", "table3-gpt2", "table5")
FURTHER_TABLES = (
    *("cells", "checks", "comparisons", "intervals", "ledger", "optima", "orders"),
    *("rates-mnist-gpt2", "rates-cifar10-gpt2", "ranking-mnist-gpt2", "ranking-cifar10-gpt2"),
)


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


def test_main_table_by_hand_and_what_it_rests_on(small: Path) -> None:
    table = tables.main_table(record.read_study(small, "small"), summary_of(small), "gpt2")
    assert table.header == ("variant", "mnist", "cifar10")
    assert table.rows == (
        ("frozen-random", "60.0 ± 1.0", "– (6 of 6 missing)"),
        ("unfrozen-pretrained", "80.0 ± 1.0 †‡", "– (2 of 2 diverged)"),
    )
    assert table.bold == {(1, 1)}
    assert "| unfrozen-pretrained | **80.0 ± 1.0 †‡** | – (2 of 2 diverged) |" in table.markdown()
    lines = table.text().splitlines()
    assert lines[1].index("cifar10") == lines[3].index("– (6 of")
    for fact in (
        *("Study small.", "standard error of the mean (SEM)", "2 seeds", "highest validation accuracy"),
        *("Step budgets: 300 (mnist, cifar10)", "Pretrained on: English web text (gpt2)", "Data: torchvision (mnist"),
        *("†: runs are missing, short or failed", "‡: the chosen learning rate", "–: no value"),
    ):
        assert fact in table.full_caption
    assert "§" not in table.full_caption


def test_the_best_steps_of_many_seeds_are_a_range(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for seed in range(11):
        made.add(1e-4, seed, [(100 + seed, 0.6, 0.6), (300, 0.5, 0.5)])
    summary = summary_of(made.write())
    (row,) = tables.detail_table(record.read_study(tmp_path, "small"), summary).rows
    assert row[4] == "100 to 110"


def test_report_has_its_parts(report: Report) -> None:
    names = {path.name for path in report.files}
    assert names == {
        *("report.md", "index.html", "checks.json", "learning_rates.csv", "runs.csv"),
        *("expected_best.csv", "comparisons-at-rates.csv"),
        # No frozen-pretrained variant: no table 2. One model: no table 4. No cifar10-lra: no figure 1.
        *(f"{table}.{form}" for table in (*PAPER_TABLES, *FURTHER_TABLES) for form in ("md", "csv")),
        *(f"{figure}-gpt2.{form}" for figure in ("learning-rates", "figure2-left") for form in ("png", "svg")),
        *("tuning.png", "tuning.svg"),
    }
    assert all(path.stat().st_size > 0 for path in report.files)
    page = (report.folder / "report.md").read_text()
    assert "20 runs wanted: 10 complete, 2 diverged, 0 failed, 8 missing." in page
    for part in ("# A small study", "What this is and is not", "![Figure 3. Test accuracy", "60.0 ± 1.0", "commit abc"):
        assert part in page
    cells = pd.read_csv(report.folder / "cells.csv").set_index(["task", "variant"])
    assert cells.loc[("mnist", "frozen-random"), "test_mean"] == pytest.approx(0.6)
    assert cells["study"].unique().tolist() == ["small"]
    assert "60.0 ± 1.0" in report.text
    assert "problem: mnist gpt2 unfrozen-pretrained: 2 of 6 runs missing: 2 of 2 at 1e-3" in report.text
    assert "| problem | mnist | gpt2 | unfrozen-pretrained | 2 of 6 runs missing: 2 of 2 at 1e-3 |" in page
    assert "| mnist | gpt2 | 1e-5 | unfrozen-pretrained > frozen-random |  | as tuned |" in page


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
    files = {name: (report.folder / f"{name}.md").read_text() for name in ("report", "ledger")}
    assert "No run has ended yet" in files["report"]
    assert "| mnist | gpt2 | frozen-random | 0/3 | 0 | 0 | 0 |" in files["ledger"]


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
    figure = figures.learning_rate_figure(summary.learning_rates, summary.cells, "Title", "A caption.", {})
    assert [panel.get_title() for panel in figure.axes] == ["mnist", "cifar10"]
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [*VARIANTS, "chosen on validation", "all seeds diverged", "Lu et al. 2021 (1e-3)"]
    bars, ends, rings = figure.axes[0].collections
    assert rings.get_offsets().tolist() == [[1e-4, 60.0], [1e-4, 80.0]]  # type: ignore[union-attr]
    shown = summary.learning_rates[summary.learning_rates["task"].eq("mnist")].dropna(subset=["test_sem"])
    shown = shown[shown["test_sem"] > 0]
    drawn = [segment.tolist() for segment in bars.get_segments()]  # type: ignore[attr-defined]
    assert drawn
    assert [(low[1] + high[1]) / 200 for low, high in drawn] == pytest.approx(shown["test_mean"].tolist())
    assert [(high[1] - low[1]) / 200 for low, high in drawn] == pytest.approx(shown["test_sem"].tolist())
    assert len(ends.get_offsets()) == 2 * len(drawn)  # type: ignore[arg-type]
    (cross,) = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert points(cross)[0][0] == 1e-2
    first, second = figure_frame.save(figure, tmp_path / "a"), figure_frame.save(figure, tmp_path / "b")
    assert first[0].stat().st_size > 20_000
    assert first[1].read_bytes() == second[1].read_bytes()
    assert b"<dc:date>" not in first[1].read_bytes()


def test_the_figure_shows_single_seeds_and_the_mean_of_fresh_ones(tmp_path: Path) -> None:
    """The mean of 0.70, 0.72 and 0.74 is 0.72; by Student's t of 2 its interval is 72 -+ 4.303 x 1.155."""
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-3, seed, [(300, 0.6, 0.6)])
    add_fresh(made, 1e-3, "frozen-random", [0.70, 0.72, 0.74])
    summary = summary_of(made.write(fresh={"max": 3}))
    info = record.read_study(tmp_path, "small")
    (panel,) = paper.sweep_figure(info, summary, optima(summary), "gpt2").axes
    seeds = next(each for each in panel.collections if len(each.get_offsets()) == 3)  # type: ignore[arg-type]
    assert np.asarray(seeds.get_offsets())[:, 1].tolist() == pytest.approx([70, 72, 74])
    drawn = [points(line) for line in panel.lines]
    assert [[1e-3, 72.0]] in drawn
    assert [[1e-3, pytest.approx(67.03, abs=0.01)], [1e-3, pytest.approx(76.97, abs=0.01)]] in drawn


@pytest.mark.parametrize(("rates", "drawn"), [((1e-6, 1e-5), False), ((1e-5, 5e-4), True), ((5e-3, 1e-2), False)])
def test_the_learning_rate_of_lu_et_al_is_drawn_only_near_the_sweep(
    tmp_path: Path, rates: tuple[float, ...], drawn: bool
) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in rates:
        made.add(rate, 0, [(300, 0.5, 0.5)])
    summary = summary_of(made.write())
    figure = figures.learning_rate_figure(summary.learning_rates, summary.cells, "Title", "A caption.", {})
    dashed = [line for line in figure.axes[0].lines if line.get_color() == "#B00020"]
    assert bool(dashed) is drawn
    assert bool(chart_data(summary, {}, orders_in(summary))["panels"][0]["fixed"]) is drawn


@pytest.mark.usefixtures("undrawn")
def test_figure_1_is_of_the_models_that_have_its_task(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(300, 0.5, 0.5)], task="cifar10-lra")
    made.add(1e-3, 0, [(300, 0.5, 0.5)], model="tiny")
    names = {path.name for path in write_report(made.write(), "small").files}
    assert {"figure1-gpt2.png", "learning-rates-tiny.png"} <= names
    assert "figure1-tiny.png" not in names
