"""Two records of one run: whether they agree, and what is kept of each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.sweep.results.run_state import RecordedRun
from lr_sweep.sweep.results.validation import contradiction, curve_problems, last_step, merge, row_problems
from lr_sweep.tests.support.records import Trained, points, row, run_id_of

SEED = 3
RUN_ID = run_id_of(SEED)
OURS, THEIRS, NEITHER = "ours", "theirs", "neither"


def recorded(trained: Trained) -> RecordedRun:
    return RecordedRun(
        run_id=RUN_ID,
        row=None if trained.status is None else row(SEED, trained),
        curve=points(RUN_ID, trained),
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
    ("ours", "theirs", "row", "curve"),
    [
        (complete(2), complete(2), OURS, OURS),
        (complete(2), complete(4), THEIRS, THEIRS),
        (complete(2), started(1), OURS, OURS),
        (started(2), complete(2), THEIRS, OURS),
        (started(1), started(2), OURS, THEIRS),
        (complete(2), started(3), OURS, THEIRS),  # the end at step 20 stays, as if it was trained further here
        (failed(1), complete(2), THEIRS, THEIRS),
        (failed(2), complete(2), THEIRS, OURS),
        (failed(3), complete(2), OURS, OURS),
        (failed(1), started(1), OURS, OURS),
        (failed(1), started(2), NEITHER, THEIRS),
        (started(2), failed(1), OURS, OURS),
        (started(1), failed(2), THEIRS, THEIRS),
        (failed(1), failed(1), OURS, OURS),
        (diverged(13, 1), started(1), OURS, OURS),
        (complete(2), diverged(25, 2), THEIRS, OURS),
        (diverged(13, 1), failed(1), OURS, OURS),
        (diverged(5, 0), started(0), OURS, OURS),
    ],
)
def test_the_further_one_is_kept(ours: RecordedRun, theirs: RecordedRun, row: str, curve: str) -> None:
    assert contradiction(ours, theirs) is None
    merged = merge(ours, theirs)
    assert merged.row is {OURS: ours.row, THEIRS: theirs.row, NEITHER: None}[row]
    assert merged.curve is {OURS: ours.curve, THEIRS: theirs.curve}[curve]


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


@st.composite
def truths(draw: st.DrawFn) -> tuple[RecordedRun, RecordedRun]:
    """Two records of one run that diverges at some step, or never."""
    diverges = draw(st.none() | st.integers(1, 45))
    most = 4 if diverges is None else (diverges - 1) // 10

    def one() -> RecordedRun:
        evaluations = draw(st.integers(0, most))
        choices: list[str | None] = [None, "failed"] + (["complete"] if evaluations else [])
        if diverges is not None and evaluations == most:
            choices.append("diverged")
        status = draw(st.sampled_from(choices))
        at = diverges if status == "diverged" else None
        return recorded(Trained(evaluations=evaluations, status=status, diverged_at=at))

    return one(), one()


def content_of(run: RecordedRun) -> tuple[object, ...]:
    kept = ("status", "num_steps", "diverged_at_step", "failure")
    return last_step(run), run.row and tuple(run.row[name] for name in kept)


@given(truths())
def test_records_of_one_truth_merge_to_the_same_either_way(pair: tuple[RecordedRun, RecordedRun]) -> None:
    ours, theirs = pair
    assert contradiction(ours, theirs) is None
    merged = merge(ours, theirs)
    assert content_of(merged) == content_of(merge(theirs, ours))
    assert not merged.row or row_problems(RUN_ID, [merged.row]) == []
    assert curve_problems(RUN_ID, merged.curve or None, merged.row) == []
    assert merge(merged, theirs) == merged
    assert merge(merged, ours) == merged
    assert last_step(merged) == max(last_step(ours), last_step(theirs))
    results = [run for run in pair if run.row and run.row["status"] in ("complete", "diverged")]
    assert all(merged.row and merged.row["num_steps"] >= run.row["num_steps"] for run in results if run.row)
