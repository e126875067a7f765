"""A training function of the user's own, in this process: curves, states, mistakes, and what it prints."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.own_study import resumed, resumes_exactly, to_end, write_function, write_own_study
from lr_sweep.tests.support.tiny_study import cohort_here, evaluations, runs_of, timeless
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.run import TrainingFunctionError, own_run
from lr_sweep.trainables.own.session import MAX_CHARACTERS, Output
from lr_sweep.trainables.worker.messages import Event, Finished, Printed, Started
from lr_sweep.trainables.worker.session import Session

REPORTING = """
weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], lr=run.learning_rate)
for step in session.steps(optimizer=optimizer):
    if session.due:
        session.report(validation=step / 100, test=step / 200, train_loss=1.0)
"""


def training(wanted: WantedRun) -> OwnTraining:
    return OwnTraining(own_run(wanted.run), wanted.num_steps, "cpu", lambda: 0.0)


def only_run(study: Path) -> WantedRun:
    return runs_of(study, study.parent / "results")[0]


def test_what_is_reported_is_the_curve(tmp_path: Path) -> None:
    one = training(only_run(write_function(tmp_path, REPORTING)))
    to_end(one, 10)
    curve = [(point.step, point.validation, point.test, point.train_loss) for point in one.progress.curve]
    assert curve == [(5, 0.05, 0.025, 1.0), (10, 0.1, 0.05, 1.0)]


@pytest.mark.parametrize("variant", [0, 1], ids=["adamw", "sgd"])
def test_a_run_that_is_killed_after_every_step_has_the_same_bits(tmp_path: Path, variant: int) -> None:
    """Batches are drawn by numpy, noise by torch, its size by `random`; dropout, batch norm, a schedule."""
    wanted = runs_of(write_own_study(tmp_path / "study"), tmp_path)[variant]
    assert resumes_exactly(wanted, *range(1, 20))


def test_a_run_that_is_killed_after_every_step_has_logged_the_same(tmp_path: Path) -> None:
    """`odd` is logged twice in a step, of which the last value counts; NaN and infinity end nothing."""
    log = """
    session.log(odd=0, **{"loss/x": float("nan") if step == 3 else step / 10})
    if step % 2:
        session.log(odd=torch.tensor(step))
