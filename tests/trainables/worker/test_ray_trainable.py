"""What a trial reports of failures that a retry would not mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.tiny_study import cohort_here, runs_of
from lr_sweep.trainables.own.run import TrainingFunctionError
from lr_sweep.trainables.worker import ray_trainable
from lr_sweep.trainables.worker.ray_trainable import CohortTrainable

LATE = "for step in session.steps():\n    session.report(validation=1, test=1)"


@pytest.fixture(autouse=True)
def _no_look_for_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look asks Ray, which would start one in this process; a busy machine is slow enough for a look."""
    monkeypatch.setattr(ray_trainable, "MACHINE_CHECK_EVERY_S", float("inf"))


def last_result(folder: Path, body: str, **changes: str) -> dict:
    """Return what the trial of a function reports last."""
    results = Results(folder / "results")
    runs = runs_of(write_function(folder, body, **changes), results.root)
    trial = CohortTrainable({"trial": {"cohort": cohort_here(runs, results)}})
    while not (result := trial.step())["done"]:
        pass
    return result


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (LATE, "MisuseError: session.report was called in step 1"),
        ("for step in session.steps():\n    pass", "MisuseError: step 5 ended without an evaluation"),
        ("next(session.steps(model=3))", "StateError: session.steps got model (int)"),
    ],
)
def test_a_misuse_of_the_session_fails_at_once(tmp_path: Path, body: str, reason: str) -> None:
    failed = last_result(tmp_path, body)["failed"]
    assert failed.startswith("Most recent call last:")
    assert reason in failed


def test_a_misuse_in_one_of_two_processes_does_so_too(tmp_path: Path) -> None:
    failed = last_result(tmp_path, LATE, resources="{processes_per_run: 2}")["failed"]
    assert failed.startswith(("Rank 0 of 2, most recent call last:", "Rank 1 of 2, most"))  # whichever is first


def test_another_failure_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TrainingFunctionError, match="boom"):
        last_result(tmp_path, "raise ValueError('boom')")
