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
from lr_sweep.trainables.own import probe as probe_module
from lr_sweep.trainables.own.exactness import Probe
from lr_sweep.trainables.own.probe import SLOW, probe, tried
from lr_sweep.trainables.own.run import TrainingFunctionError, own_run


def check(study: Path, device: str | None = None) -> list[Probe]:
    wanted = runs_of(study, study.parent / "results")
    return tried([(own_run(each.run), each.num_steps) for each in wanted], device)


def probed(study: Path) -> Probe:
    return probe(own_run(runs_of(study, study.parent / "results")[0].run), "cpu")


def with_first_line(folder: Path, line: str) -> Path:
    study = write_function(folder, "pass")
    (folder / "train.py").write_text(f"{line}\n\n\ndef train(run, session):\n    pass\n")
    return study


def test_one_that_can_be_imported_leaves_nothing_in_this_process(tmp_path: Path) -> None:
    before = sys.modules.pop("train", None)  # another test's
    waits = "import json, threading; threading.Thread(target=threading.Event().wait).start()"
    assert check(with_first_line(tmp_path, waits)) == []  # without a device it is imported alone
    assert "train" not in sys.modules, before


def test_one_that_ends_its_process_says_so(tmp_path: Path) -> None:
    with pytest.raises(TrainingFunctionError, match="cannot be imported: its process ended with exit code 7$"):
        check(with_first_line(tmp_path, "import os; os._exit(7)"))


UNSAVED = """
unsaved = torch.zeros(1)
for step in session.steps():
    unsaved += 0.1
    if session.due:
        session.report(validation=unsaved.item(), test=0.5)
"""


ONCE_AND_WITH_ITS_BUDGET = f"""
import sys

sys.calls = getattr(sys, "calls", 0) + 1
assert (sys.calls, run.num_steps) == (1, 10)
{UNSAVED}"""


@pytest.mark.slow
def test_one_that_fails_in_a_short_trial_trains_once_more_in_a_process_of_its_own(tmp_path: Path) -> None:
    (found,) = check(write_function(tmp_path, ONCE_AND_WITH_ITS_BUDGET), "cpu")
    assert (found.resumed, found.lost) == ("unchecked", ())
    assert re.fullmatch("failed in a trial of 8 steps:\n.*\nAssertionError", found.unchecked, re.DOTALL)


def test_one_that_diverges_is_not_compared(tmp_path: Path) -> None:
    found = probed(write_function(tmp_path, UNSAVED.replace("unsaved.item()", "float('nan')")))
    assert (found.resumed, found.unchecked.partition(",")[0]) == ("unchecked", "diverges before step 3")


@pytest.mark.usefixtures("tried_here")
def test_each_cell_is_tried(tmp_path: Path) -> None:
    body = UNSAVED.replace("unsaved = ", "unsaved = run.options['drift'] * ")
    found = check(write_function(tmp_path, body, variants="{still: {drift: 0}, moving: {drift: 1}}"), "cpu")
    assert [each.resumed for each in found] == ["inexactly", "inexactly"]


LOOP = """
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=run.learning_rate)
{before}
for step in session.steps(model=model, optimizer=optimizer{saved}):
    optimizer.zero_grad()
    model(torch.randn(4, 2)).square().mean().backward()
    optimizer.step()
    {after}
    if session.due:
        session.report(validation=0.5, test=model.weight.sum().sigmoid())
"""
SCHEDULE = "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20)", "schedule.step()"
TRAINER = (
    # An object of a library holds the schedule.
    "import argparse; trainer = argparse.Namespace(schedules=[torch.optim.lr_scheduler.StepLR(optimizer, 20)])",
    "trainer.schedules[0].step()",
)
COLLATOR = (
    "import argparse; trainer = argparse.Namespace(collate=argparse.Namespace(own=torch.Generator().manual_seed(1)))",
    "torch.rand(1, generator=trainer.collate.own)",
)
COUNTER = "count = 0", "count += 1; model.requires_grad_(count < 30)"
OBJECT = "import types; counts = types.SimpleNamespace(count=0)", "counts.count += 1; print(counts.count)"
DICT = "counts = {'count': 0}", "counts['count'] += 1; print(counts)"
GENERATOR = "own = torch.Generator().manual_seed(1)", "torch.rand(1, generator=own)"
IMPORTED = "import random; draws = [random.random()]", "draws.append(random.random()); print(draws)"


