"""Random tables with random faults: each gives a report or a message, in time and memory that a laptop has.

`LR_SWEEP_FUZZ_CASES` is the number of cases, from the first. A case is its number: one that fails can be made again.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.write import write_judged
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.fuzz import MOST_BYTES, limited
from lr_sweep.tests.support.fuzz_tables import table
from lr_sweep.tests.support.judged import judge

QUICK, MANY = 24, 700
DRAWN_EVERY = 20
"""Cases of which the figures are drawn, too, in the long run."""


def judged(case: int, folder: Path) -> str:
    """Judge a case; return `report`, or the message."""
    content, reading = table(case)
    (folder / "table.csv").write_bytes(content)
    with limited(f"case {case}"):
        try:
            write_judged(judge([folder / "table.csv"], reading), folder / "out")
            result = "report"
        except UserError as error:
            result = str(error)
    assert result, f"case {case}"
    return result


def cases(folder: Path, number: int) -> list[str]:
    found = []
    for case in range(number):
        try:
            found.append(judged(case, folder))
        except Exception as error:
            raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
    return found


def test_random_tables_give_a_report_or_a_message(tmp_path: Path, undrawn: None) -> None:
    found = cases(tmp_path, QUICK)
    assert 0 < found.count("report") < QUICK  # else nothing was tried


@pytest.mark.slow
def test_very_many_random_tables_in_time_and_memory(tmp_path: Path, undrawn: None) -> None:
    number = int(os.environ.get("LR_SWEEP_FUZZ_CASES", MANY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = cases(tmp_path, number)
    print(f"{number} cases: {found.count('report')} reports, {number - found.count('report')} messages")
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_BYTES
    assert found.count("report") > number / 10


@pytest.mark.slow
@pytest.mark.parametrize("case", range(0, MANY, MANY // DRAWN_EVERY))
def test_random_tables_are_drawn(tmp_path: Path, case: int) -> None:
    assert judged(case, tmp_path)
