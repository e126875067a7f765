"""A training function is imported and tried before Ray starts, in a process of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.tune import driver
from lr_sweep.sweep.tune.run_study import run_study
from lr_sweep.sweep.tune.work import Options
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.tiny_study import runs_of
from lr_sweep.trainables.own.probe import tried
from lr_sweep.trainables.own.run import TrainingFunctionError, own_run


def check(study: Path, device: str | None = None) -> str:
    (wanted,) = runs_of(study, study.parent / "results")
    return tried(own_run(wanted.run), wanted.num_steps, device)


def with_first_line(folder: Path, line: str) -> Path:
    study = write_function(folder, "pass")
    (folder / "train.py").write_text(f"{line}\n\n\ndef train(run, session):\n    pass\n")
    return study


def test_one_that_can_be_imported_leaves_nothing_in_this_process(tmp_path: Path) -> None:
    before = sys.modules.pop("train", None)  # another test's
    check(with_first_line(tmp_path, "import json, threading; threading.Thread(target=threading.Event().wait).start()"))
    assert "train" not in sys.modules, before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "import no_such_module",
            'cannot be imported: Most recent call last:\n  File "train.py", line 1, in <module>\n'
            "    import no_such_module\n"
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("import os; os._exit(7)", "cannot be imported: the process that imported it ended with code 7"),
    ],
)
def test_one_that_cannot_be_imported_says_why(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(TrainingFunctionError) as raised:
        check(with_first_line(tmp_path, line))
    assert str(raised.value) == message


UNSAVED = """
unsaved = torch.zeros(1)
for step in session.steps():
    unsaved += 0.1
    if session.due:
        session.report(validation=unsaved.item(), test=0.5)
"""


COUNTS_EPOCHS = """
if run.num_steps < 10:
    return
for step in session.steps():
    if session.due:
        session.report(validation=0.5, test=0.5)
"""


ONCE_IN_A_PROCESS = f"""
import sys

sys.calls = getattr(sys, "calls", 0) + 1
assert sys.calls == 1
{UNSAVED}"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (UNSAVED, "is deterministic, but resumes inexactly: a resumed training differs in the reported numbers"),
        (UNSAVED.replace("+= 0.1", "= torch.rand(1)"), ""),
        (ONCE_IN_A_PROCESS, "failed in a trial of 8 steps:\n.*\nAssertionError"),
        (COUNTS_EPOCHS, "failed in a trial of 8 steps:\n.*MisuseError: the function returned after step 0 of 8, .*"),
    ],
)
def test_what_a_trial_finds(tmp_path: Path, body: str, found: str) -> None:
    assert re.fullmatch(found, check(write_function(tmp_path, body), "cpu"), re.DOTALL)


def test_one_of_which_a_run_was_evaluated_is_only_imported(tmp_path: Path) -> None:
    assert check(write_function(tmp_path, UNSAVED)) == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('boom')", "failed twice alike in a trial:\n.*\nValueError: boom"),
        (
            UNSAVED.replace("session.due", "step"),
            "failed twice .*session.report was called in step 1, .*",
        ),
    ],
)
def test_one_that_fails_twice_alike_is_refused(tmp_path: Path, body: str, message: str) -> None:
    study = write_function(tmp_path, body)
    with pytest.raises(TrainingFunctionError) as raised:
        check(study, "cpu")
    assert re.fullmatch(message, str(raised.value), re.DOTALL)


def test_a_slow_one_is_not_waited_for(tmp_path: Path) -> None:
    study = with_first_line(tmp_path, "import __main__, time; __main__.TRIED_S = 0.1")
    with (tmp_path / "train.py").open("a") as code:
        code.write("    time.sleep(600)")
    assert check(study, "cpu").startswith("takes more than 0 s for a few steps")


def test_run_says_it_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise UserError("enough")

    monkeypatch.setattr(driver, "ray_session", stop)
    study, lines = load_study(write_function(tmp_path, UNSAVED)), list[str]()
    results, placement = Results(tmp_path / "results"), Placement(resources=study.resources)
    with pytest.raises(UserError, match="enough"):
        run_study(study, Options(results=results, data_dir=tmp_path, placement=placement), lines.append)
    assert [line.split(":")[0] for line in lines if "inexactly" in line] == ["mine"]


def test_run_refuses_it_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ray_session", lambda *_: pytest.fail("Ray is started"))
    study, results = load_study(with_first_line(tmp_path, "import no_such_module")), Results(tmp_path / "results")
    placement = Placement(resources=study.resources)
    with pytest.raises(UserError, match="mine: train.py:train cannot be imported: .*\n.*\n.*\nModuleNotFoundError"):
        run_study(study, Options(results=results, data_dir=tmp_path, placement=placement), lambda line: None)
