"""Curves for other programs: a row an evaluation, with the record's values."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.export import VALUES, write_csv
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import LABELS
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import said


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Two runs of one cell, of two and one evaluations: step, validation and test accuracy."""
    record = SyntheticRecord(tmp_path / "results", "tiny")
    record.add(1e-3, 0, [(10, 0.25, 0.5), (20, 0.75, 0.625)])
    record.add(3.16e-2, 4, [(10, 0.5, 0.375)])
    record.write()
    return Results(tmp_path / "results")


def test_a_csv_has_a_row_an_evaluation(results: Results, tmp_path: Path) -> None:
    target = tmp_path / "curves.csv"
    code, printed = said("export", target, "--csv", "--results", results.root)
    assert (code, printed) == (0, f"{target}: 3 evaluations of 2 runs\n")
    table = pd.read_csv(target)
    assert list(table.columns) == ["study", *LABELS, "run_id", "step", *VALUES]
    numbers = table[["learning_rate", "seed", "step", "validation_accuracy", "test_accuracy"]].to_numpy().tolist()
    assert numbers == [[1e-3, 0, 10, 0.25, 0.5], [1e-3, 0, 20, 0.75, 0.625], [3.16e-2, 4, 10, 0.5, 0.375]]


def test_nothing_is_overwritten_and_nothing_is_made_of_nothing(results: Results, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(UserError, match="there exists; `export` overwrites nothing"):
        write_csv(results, [], tmp_path / "there")
    for path in (results.root / "curves").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="holds no evaluation to export"):
        write_csv(results, [], tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()
