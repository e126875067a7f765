"""Runs that train with a results directory in S3: their checkpoints, on machines that share nothing else."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from lr_sweep.common.object_store import ObjectStore
from lr_sweep.sweep.results.changes import restart_runs
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.store.results import StoredResults
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.servers.s3_server import Machines
from lr_sweep.tests.support.tiny_study import (
    cohort_here,
    evaluations,
    events_of,
    in_process,
    runs_of,
    timeless,
    trained_here,
    write_study,
)
from lr_sweep.trainables.checkpoint import CheckpointStore, checkpoints
from lr_sweep.trainables.worker.messages import Advanced, Event, Finished, Started
from lr_sweep.trainables.worker.session import Session

URI = "s3://bucket/sweep"


@pytest.fixture
def machines(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Have uploads of checkpoints retried sooner than outside of tests."""
    monkeypatch.setattr("lr_sweep.trainables.checkpoint.RETRY_S", 0.2)
    return machines


def stacked(runs: list[WantedRun], results: Results) -> Session:
    return Session(cohort_here(runs, results))


def until_step(session: Session, step: int) -> list[Event]:
    """Train until a run has been evaluated at a step, then leave, as on a machine that gets notice of its end."""
    events: list[Event] = []
    for reported in session.events(1000.0):
        events += reported
        if any(isinstance(event, Advanced) and event.step >= step for event in reported):
            break
    session.leave()
    return events


def stored(run: WantedRun) -> list[str]:
    """Names of a run's checkpoints in the store."""
    return sorted(Path(name).name for name in ObjectStore(URI).names(f"checkpoints/{run.run_id}"))


def points(events: list[Event]) -> dict[str, list[dict]]:
    """Evaluations as the recorder would have them, without what the clock put in them."""
    found: dict[str, dict[int, dict]] = {}
    for event in events:
        for point in evaluations(event):
            found.setdefault(event.run_id, {})[point.step] = timeless(event.run_id, point)
    return {run_id: list(by_step.values()) for run_id, by_step in found.items()}


def test_a_run_resumes_on_another_machine_with_the_same_numbers(machines: Machines, tmp_path: Path) -> None:
    study = write_study(tmp_path, rates=(1e-3,), num_steps=30)
    expected = trained_here(study, tmp_path / "elsewhere")
    runs = runs_of(study, tmp_path)[:1]
    here = StoredResults(URI)
    until_step(stacked(runs, here), 20)
    assert [name.split("-")[1] for name in stored(runs[0])] == ["000000010", "000000020"]
    assert list(CheckpointStore(URI).fetch_newer(here.checkpoints(runs[0].run_id), 20)) == []  # this disk has them
    machines.be("second")
    results = StoredResults(URI)
    assert not results.checkpoints(runs[0].run_id).exists()
    events = list(itertools.chain.from_iterable(stacked(runs, results).events(1000.0)))
    assert isinstance(events[0], Started)
    assert events[0].step == 20
    assert points(events) == {runs[0].run_id: expected[runs[0].run_id]}
    assert [name.split("-")[1] for name in stored(runs[0])] == ["000000030"]
    assert checkpoints(results.checkpoints(runs[0].run_id)) == []  # the disk is free again


def test_a_run_that_is_restarted_has_nothing_to_resume_from(machines: Machines, tmp_path: Path) -> None:
    first, second = runs_of(write_study(tmp_path, rates=(1e-3,)), tmp_path)
    results = StoredResults(URI)
    until_step(stacked([first, second], results), 10)
    restart_runs(results, "tiny", [first])
    assert (stored(first), len(stored(second))) == ([], 1)
    machines.be("second")
    events = events_of(cohort_here([first], StoredResults(URI)))
    assert isinstance(events[0], Started)
    assert events[0].step == 0


def test_a_damaged_checkpoint_in_the_store_is_reported_and_the_one_before_it_used(
    machines: Machines, tmp_path: Path
) -> None:
    run = runs_of(write_study(tmp_path, rates=(1e-3,), num_steps=30), tmp_path)[0]
    results = StoredResults(URI)
    results.prepare()
    with results.writing("tiny"):
        until_step(stacked([run], results), 20)
    store, newest = ObjectStore(URI), f"checkpoints/{run.run_id}/{stored(run)[-1]}"
    content = store.find(newest).content
    store.write(newest, content[: len(content) // 2])
    code, output = in_process("verify", "--results", URI)
    assert (code, f"problem: {URI}/{newest}: its sha256 begins with " in output) == (1, True)
    machines.be("second")
    events = events_of(cohort_here([run], StoredResults(URI)))
    assert isinstance(events[0], Started)
    assert events[0].step == 10
    assert [Path(path).name for path in events[0].damaged] == [f"damaged-{Path(newest).name}"]
    assert isinstance(events[-1], Finished)
    assert events[-1].status == "complete"


def test_training_does_not_wait_for_a_store_that_is_away_and_its_end_does(machines: Machines, tmp_path: Path) -> None:
    run = runs_of(write_study(tmp_path, rates=(1e-3,), num_steps=30), tmp_path)[0]
    events = stacked([run], StoredResults(URI)).events(1000.0)
    assert isinstance(next(events)[0], Started)
    next(events)  # what a process does once is done
    with machines.server.away():
        began = time.monotonic()
        assert next(events)[0].step == 20
        assert time.monotonic() - began < 2.0  # a single attempt to upload takes 6 s
    end = list(itertools.chain.from_iterable(events))[-1]
    assert isinstance(end, Finished)
    assert end.status == "complete"
    assert [name.split("-")[1] for name in stored(run)] == ["000000030"]


def test_a_store_that_stays_away_is_an_error_that_stops_the_sweep(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lr_sweep.trainables.worker.ray_trainable import STORAGE_ERRORS

    store = CheckpointStore(URI, patience_s=0.1)
    with machines.server.away(), pytest.raises(OSError, match=f"{URI} for 0 s: .*Could not connect") as problem:
        next(store.fetch_newer(tmp_path / "0123456789abcdef", -1))
    assert problem.value.errno in STORAGE_ERRORS


def test_weights_made_by_the_driver_reach_a_worker_elsewhere(machines: Machines, tmp_path: Path) -> None:
    results = StoredResults(URI)
    results.prepare()
    with results.writing("tiny"):
        folder = results.pretrained / "gpt2-1x16-0123456789ab"
        folder.mkdir()
        for name in ("model.safetensors", "config.json"):
            (folder / name).write_bytes(name.encode())
        results.settle()
        elsewhere = tmp_path / "elsewhere" / folder.name
        CheckpointStore(URI).fetch_weights(elsewhere)
        assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == {
            name: name.encode() for name in ("model.safetensors", "config.json")
        }
