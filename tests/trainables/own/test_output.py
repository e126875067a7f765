"""What a training function prints: kept line by line, in order, before its failure too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.tiny_study import cohort_here, runs_of
from lr_sweep.trainables.own.code import TrainingFunctionError
from lr_sweep.trainables.own.output import MAX_CHARACTERS, Output
from lr_sweep.trainables.worker.events import Finished, Printed, Started
from lr_sweep.trainables.worker.session import Session

PRINTING = """
import sys
print("built")
for step in session.steps():
    print("step", step, file=sys.stderr if step % 2 else None)
    if session.due:
        session.report(validation=0.5, test=0.5)
print("after", end="")
"""


def test_lines_are_kept_and_printed_too(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    with output.kept_for("a1"):
        print("one")
        print("two", file=sys.stderr)
        print("thr", end="")
    assert output.take() == [Printed(run_id="a1", text="one\ntwo")]
    assert output.take() == []
    with output.kept_for("a1"):
        print("ee\n")
        print("left", end="")
    assert output.take() == [Printed(run_id="a1", text="three\n")]
    assert output.take(whole_lines=False) == [Printed(run_id="a1", text="left")]
    assert capsys.readouterr() == ("one\nthree\n\nleft", "two\n")


def test_of_a_progress_bar_the_last_state_is_kept_and_of_very_much_the_newest() -> None:
    output = Output()
    output.add("\r10%\r20%\r100%\nend\r\n")
    assert output.take() == [Printed(run_id="", text="100%\nend")]
    output.add("x" * 30 + "\n")
    output.add("y" * (MAX_CHARACTERS - 1) + "\n")
    (printed,) = output.take()
    assert printed.text == f"[31 characters before this are left out]\n{'y' * (MAX_CHARACTERS - 1)}"


def test_a_session_reports_what_was_printed_before_what_follows(tmp_path: Path) -> None:
    (wanted,) = runs_of(write_function(tmp_path, PRINTING), tmp_path)
    session = Session(cohort_here([wanted], Results(tmp_path / "results")), lambda: 1e9)
    found = [event for events in session.reports(0.0) for event in events]
    texts = "\n".join(event.text for event in found if isinstance(event, Printed))
    assert texts == "\n".join(["built", *(f"step {step}" for step in range(1, 11))])
    assert isinstance(found[0], Printed)
    assert isinstance(found[1], Started)
    assert isinstance(found[-1], Finished)


def test_a_session_reports_what_was_printed_before_a_failure(tmp_path: Path) -> None:
    body = "print('building', end='')\nraise ValueError('boom')"
    (wanted,) = runs_of(write_function(tmp_path, body), tmp_path)
    session = Session(cohort_here([wanted], Results(tmp_path / "results")), lambda: 1e9)
    reports = session.reports(0.0)
    assert next(reports) == [Printed(run_id=wanted.run_id, text="building")]
    with pytest.raises(TrainingFunctionError, match="boom"):
        next(reports)
