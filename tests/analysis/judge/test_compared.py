"""How `judge` is asked to compare variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judge
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.write import write_judged
from lr_sweep.sweep.cli.parser import main

pytestmark = pytest.mark.usefixtures("undrawn")

TESTS = {"a": (60.5, 61.5, 62.5), "b": (60.0, 61.0, 62.0)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Seeds move both variants alike; a leads by half a point."""
    rows = [
        f"{variant},{rate},{seed},{validation},{test}"
        for variant, tests in TESTS.items()
        for rate, validation in (("1e-4", 50), ("1e-3", 70), ("1e-2", 50))
        for seed, test in enumerate(tests)
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["variant,lr,seed,val_accuracy,test_accuracy", *rows]) + "\n")
    return path


def test_variants_are_equal_within_points(table: Path, tmp_path: Path) -> None:
    text = write_judged(judge([table], Reading(equal_within=5.0)), tmp_path / "out").text
    assert "a and b are equal within 5.0 points: a leads by 0.5 points" in text


def test_variants_are_compared_by_seed(table: Path, tmp_path: Path) -> None:
    """By seed the difference is half a point each time: no spread, and so no interval."""
    texts = []
    for paired in (True, False):
        texts.append(write_judged(judge([table], Reading(paired=paired)), tmp_path / f"out-{paired}").text)
    by_seed, plain = texts
    assert "leads by 0.5 points over b; without an interval" in by_seed
    assert "95% interval" in plain


def test_no_difference_at_all_is_no_limit(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", str(table), "--equal-within", "0"]) == 2
    assert "--equal-within: got 0, want a difference above 0" in capsys.readouterr().err
