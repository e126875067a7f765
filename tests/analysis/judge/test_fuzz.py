"""Random tables, and sources of other tools, with random faults: each gives a report, a question or a message.

Time and memory are those of a laptop. `LR_SWEEP_FUZZ_CASES` is the number of cases of the long runs, from the first. A
case is its number: one that fails can be made again.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import resource
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judged, runs_read, write_judged
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.fuzz import MOST_BYTES, drawn, limited, table, written
from lr_sweep.tests.support.judged import contents_of, judge, rows_of

QUICK_TABLES, QUICK_SOURCES = 24, 50
MANY = int(os.environ.get("LR_SWEEP_FUZZ_CASES", 700))
DRAWN_EVERY = 35
"""Cases of which the figures are drawn, too, in the long run."""
WRITTEN_EVERY = 50
"""Cases of sources of which the report is written, too."""


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


def table_result(case: int, folder: Path) -> str:
    content, reading = table(case)
    (folder / "table.csv").write_bytes(content)
    return read([str(folder / "table.csv")], reading, folder.with_name("out"))


def source_result(case: int, folder: Path) -> str:
    draw, rows, reading = drawn(case)
    sources = written(folder, draw, rows)
    before = contents_of(folder)
    result = read(sources, reading, folder.with_name("out") if case % WRITTEN_EVERY == 0 else None)
    assert contents_of(folder) == before
    return result


def results(result_of: Callable[[int, Path], str], folder: Path, number: int) -> Counter[str]:
    found = Counter[str]()
    for case in range(number):
        (folder / "in").mkdir()
        try:
            with limited(case):
                result = result_of(case, folder / "in")
        except Exception as error:
            raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
        assert result in ("report", "question", "message"), f"case {case}: {result}"
        found[result] += 1
        shutil.rmtree(folder / "in")
    return found


def test_random_tables_give_a_report_or_a_message(tmp_path: Path, undrawn: None) -> None:
    assert 0 < results(table_result, tmp_path, QUICK_TABLES)["report"] < QUICK_TABLES  # else nothing was tried


def test_random_sources_stay_and_give_a_report_or_a_message(tmp_path: Path, undrawn: None) -> None:
    pytest.importorskip("optuna")
    found = results(source_result, tmp_path, QUICK_SOURCES)
    assert min(found[kind] for kind in ("report", "question", "message")) > 0, found


@pytest.mark.slow
@pytest.mark.parametrize("result_of", [table_result, source_result])
def test_very_many_in_time_and_memory(tmp_path: Path, undrawn: None, result_of: Callable[[int, Path], str]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = results(result_of, tmp_path, MANY)
    print(f"{MANY} cases: {found}")
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_BYTES
    assert found["report"] > MANY / 10


@pytest.mark.slow
@pytest.mark.parametrize("case", range(0, 700, DRAWN_EVERY))
def test_random_tables_are_drawn(tmp_path: Path, case: int) -> None:
    (tmp_path / "in").mkdir()
    assert table_result(case, tmp_path / "in")


MOST_CALLS = 33_000
"""Of functions, for a further cell: 32,490 were counted, 39,100 when each cell had frames of its own."""
NUM_VARIANTS = 24


def calls(folder: Path, num_tasks: int) -> int:
    """Count the function calls of a report of a table."""
    rows = []
    for task, variant, decade, seed in product(range(num_tasks), range(NUM_VARIANTS), range(1, 5), range(3)):
        value = 0.5 + 0.01 * ((7 * variant + 3 * task) % 11) - 0.03 * abs(decade - 2 - variant % 2) + 0.001 * seed
        rows.append(f"t{task},v{variant},1e-{decade},{seed},{value:.4f},{value + 0.001 * seed:.4f}")
    folder.mkdir()
    path = folder / "table.csv"
    path.write_text(rows_of("task,variant,lr,seed,val_acc,test_acc", rows))
    with cProfile.Profile() as profile:
        write_judged(judge([path], Reading()), folder / "out")
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_further_cell_costs_few_calls(tmp_path: Path) -> None:
    calls(tmp_path / "first", 1)  # imports, and templates that are compiled once
    few, many = calls(tmp_path / "few", 2), calls(tmp_path / "many", 4)
    assert (many - few) / (2 * NUM_VARIANTS) < MOST_CALLS
