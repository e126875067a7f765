"""Random tables with random faults: each gives a report, a question or a message.

Time and memory are those of a laptop. `LR_SWEEP_FUZZ_CASES` is the number of cases of the long run, from the first. A
case is its number: one that fails can be made again.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.fuzz import MOST_BYTES, limited, table

QUICK = 16
MANY = int(os.environ.get("LR_SWEEP_FUZZ_CASES", 700))
DRAWN_EVERY = 35
"""Cases of which the figures are drawn, too, in the long run."""


def read(path: Path, reading: Reading) -> str:
    """Read a table, and write the report beside it; tries what a question offers."""
    try:
        write_judged(judged([str(path)], reading).study, path.with_name("out"))
    except QuestionError as question:
        offered = [read(path, reading.but(choice.reading)) for choice in question.choices]
        return "question" if offered and "message" not in offered else f"an offer of {question} fails"
    except UserError as error:
        return "message" if str(error) else "an empty message"
    return "report"


def result(case: int, folder: Path) -> str:
    content, reading = table(case)
    (folder / "table.csv").write_bytes(content)
    try:
        with limited(case):
            found = read(folder / "table.csv", reading)
    except Exception as error:
        raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
    assert found in ("report", "question", "message"), f"case {case}: {found}"
    return found


def test_random_tables_give_a_report_or_a_message(tmp_path: Path, undrawn: None) -> None:
    found = Counter(result(case, tmp_path) for case in range(QUICK))
    assert 0 < found["report"] < QUICK  # else nothing was tried


@pytest.mark.slow
def test_very_many_in_time_and_memory(tmp_path: Path, undrawn: None) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = Counter(result(case, tmp_path) for case in range(MANY))
    print(f"{MANY} cases: {found}")
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_BYTES
    assert found["report"] > MANY / 10


@pytest.mark.slow
@pytest.mark.parametrize("case", range(0, 700, DRAWN_EVERY))
def test_random_tables_are_drawn(tmp_path: Path, case: int) -> None:
    assert result(case, tmp_path)
