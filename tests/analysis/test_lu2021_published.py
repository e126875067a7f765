"""The published values of Lu et al. 2021; compared with another copy where `published/` is beside $SWEEP_DATA_DIR."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from lr_sweep.analysis.paper.lu2021.published import (
    PARAMETERS,
    SPEEDUP,
    STEPS,
    TABLES,
    TEST,
    TRAIN,
    TRAIN_MINUS_TEST,
    Entry,
    entries,
)
from lr_sweep.datasets import TASKS

OTHER_COPY = Path(os.environ.get("SWEEP_DATA_DIR", "/nowhere")).parent / "published" / "lu2021.csv"


def by_labels(table: int) -> dict[tuple[str, str], Entry]:
    return {(entry.row, entry.column): entry for entry in entries(table)}


def test_entries_as_printed() -> None:
    assert by_labels(1)["FPT", "CIFAR-10"] == Entry(
        "FPT", "CIFAR-10", "cifar10", "gpt2-large", "frozen-pretrained", TEST, "72.1"
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


@pytest.mark.skipif(not OTHER_COPY.is_file(), reason="no other copy here")
def test_values_are_those_of_another_copy() -> None:
    """Its rows are named otherwise, so that values are compared by table, task and metric, as often as they occur."""
    with OTHER_COPY.open(encoding="utf-8", newline="") as file:
        copy = [row for row in csv.DictReader(file) if row["value"] and row["metric"] != "wall_clock_speedup_per_epoch"]
    theirs = Counter(
        (table, row["task"], row["metric"], float(row["value"].replace("K", "e3")))
        for row in copy
        for table in re.findall(r"\d+", row["table"])  # `table15 (=19)`
    )
    ours = Counter(
        (str(table), entry.task, entry.metric, float(entry.value))
        for table in TABLES
        for entry in entries(table)
        if entry.metric not in (SPEEDUP, TRAIN_MINUS_TEST)
    )
    assert ours == theirs


@pytest.mark.skipif(not OTHER_COPY.is_file(), reason="no other copy here")
@pytest.mark.parametrize("table", [1, 2, 5, 6, 9, 13])
def test_rows_of_the_same_name_have_the_same_values(table: int) -> None:
    with OTHER_COPY.open(encoding="utf-8", newline="") as file:
        theirs = {
            (r["row"], r["task"]): float(r["value"]) for r in csv.DictReader(file) if r["table"] == f"table{table}"
        }
    ours = {(e.row, e.task): float(e.value) for e in entries(table) if e.metric != SPEEDUP}
    assert ours == theirs
