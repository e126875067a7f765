"""Two records of one run: whether they agree, and what is kept of each."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.columns import CURVES
from sweep.merge import Difference, Keep, RecordedRun, difference, merge, mistakes
from tests.carried_record import Trained, points, row, run_id_of

SEED = 3
RUN_ID = run_id_of(SEED)
OURS, THEIRS, NEITHER = Keep.OURS, Keep.THEIRS, Keep.NEITHER


def recorded(trained: Trained) -> RecordedRun:
    curve = pd.DataFrame(points(RUN_ID, trained), columns=[column.name for column in CURVES])
    return RecordedRun(
        run_id=RUN_ID, row=None if trained.status is None else row(SEED, trained), curve=curve.astype({"step": "int64"})
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
        (complete(4), complete(2), OURS, OURS),
        (complete(2), started(1), OURS, OURS),
        (started(1), complete(2), THEIRS, THEIRS),
        (started(2), complete(2), THEIRS, OURS),
        (started(1), started(2), OURS, THEIRS),
        (complete(2), started(3), OURS, THEIRS),  # the end at step 20 stays, as if it was trained further here
        (started(3), complete(2), THEIRS, OURS),
        (failed(1), complete(2), THEIRS, THEIRS),
        (failed(2), complete(2), THEIRS, OURS),
        (failed(3), complete(2), OURS, OURS),
        (complete(2), failed(3), THEIRS, THEIRS),
        (complete(2), failed(2), OURS, OURS),
        (failed(1), started(1), OURS, OURS),
        (failed(1), started(2), NEITHER, THEIRS),
        (started(2), failed(1), OURS, OURS),
        (started(1), failed(2), THEIRS, THEIRS),
        (failed(1), failed(1), OURS, OURS),
        (diverged(13, 1), started(1), OURS, OURS),
        (started(1), diverged(13, 1), THEIRS, OURS),
        (complete(2), diverged(25, 2), THEIRS, OURS),
        (diverged(25, 2), complete(2), OURS, OURS),
        (diverged(13, 1), failed(1), OURS, OURS),
        (diverged(5, 0), started(0), OURS, OURS),
    ],
)
def test_the_further_one_is_kept(ours: RecordedRun, theirs: RecordedRun, row: Keep, curve: Keep) -> None:
    assert difference(ours, theirs) is None
    chosen = merge(ours, theirs)
    assert (chosen.row, chosen.curve) == (row, curve)
    assert chosen.changes == (row is not OURS or curve is not OURS)


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
    assert difference(ours, theirs) == Difference(where=where, here=here, there=there)


def test_the_first_number_that_differs_is_told() -> None:
    expected = {point["step"]: point["test_loss"] for point in points(RUN_ID, Trained(evaluations=4))}
    found = difference(complete(4), recorded(Trained(evaluations=3, changed_at=20)))
    assert found == Difference(where="test_loss at step 20", here=repr(expected[20]), there="0.5")
    assert difference(complete(1), recorded(Trained(evaluations=3, changed_at=20))) is None


def test_the_last_bit_counts_and_times_do_not() -> None:
    ours, theirs = complete(2), recorded(Trained(evaluations=2, time_ms=77))
    assert difference(ours, theirs) is None
    theirs.curve.loc[1, "train_loss"] = float(theirs.curve.loc[1, "train_loss"]) * (1 + 3e-16)
    found = difference(ours, theirs)
    assert found is not None
    assert found.where == "train_loss at step 20"
    assert float(found.here) != float(found.there)


def test_an_evaluation_that_only_one_has_differs() -> None:
    ours = complete(3)
    theirs = replace(ours, curve=ours.curve.drop(index=1))
    assert difference(ours, theirs) == Difference(where="step 20", here="an evaluation", there="no evaluation")


def test_another_content_differs() -> None:
    ours, theirs = complete(2), complete(2)
    assert theirs.row
    theirs.row["content"] = "{}"
    found = difference(ours, theirs)
    assert found is not None
    assert (found.where, found.there) == ("content", "{}")


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


def told(run: RecordedRun) -> tuple[object, ...]:
    kept = ("status", "num_steps", "diverged_at_step", "failure")
    return run.last_step, run.row and tuple(run.row[name] for name in kept)


def after(ours: RecordedRun, theirs: RecordedRun) -> RecordedRun:
    chosen = merge(ours, theirs)
    rows = {OURS: ours.row, THEIRS: theirs.row, NEITHER: None}
    return replace(ours, row=rows[chosen.row], curve=(theirs if chosen.curve is THEIRS else ours).curve)


@given(truths())
def test_records_of_one_truth_merge_to_the_same_either_way(pair: tuple[RecordedRun, RecordedRun]) -> None:
    ours, theirs = pair
    assert difference(ours, theirs) is None
    merged = after(ours, theirs)
    assert told(merged) == told(after(theirs, ours))
    assert mistakes(merged) == []
    assert not merge(merged, theirs).changes
    assert not merge(merged, ours).changes
    assert merged.last_step == max(ours.last_step, theirs.last_step)
    results = [run for run in pair if run.status in ("complete", "diverged")]
    assert all(merged.row and merged.row["num_steps"] >= run.row["num_steps"] for run in results if run.row)
