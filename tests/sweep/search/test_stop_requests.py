"""A run that is asked to stop ends, the others of its trial do not, and a study without the rule resumes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.inspection.status import status_text
from lr_sweep.sweep.inspection.verify import verify
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import Recorder, write_wanted
from lr_sweep.sweep.results.run_state import State
from lr_sweep.sweep.search.state import reconcile
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.records import summary_of
from lr_sweep.tests.support.tiny_study import cohort_here, curves, events_of, rows, runs_of, train
from lr_sweep.tests.support.tiny_study import write_study as write_tiny_study
from lr_sweep.trainables.worker.messages import Advanced, Finished
from lr_sweep.trainables.worker.session import Session


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_tiny_study(tmp_path, rates=(1e-3, 1e-2), variants=("unfrozen-random",), num_steps=30)


def trained_until_stopped(study: Path, results: Results, engine: str) -> list[WantedRun]:
    """Train both runs as one cohort; the first is asked to stop when it has been evaluated once."""
    results.prepare()
    wanted = runs_of(study, results.root)
    first = wanted[0].run_id
    write_wanted(results, load_study(study), wanted)
    recorder = Recorder(results, wanted, devices_per_trial=1.0)
    with results.writing("tiny"):
        for events in Session(cohort_here(wanted, results, engine=engine)).events(1000.0):
            for event in events:
                recorder.event(event)
                if isinstance(event, Advanced) and event.run_id == first and event.step == 10:
                    results.request_stop(first)
    return wanted


@pytest.mark.parametrize("engine", ["plain", "stacked"])
def test_a_run_ends_and_the_others_train_on(study: Path, tmp_path: Path, engine: str) -> None:
    results = Results(tmp_path / "results")
    first, second = trained_until_stopped(study, results, engine)
    ended = rows(results.root)
    assert (ended[first.run_id]["status"], ended[first.run_id]["num_steps"]) == ("stopped", 10)
    assert (ended[second.run_id]["status"], ended[second.run_id]["num_steps"]) == ("complete", 30)
    assert not results.stop_requests.exists()
    assert ["all", "1", "0", "0", "1", "0"] in [line.split() for line in status_text(results, "tiny").splitlines()]
    assert verify(results, print) == 0
    summary = summary_of(results.root, "tiny")
    assert list(summary.runs["status"]) == ["missing", "complete"]
    assert summary.cells["learning_rate"].tolist() == [1e-2]


def test_a_trial_that_is_retried_trains_no_stopped_run_further(study: Path, tmp_path: Path) -> None:
    """Its worker died after the run ended; the trial starts all its runs again."""
    results = Results(tmp_path / "results")
    trained_until_stopped(study, results, "plain")
    with results.writing("tiny"):
        first, second = runs_of(study, results.root)
        request = results.stop_requests / first.run_id
        request.parent.mkdir()
        request.touch()
        for _ in range(2):
            events = events_of(cohort_here([first, second], results))
            ends = {event.run_id: (event.status, event.step) for event in events if isinstance(event, Finished)}
            assert ends == {first.run_id: ("stopped", 10), second.run_id: ("complete", 30)}


def test_it_is_trained_further_to_the_same_curve(study: Path, tmp_path: Path) -> None:
    results, undisturbed = Results(tmp_path / "results"), Results(tmp_path / "undisturbed")
    wanted = trained_until_stopped(study, results, "plain")
    found = reconcile(wanted, results)
    assert (found.states[wanted[0].run_id], found.to_train) == (State.STARTED, (wanted[0],))
    train(study, results)
    train(study, undisturbed)
    assert curves(results.root) == curves(undisturbed.root)
    assert {row["status"] for row in rows(results.root).values()} == {"complete"}
