"""What is left to train, from what is wanted and what the record holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import State
from lr_sweep.sweep.search.state import reconcile
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import runs_of, write_study

POINTS = [(10, 0.5, 0.4), (20, 0.6, 0.5)]


@pytest.fixture
def wanted(tmp_path: Path) -> WantedRun:
    """A run with a budget of 20 steps."""
    study = write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",))
    return runs_of(study, tmp_path / "results")[0]


class Record:
    """A results directory that holds something of one run."""

    def __init__(self, folder: Path, wanted: WantedRun) -> None:
        self.results, self.wanted = Results(folder / "results"), wanted
        self.synthetic = SyntheticRecord(self.results.root)

    def end(self, status: str, trained: int) -> None:
        failure = "out of memory" if status == "failed" else None
        self.synthetic.end(self.wanted.row(), POINTS, status, trained, failure=failure)

    def state(self, *, retry_failed: bool = False) -> tuple[State, bool]:
        """Return the run's state and whether it is to be trained."""
        reconciled = reconcile([self.wanted], self.results, retry_failed=retry_failed)
        assert list(reconciled.states) == [self.wanted.run_id]
        assert reconciled.to_train in ((), (self.wanted,))
        return reconciled.states[self.wanted.run_id], bool(reconciled.to_train)


@pytest.fixture
def record(tmp_path: Path, wanted: WantedRun) -> Record:
    return Record(tmp_path, wanted)


def test_a_curve_or_a_folder_of_checkpoints_is_started(record: Record) -> None:
    record.synthetic.end(record.wanted.row() | {"run_id": "0123456789abcdef"}, POINTS, "complete", 20)  # another run
    assert record.state() == (State.WAITING, True)
    record.results.checkpoints(record.wanted.run_id).mkdir(parents=True)
    assert record.state() == (State.STARTED, True)
    record.results.checkpoints(record.wanted.run_id).rmdir()
    record.synthetic.write_curve(record.wanted.run_id, POINTS[:1])
    assert record.state() == (State.STARTED, True)


@pytest.mark.parametrize(
    ("status", "trained", "expected", "is_trained"),
    [
        ("complete", 20, State.COMPLETE, False),
        ("complete", 10, State.STARTED, True),  # to a lower budget
        ("complete", 40, State.COMPLETE, False),
        ("diverged", 13, State.DIVERGED, False),  # a result
        ("diverged", 20, State.DIVERGED, False),  # in the last step
        ("diverged", 30, State.COMPLETE, False),  # what happens beyond a budget does not matter to it
        ("failed", 30, State.COMPLETE, False),
    ],
)
def test_the_state_of_an_end_depends_on_the_budget(
    record: Record, status: str, trained: int, expected: State, is_trained: bool
) -> None:
    record.end(status, trained)
    for retry_failed in (False, True):
        assert record.state(retry_failed=retry_failed) == (expected, is_trained)


def test_a_damaged_row_and_an_unknown_status_are_reported_and_not_taken_for_missing(record: Record) -> None:
    record.end("complexe", 20)
    with pytest.raises(RecordError, match="got status 'complexe': delete it and run the study again"):
        record.state()
    path = record.results.run(record.wanted.run_id)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RecordError, match="delete it and run the study again"):
        record.state()
