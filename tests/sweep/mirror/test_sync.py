"""`mlflow sync` of a record that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.sweep.cli.parser import main


def test_a_damaged_curve_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Paths(results).curve("aa")
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["mlflow", "sync", "--results", str(results)]) == 2
    assert str(path) in capsys.readouterr().err
