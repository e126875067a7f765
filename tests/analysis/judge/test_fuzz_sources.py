"""Random tables in several files, folders and databases: each gives a report or a message, and stays as it is.

`LR_SWEEP_FUZZ_CASES` is the number of cases, from the first, of the long run.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judged, runs_read
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.analysis.judge.write import write_judged
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.fuzz import limited
from lr_sweep.tests.support.fuzz_sources import written
from lr_sweep.tests.support.fuzz_tables import drawn
from lr_sweep.tests.support.judged import contents_of

QUICK, MANY = 100, 700
RESULTS = ("report", "question", "message")
WRITTEN_EVERY = 50
"""Cases of which the report is written, too."""


def result_of(case: int, folder: Path) -> str:
    """Judge a case; return `report`, `question` or `message`."""
    draw, rows, reading = drawn(case)
    sources = written(folder, draw, rows)
    before = contents_of(folder)
    with limited(case):
        result = read(sources, reading, folder.with_name("out") if case % WRITTEN_EVERY == 0 else None)
    assert contents_of(folder) == before
    return result


def read(sources: list[str], reading: Reading, out: Path | None) -> str:
    """Read sources, and write the report into a folder; tries what a question offers."""
    try:
        if out is None:
            runs_read(read_sources(sources), reading)
        else:
            write_judged(judged(sources, reading).study, out)
    except QuestionError as question:
        offered = [read(sources, reading.but(choice.reading), out) for choice in question.choices]
        return "question" if offered and "message" not in offered else f"an offer of {question} fails"
    except UserError as error:
        return "message" if str(error) else "an empty message"
    return "report"


def results(folder: Path, number: int) -> Counter[str]:
    found = Counter[str]()
    for case in range(number):
        (folder / "in").mkdir()
        try:
            result = result_of(case, folder / "in")
        except Exception as error:
            raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
        assert result in RESULTS, f"case {case}: {result}"
        found[result] += 1
        shutil.rmtree(folder / "in")
    return found


def test_random_sources_stay_and_give_a_report_or_a_message(tmp_path: Path, undrawn: None) -> None:
    pytest.importorskip("optuna")
    found = results(tmp_path, QUICK)
    assert min(found[kind] for kind in RESULTS) > 0, found


@pytest.mark.slow
def test_very_many_random_sources(tmp_path: Path, undrawn: None) -> None:
    number = int(os.environ.get("LR_SWEEP_FUZZ_CASES", MANY))
    found = results(tmp_path, number)
    print(f"{number} cases: {found}")
    assert found["report"] > number / 10