@pytest.mark.parametrize(
    ("lines", "saved", "not_saved"),
    [
        (SCHEDULE, "", ["schedule in train"]),
        (SCHEDULE, "schedule=schedule", []),
        (TRAINER, "", ["trainer's StepLR in train"]),
        (COLLATOR, "", ["trainer's Namespace's Generator in train"]),
        (COUNTER, "", ["count in train"]),
        (OBJECT, "", ["counts.count in train"]),
        (OBJECT, "counts=counts", []),
        (DICT, "", ["counts in train"]),
        (DICT, "counts=counts", []),
        (GENERATOR, "", ["own in train"]),
        (GENERATOR, "own=own", []),
        (IMPORTED, "", ["draws in train"]),
        (IMPORTED, "draws=draws", []),
    ],
)
def test_what_changes_and_is_not_saved_is_named(
    tmp_path: Path, lines: tuple[str, str], saved: str, not_saved: list[str]
) -> None:
    before, after = lines
    body = LOOP.format(before=before, after=after, saved=f", {saved}" if saved else "")
    found = probed(write_function(tmp_path, body))
    assert (found.unchecked, [*found.differs], [*found.not_saved]) == ("", [], not_saved)


def test_a_counter_that_nothing_reads_is_not_named(tmp_path: Path) -> None:
    body = LOOP.format(before="", after="", saved="").replace(
        "for step in session", "for count, step in enumerate(session"
    )
    body = body.replace("optimizer=optimizer)", "optimizer=optimizer))")
    assert probed(write_function(tmp_path, body)).resumed == "exactly"
    assert probed(write_function(tmp_path, f"{body}    print(count)\n")).not_saved == ("count in train",)


def test_gradients_that_add_up_are_saved(tmp_path: Path) -> None:
    body = LOOP.format(before="", after="", saved="").replace("    optimizer.zero_grad()\n", "")
    body = body.replace("    optimizer.step()", "    step % 16 or (optimizer.step(), optimizer.zero_grad())")
    assert probed(write_function(tmp_path, body)).resumed == "exactly"


@pytest.mark.usefixtures("tried_here")
def test_one_that_fails_twice_alike_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingFunctionError) as raised:
        check(write_function(tmp_path, "raise ValueError('boom')"), "cpu")
    assert re.fullmatch("failed twice alike in a trial:\n.*\nValueError: boom", str(raised.value), re.DOTALL)


def test_a_slow_one_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "TRIED_S", 0.1)
    (found,) = check(write_function(tmp_path, "import time; time.sleep(600)"), "cpu")
    assert found.unchecked == SLOW


def start(path: Path, lines: list[str]) -> None:
    """Run a study, whose output goes to `lines`, until Ray would start."""
    study = load_study(path)
    placement = Placement(resources=study.resources)
    options = Options(results=Results(path.parent / "results"), data_dir=path.parent, placement=placement)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "ray_session", lambda *_: pytest.fail("Ray is started"))
        run_study(study, options, lines.append)


def test_run_says_it_before_ray_starts(tmp_path: Path) -> None:
    lines = list[str]()
    with pytest.raises(pytest.fail.Exception, match="Ray is started"):
        start(write_function(tmp_path, UNSAVED), lines)
    assert [line.split(":")[0] for line in lines if "Not saved" in line] == ["mine"]


def test_run_refuses_it_before_ray_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        start(with_first_line(tmp_path, "import no_such_module"), [])
    traceback = 'Most recent call last:\n  File "train.py", line 1, in <module>\n    import no_such_module\n'
    reason = f"{traceback}ModuleNotFoundError: No module named 'no_such_module'"
    assert str(raised.value).startswith(f"mine: train.py:train cannot be imported: {reason}")


def test_run_refuses_a_study_in_which_one_variant_fails(tmp_path: Path) -> None:
    body = UNSAVED.replace("unsaved = ", "unsaved = run.options['drift'] * ")
    study = write_function(tmp_path, body, variants="{sound: {drift: 1}, broken: {}}")
    with pytest.raises(UserError, match="KeyError: 'drift'\nNo run was started; the trial was of mine train broken"):
        start(study, [])
