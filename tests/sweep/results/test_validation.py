"""Two records of one run: whether they agree, and what is kept of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lr_sweep.sweep.results.run_state import RecordedRun
from lr_sweep.sweep.results.validation import contradiction, is_further
from lr_sweep.tests.support.records import Trained, points, row, run_id_of

SEED = 3
RUN_ID = run_id_of(SEED)


def recorded(trained: Trained) -> RecordedRun:
    return RecordedRun(
        run_id=RUN_ID, row=None if trained.status is None else row(SEED, trained), curve=points(RUN_ID, trained)
    )


def complete(evaluations: int) -> RecordedRun:
    return recorded(Trained(evaluations=evaluations))


def started(evaluations: int) -> RecordedRun:
    return recorded(Trained(evaluations=evaluations, status=None))


def failed(evaluations: int) -> RecordedRun:
    return recorded(Trained(evaluations=evaluations, status="failed"))


def diverged(at: int, evaluations: int) -> RecordedRun:
    return recorded(Trained(evaluations=evaluations, status="diverged", diverged_at=at))


@pytest.mark.parametrize(
    ("ours", "theirs", "taken"),
    [
        (complete(2), complete(2), False),
        (complete(2), complete(4), True),
        (started(2), complete(2), True),
        (started(3), complete(2), False),
        (failed(1), complete(2), True),
        (failed(2), complete(2), True),
        (failed(3), complete(2), False),
        (started(2), failed(1), False),
        (started(1), failed(2), True),
        (failed(1), failed(1), False),
        (complete(2), diverged(25, 2), True),
        (diverged(13, 1), failed(1), False),
        (diverged(5, 0), failed(0), False),
    ],
)
def test_the_further_one_is_kept(ours: RecordedRun, theirs: RecordedRun, taken: bool) -> None:
    assert contradiction(ours, theirs) is None
    assert is_further(theirs, ours) == taken


@pytest.mark.parametrize(
    ("ours", "theirs", "where", "here", "there"),
    [
        (diverged(13, 1), started(2), "diverged_at_step", "13", "trained to step 20"),
        (diverged(20, 1), complete(2), "diverged_at_step", "20", "trained to step 20"),
        (complete(2), diverged(13, 1), "diverged_at_step", "trained to step 20", "13"),
        (diverged(13, 1), diverged(15, 1), "diverged_at_step", "13", "15"),
        (diverged(13, 1), failed(2), "diverged_at_step", "13", "trained to step 20"),
    ],
)
def test_a_divergence_contradicts(ours: RecordedRun, theirs: RecordedRun, where: str, here: str, there: str) -> None:
    assert contradiction(ours, theirs) == f"{where}: {here} here, {there} there"


def test_the_first_number_that_differs_is_reported() -> None:
    expected = {point["step"]: point["test_loss"] for point in points(RUN_ID, Trained(evaluations=4))}
    found = contradiction(complete(4), recorded(Trained(evaluations=3, changed_at=20)))
    assert found == f"test_loss at step 20: {expected[20]!r} here, 0.5 there"
    assert contradiction(complete(1), recorded(Trained(evaluations=3, changed_at=20))) is None


def test_the_last_bit_counts_and_times_do_not() -> None:
    ours, theirs = complete(2), recorded(Trained(evaluations=2, time_ms=77))
    assert contradiction(ours, theirs) is None
    for other in (theirs.curve[1]["train_loss"] * (1 + 3e-16), -theirs.curve[1]["train_loss"]):
        changed = [theirs.curve[0], {**theirs.curve[1], "train_loss": other}]
        found = contradiction(ours, replace(theirs, curve=changed))
        assert found == f"train_loss at step 20: {ours.curve[1]['train_loss']} here, {other} there"
        assert other != ours.curve[1]["train_loss"]


def test_an_evaluation_that_only_one_has_differs() -> None:
    ours = complete(3)
    theirs = replace(ours, curve=[ours.curve[0], ours.curve[2]])
    assert contradiction(ours, theirs) == "step 20: an evaluation here, no evaluation there"


def test_another_content_differs() -> None:
    ours, theirs = complete(2), complete(2)
    assert theirs.row
    found = contradiction(ours, replace(theirs, row={**theirs.row, "content": "{}"}))
    assert found is not None
    assert found.startswith("content: ")
    assert found.endswith(" here, {} there")