"""
    wanted = only_run(write_function(tmp_path, REPORTING.replace("\n    if", f"{log}\n    if")))
    assert resumes_exactly(wanted, *range(1, 10))
    curve, _ = resumed(wanted)
    logged = [tuple(value.values()) for point in curve for value in point["logged"]]
    by_hand = [(1, "odd", 1.0), (1, "loss/x", 0.1), (2, "odd", 0.0), (2, "loss/x", 0.2), (3, "odd", 3.0)]
    by_hand += [(3, "loss/x", math.nan), (4, "odd", 0.0), (4, "loss/x", 0.4), (5, "odd", 5.0), (5, "loss/x", 0.5)]
    assert repr(logged[:10]) == repr(by_hand)
    assert [step for step, *_ in logged[10:]] == [6, 6, 7, 7, 8, 8, 9, 9, 10, 10]


def test_other_draws_in_the_process_change_nothing(tmp_path: Path) -> None:
    wanted = runs_of(write_own_study(tmp_path / "study"), tmp_path)[0]
    one = training(wanted)
    while one.progress.step < 20:
        one.advance(for_s=0.0)
        torch.rand(3)
        random.random()
    assert to_end(one, 20) == to_end(training(wanted), 20)


@pytest.mark.usefixtures("tried_here")
def test_a_session_resumes_it_from_its_checkpoints(tmp_path: Path) -> None:
    """A life ends after so many reports, without a last save."""
    wanted = runs_of(write_own_study(tmp_path / "study"), tmp_path)[0]

    def life(folder: Path, reports: int) -> list[Event]:
        session = Session(cohort_here([wanted], Results(folder), every_s=0.0), lambda: 1e9)
        each = session.events(0.0)
        return [event for _, events in zip(range(reports), each, strict=False) for event in events]

    def curve(events: list[Event]) -> list[Any]:
        points = {point.step: timeless(wanted.run_id, point) for event in events for point in evaluations(event)}
        return [points[step] for step in sorted(points)]

    whole = curve(life(tmp_path / "whole", 1000))
    assert [point["step"] for point in whole] == [10, 20]
    events = [event for number in (3, 9, 4, 1, 1000) for event in life(tmp_path / "lives", number)]
    assert repr(curve(events)) == repr(whole)  # what is not reported is NaN
    assert isinstance(events[-1], Finished)
    assert events[-1].engine == "own"
    assert len(checkpoints(Results(tmp_path / "lives").checkpoints(wanted.run_id))) == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return", "returned after step 0 of 10"),
        ("for step in session.steps():\n    if step == 3:\n        break", "returned after step 2 of 10"),
        ("for step in session.steps():\n    pass", "step 5 ended without an evaluation: call session.report"),
        (
            "for step in session.steps():\n    session.report(validation=1, test=1)",
            "session.report was called in step 1",
        ),
        ("session.report(validation=1, test=1)", "session.report was called in no step"),
        ("session.steps(model=3)\nnext(session.steps(model=3))", r"session.steps got model \(int\), want an object"),
        (
            "for step in session.steps():\n    while session.due:\n        session.report(validation=0, test=0)",
            "session.report was called twice in step 5",
        ),
        ("for s in session.steps():\n    session.due and session.report(validation='x', test=1)", "got validation='x'"),
        (
            "for s in session.steps():\n    session.due and session.report(validation=1.5, test=1)",
            "validation=1.5, want a fraction",
        ),
        ("session.log(loss=1)", "session.log was called in no step"),
        (
            "for step in session.steps():\n    session.log(validation=1, **{'a b': 1, '../c': 1, 'd//e': 1, 'f': 1})",
            r"session.log got 'validation', 'a b', '\.\./c', 'd//e', want names of",
        ),
        ("for step in session.steps():\n    session.log(loss='high')", "session.log got loss='high', want a number"),
        (
            "for step in session.steps():\n    for i in range(201):\n        session.log(a=i)",
            "got more than 1000 values since the last evaluation: log in fewer steps",
        ),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("list(session.steps())\nlist(session.steps())", "step 5 ended without"),
    ],
)
def test_mistakes_in_a_function_say_what_is_wanted(tmp_path: Path, body: str, problem: str) -> None:
    with pytest.raises(TrainingFunctionError, match=problem):
        to_end(training(only_run(write_function(tmp_path, body))), 10)


def test_an_error_has_the_traceback_of_the_users_files_alone(tmp_path: Path) -> None:
    body = "for step in session.steps():\n    if step == 3:\n        raise ValueError('boom')"
    with pytest.raises(TrainingFunctionError) as raised:
        to_end(training(only_run(write_function(tmp_path, body))), 10)
    assert str(raised.value).splitlines() == [
        "the training function failed:",
        "Most recent call last:",
        '  File "train.py", line 7, in train',
        "    raise ValueError('boom')",
        "ValueError: boom",
    ]


def test_an_error_after_the_last_step_is_one(tmp_path: Path) -> None:
    one = training(only_run(write_function(tmp_path, f"{REPORTING}raise KeyError('after')")))
    one.advance()
    one.advance()
    with pytest.raises(TrainingFunctionError, match="KeyError: 'after'"):
        one.close()


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "-float('inf')"])
def test_a_number_that_is_not_finite_is_divergence(tmp_path: Path, value: str) -> None:
    body = f"for s in session.steps():\n    session.due and session.report(validation={value}, test=0.5)"
    one = training(only_run(write_function(tmp_path, body)))
    assert to_end(one, 10) == []
    assert one.progress.diverged_at_step == 5


def test_a_function_ends_where_its_run_is_left(tmp_path: Path) -> None:
    body = f"""
try:
    for step in session.steps():
        pass
finally:
    open({str(tmp_path / "ended")!r}, "w").close()
"""
    one = training(only_run(write_function(tmp_path, body)))
    one.advance(for_s=0.0)
    one.close()
    assert (tmp_path / "ended").exists()


def test_each_run_imports_its_modules_afresh(tmp_path: Path) -> None:
    study = write_function(tmp_path, REPORTING)
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(
        text.replace("import torch", "import torch\nSEEN = []", 1) + "    SEEN.append(1); assert len(SEEN) == 1\n"
    )
    wanted = only_run(study)
    for _ in range(2):
        to_end(training(wanted), 10)


def test_what_a_library_draws_at_its_first_import_changes_nothing(tmp_path: Path) -> None:
    body = REPORTING.replace("validation=step / 100", "validation=random.random()")
    study = write_function(tmp_path, body)
    first_import = "import sys, random\nif not hasattr(sys, '_drawn'): sys._drawn = random.random()\nimport torch"
    train = tmp_path / "train.py"
    train.write_text(train.read_text().replace("import torch", first_import, 1))
    found = [to_end(training(only_run(study)), 10) for _ in range(2)]
    del sys._drawn  # type: ignore[attr-defined]
    assert found[0] == found[1]
    assert len(set(found[0])) == 2


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
    assert printed.text == "y" * (MAX_CHARACTERS - 1)


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
