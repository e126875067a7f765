"""A training function is imported once before Ray starts, in a process of its own."""

from __future__ import annotations

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
from lr_sweep.trainables.own.probe import check_import
from lr_sweep.trainables.own.run import TrainingFunctionError, own_run


def check(study: Path) -> None:
    (wanted,) = runs_of(study, study.parent / "results")
    check_import(own_run(wanted.run))


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
            'Most recent call last:\n  File "train.py", line 1, in <module>\n    import no_such_module\n'
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("import os; os._exit(7)", "the process that imported it ended with code 7"),
    ],
)
def test_one_that_cannot_be_imported_says_why(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(TrainingFunctionError) as raised:
        check(with_first_line(tmp_path, line))
    assert str(raised.value) == message


def test_run_refuses_it_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ray_session", lambda *_: pytest.fail("Ray is started"))
    study, results = load_study(with_first_line(tmp_path, "import no_such_module")), Results(tmp_path / "results")
    placement = Placement(resources=study.resources)
    with pytest.raises(UserError, match="mine: train.py:train cannot be imported, .*\n.*\n.*\n.*\nModuleNotFoundError"):
        run_study(study, Options(results=results, data_dir=tmp_path, placement=placement), lambda line: None)
