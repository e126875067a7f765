"""The tables of Lu et al. 2021: as printed, and in reports on made-up runs, entries worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.paper.entries import steps_to_converge, train_accuracies
from lr_sweep.analysis.paper.paper import lu_table
from lr_sweep.analysis.paper.published import (
    PARAMETERS,
    SPEEDUP,
    STEPS,
    TABLES,
    TEST,
    TRAIN,
    TRAIN_MINUS_TEST,
    Entry,
    entries,
    table_of,
)
from lr_sweep.analysis.record.read import read_curves, read_study
from lr_sweep.analysis.report.blocks import Table
from lr_sweep.analysis.study_report import write_report
from lr_sweep.datasets import TASKS
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")
FPT = {"model": "gpt2", "variant": "frozen-pretrained"}
RANDOM = {"model": "gpt2", "variant": "frozen-random"}


def by_labels(table: int) -> dict[tuple[str, str], Entry]:
    return {(entry.row, entry.column): entry for entry in entries(table)}


def test_entries_as_printed() -> None:
    assert by_labels(1)["FPT", "CIFAR-10"] == Entry(
        1, "cifar10", "gpt2-large", "frozen-pretrained", TEST, "72.1", "", "FPT", "CIFAR-10"
    )
    assert by_labels(6)["FPT", "XOR"].value == "500"
    assert by_labels(8)["Large, 36 layers", "Trained Params"].value == "300000"
    assert by_labels(12)["24", "Random"].value == "17"
    assert ("24", "Pretrained") not in by_labels(12)
    assert by_labels(14)["CIFAR-10", "+ Finetuning Last Attn Layer"].value == "80.0"
    assert by_labels(17)["ListOps", "T5"].value == "15.4"


@pytest.mark.parametrize("table", TABLES)
def test_tables_have_an_entry_for_each_label_once(table: int) -> None:
    found = entries(table)
    assert found
    assert len(by_labels(table)) == len(found)
    for entry in found:
        assert entry.task in TASKS
        assert entry.metric in (TEST, TRAIN, TRAIN_MINUS_TEST, STEPS, SPEEDUP, PARAMETERS)
        float(entry.value)


def test_a_study_s_name_says_which_table_it_is_of() -> None:
    names = ("lu2021-table21-swept", "lu2021-table3-mine", "lu2021-table22", "mine")
    assert [table_of(name) for name in names] == [21, 3, None, None]


def test_computed_entries_follow_from_the_printed_ones() -> None:
    accuracies = by_labels(7)
    for row in {row for row, _ in accuracies}:
        test, train, gap = (
            float(accuracies[row, column].value) for column in ("Test Accuracy", "Train Accuracy", "Train less Test")
        )
        assert gap == pytest.approx(train - test)
    steps = by_labels(6)
    for (row, column), entry in steps.items():
        if row == "Speedup":
            assert float(entry.value) == float(steps["Random", column].value) / float(steps["FPT", column].value)


def written_table(made: SyntheticRecord, number: int) -> Table:
    results = made.write()
    return lu_table(number, read_study(results, made.study), summary_of(results, made.study), read_curves(results))


def entry(table: Table, row: str, column: str) -> tuple[str, str]:
    """Our entry and the published one."""
    (found,) = [line for line in table.rows if line[0] == row]
    place = table.header.index(column)
    assert table.header[place + 1] == f"{column}, published"
    return found[place], found[place + 1]


def test_accuracies_stand_beside_the_published_ones_and_missing_ones_stay_empty(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path, "lu2021-table1")
    for seed, test in enumerate((0.70, 0.72, 0.74)):  # SEM 0.02 / sqrt(3)
        made.add(1e-3, seed, [(300, 0.8, test)], task="cifar10", model="gpt2-large", variant="frozen-pretrained")
        made.add(1e-3, seed, [(300, 0.9, 1.0)], task="bit-xor", **FPT)
        made.want(1e-3, seed, task="mnist", **FPT)
    table = written_table(made, 1)
    assert table.header[:3] == ("Model", "Bit Memory", "Bit Memory, published")
    assert [row[0] for row in table.rows] == ["FPT", "Full", "LSTM"]
    assert entry(table, "FPT", "CIFAR-10") == ("72.0 ± 1.2", "72.1 (−0.1)")
    assert entry(table, "FPT", "XOR") == ("100.0 ± 0.0", "100 (+0.0)")
    assert entry(table, "FPT", "MNIST") == ("– (3 of 3 missing)", "98.0")
    assert entry(table, "LSTM", "MNIST") == ("", "99.5")  # of no run
    for fact in ("Lu et al. 2021, table 1", "Rao et al. 2019", "ours minus theirs"):
        assert fact in table.caption


def test_steps_to_convergence_by_hand(tmp_path: Path) -> None:
    """Within a point of the best: FPT at 200 (0.70 of 0.71) and 100, so 150; Random at 300 and 600, so 450."""
    made = SyntheticRecord(tmp_path, "lu2021-table6")
    made.add(1e-3, 0, [(100, 0.60, 0.9), (200, 0.70, 0.1), (300, 0.71, 0.2)], task="bit-xor", **FPT)
    made.add(1e-3, 1, [(100, 0.70, 0.9), (200, 0.69, 0.1), (300, 0.70, 0.2)], task="bit-xor", **FPT)
    made.add(1e-3, 0, [(300, 0.5, 0.5), (600, 0.4, 0.5)], budget=600, task="bit-xor", **RANDOM)
    made.add(1e-3, 1, [(300, 0.4, 0.5), (600, 0.5, 0.5)], budget=600, task="bit-xor", **RANDOM)
    table = written_table(made, 6)
    assert entry(table, "FPT", "XOR") == ("150", "500")
    assert entry(table, "Random", "XOR") == ("450", "2×10⁴")
    assert entry(table, "Speedup", "XOR") == ("3×", "40×")
    assert entry(table, "Speedup", "Memory") == ("", "4×")
    assert "within 1 point of the best of the run's curve" in table.caption


def test_convergence_is_read_within_the_budget_and_at_the_chosen_rate(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(100, 0.5, 0.5), (300, 0.55, 0.5), (900, 0.9, 0.9)], trained=900)  # wanted to step 300
    made.add(1e-2, 0, [(100, 0.3, 0.9), (300, 0.3, 0.9)])
    results = made.write()
    assert steps_to_converge(summary_of(results), read_curves(results)).to_dict() == {
        ("mnist", "gpt2", "frozen-random"): 300
    }


def test_train_accuracy_is_that_of_the_best_model(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(100, 0.6, 0.4), (300, 0.5, 0.2)])
    made.add(1e-3, 1, [(100, 0.5, 0.1), (300, 0.6, 0.5)])
    results = made.write()
    curves = read_curves(results)
    curves["train"] = curves["step"] / 500  # 0.2 and 0.6 at the best steps
    found = train_accuracies(summary_of(results), curves).loc[("mnist", "gpt2", "frozen-random")]
    assert found["train"] == pytest.approx(0.4)
    assert found["gap"] == pytest.approx((0.2 - 0.4 + 0.6 - 0.5) / 2)
    assert found["train_sem"] == pytest.approx(0.2)


def test_table_7_has_train_test_and_gap(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path, "lu2021-table7")
    made.add(1e-3, 0, [(300, 0.4, 0.386)], task="cifar10-lra", **FPT)  # train accuracy is 0.5 in every synthetic run
    table = written_table(made, 7)
    row = "FPT (GPT-2), 12 layers"
    assert entry(table, row, "Test Accuracy") == ("38.6", "38.6 (+0.0)")
    assert entry(table, row, "Train Accuracy") == ("50.0", "38.5 (+11.5)")
    assert entry(table, row, "Train less Test") == ("11.4", "-0.1 (+11.5)")
    assert entry(table, "Linformer, 3 layers", "Train Accuracy") == ("", "97")


def test_table_8_has_the_recorded_number_of_trained_parameters(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path, "lu2021-table8")
    made.add(1e-3, 0, [(300, 0.4, 0.7)], task="cifar10", **FPT)
    made.want(1e-3, 0, task="cifar10", model="gpt2-large", variant="frozen-pretrained")
    for row, count in zip(made.wanted, (870_154, 1_573_130), strict=True):
        row["trained_parameters"] = count
    table = written_table(made, 8)
    assert entry(table, "Small (Base), 12 layers", "Trained Params") == ("870,154", "106,000")
    assert entry(table, "Large, 36 layers", "Trained Params") == ("1,573,130", "300,000")  # not trained yet
    assert entry(table, "Medium, 24 layers", "Trained Params") == ("", "190,000")
    assert entry(table, "Small (Base), 12 layers", "FPT") == ("70.0", "68.2 (+1.8)")


@pytest.mark.parametrize("number", [pytest.param(n, marks=[] if n < 4 else pytest.mark.slow) for n in TABLES])
def test_every_table_can_be_laid_out(tmp_path: Path, number: int) -> None:
    made = SyntheticRecord(tmp_path, f"lu2021-table{number}")
    for task, model, variant in dict.fromkeys(entry.cell for entry in entries(number) if entry.model):
        made.add(1e-3, 0, [(300, 0.5, 0.5)], task=task, model=model, variant=variant)
    table = written_table(made, number)
    assert {row[0] for row in table.rows} == {entry.row for entry in entries(number)}
    assert "50.0" in {text for row in table.rows for text in row} or number == 6


def test_a_report_has_the_table_in_place_of_the_other_paper_s(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path, "lu2021-table4-swept")
    for rate in (1e-3, 1e-2):
        made.add(rate, 0, [(300, 0.5 + rate, 0.5)], task="mnist", model="lstm-3")
        made.want(rate, 0, task="cifar10", model="lstm-12")
    report = write_report(made.write(), made.study)
    names = {path.name for path in report.files}
    assert "learning-rates-lstm-3.png" in names
    assert not [name for name in names if name.startswith("figure")]
    page = (report.folder / "report.md").read_text()
    _, table, rows = page.partition("Table 4. Frozen random LSTMs of 12 and 3 layers")
    assert table
    assert "| 3 |  | 16.8 | 50.0" in rows
    assert "Rothermel" not in page


def test_a_fixed_rate_has_no_figures_of_a_sweep(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path, "lu2021-table3")
    made.add(1e-3, 0, [(300, 0.5, 0.5)], task="mnist", **RANDOM)
    made.add(3e-4, 0, [(300, 0.5, 0.5)], task="mnist", model="lstm-3", variant="frozen-random")
    report = write_report(made.write(), made.study)
    assert "Table 3. A frozen random transformer" in (report.folder / "report.md").read_text()
    assert not [path for path in report.files if path.suffix == ".png"]
