"""Events of trials -> rows of the record, worked out by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.record.read import read_curves, read_runs
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import Recorder, RunLogs
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.tiny_study import runs_of, write_study
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.worker.events import Advanced, Event, Finished, Printed, Started

START_S = 1_767_268_800.0
"""2026-01-01 12:00 UTC."""


class Clock:
    def __init__(self) -> None:
        self.now = START_S

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def results(tmp_path: Path) -> Results:
    made = Results(tmp_path / "results")
    made.prepare()
    return made


@pytest.fixture
def wanted(tmp_path: Path) -> WantedRun:
    return runs_of(write_study(tmp_path, rates=(1e-3,), variants=("frozen-pretrained",)), tmp_path / "results")[0]


def evaluation(step: int, time_s: float, elapsed_s: float) -> Evaluation:
    """An evaluation so many seconds after the start; accuracies and losses follow from the step."""
    names = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss", "test_accuracy")
    numbers = {name: step / 100 + index for index, name in enumerate(names)}
    return Evaluation(step=step, time_ms=int((START_S + time_s) * 1000), elapsed_s=elapsed_s, **numbers)


class Sender:
    """Sends events of one run to a recorder, at times of its own."""

    def __init__(self, results: Results, wanted: WantedRun, devices: float = 1.0) -> None:
        self.clock, self.run_id = Clock(), wanted.run_id
        self.recorder = Recorder(results, [wanted], devices, self.clock)

    def send(self, event: Event, at_s: float) -> None:
        self.clock.now = START_S + at_s
        self.recorder.event(event)

    def start(self, step: int, at_s: float, *curve: Evaluation) -> None:
        self.send(Started(run_id=self.run_id, step=step, curve=curve), at_s)

    def advance(self, step: int, at_s: float, evaluation: Evaluation | None = None) -> None:
        self.send(Advanced(run_id=self.run_id, step=step, evaluation=evaluation), at_s)

    def finish(self, step: int, at_s: float, elapsed_s: float, diverged_at: int | None = None) -> None:
        end = Finished(
            run_id=self.run_id,
            step=step,
            status="complete" if diverged_at is None else "diverged",
            diverged_at_step=diverged_at,
            elapsed_s=elapsed_s,
            device="a device",
            engine="stacked",
        )
        self.send(end, at_s)


def row(results: Results, wanted: WantedRun) -> dict[str, Any]:
    (only,) = read_runs(results.root).to_dict("records")
    assert only["run_id"] == wanted.run_id
    return only


def at(time_s: float) -> datetime:
    return datetime.fromtimestamp(START_S + time_s, UTC)


def test_a_run_from_start_to_end(results: Results, wanted: WantedRun) -> None:
    sender = Sender(results, wanted, devices=0.5)
    sender.start(0, 5)
    assert not results.holds(wanted.run_id)
    sender.advance(10, 8, evaluation(10, 8, 2.0))
    assert read_curves(results.root)["step"].tolist() == [10]
    assert not results.run(wanted.run_id).exists()
    sender.advance(15, 10)
    sender.advance(20, 12, evaluation(20, 12, 4.5))
    sender.finish(20, 13, elapsed_s=4.5)

    curve = read_curves(results.root).to_dict("records")
    assert curve == [
        {"run_id": wanted.run_id, **vars(evaluation(10, 8, 2.0))},
        {"run_id": wanted.run_id, **vars(evaluation(20, 12, 4.5))},
    ]
    ended = row(results, wanted)
    assert (ended["status"], ended["num_steps"], ended["attempts"], ended["device"]) == ("complete", 20, 1, "a device")
    assert (ended["lost_steps"], ended["engine"]) == (0, "stacked")
    assert (ended["best_step"], ended["validation_at_best"], ended["test_at_best"]) == (20, 3.2, 5.2)
    assert (ended["wall_s"], ended["device_s"]) == (4.5, 2.25)
    assert (ended["started_at"], ended["finished_at"]) == (at(5), at(13))
    assert (ended["task"], ended["model"], ended["variant"]) == ("digits", "tiny", "frozen-pretrained")
    assert (ended["learning_rate"], ended["seed"], ended["data_origin"]) == (1e-3, 0, "scikit-learn")
    assert ended["pretrained_on"] == "the weights in weights"
    assert ended["weights_checksum"] == wanted.run.weights_checksum
    assert json.loads(ended["content"]) == wanted.run.content()
    assert {"python", "torch"} <= json.loads(ended["versions"]).keys()


def test_a_run_resumed_from_a_checkpoint(results: Results, wanted: WantedRun) -> None:
    """Its first evaluation ended 100 s before this process began, after 2 s of training."""
    sender = Sender(results, wanted)
    before = [evaluation(10, -100, 2.0), evaluation(20, -98, 4.0)]
    sender.start(25, 0, *before)
    assert read_curves(results.root)["step"].tolist() == [10, 20]
    sender.start(27, 2)  # from a checkpoint beyond the last word: nothing is lost
    sender.advance(30, 3, evaluation(30, 3, 6.0))
    sender.finish(30, 4, elapsed_s=6.0)
    assert read_curves(results.root)["step"].tolist() == [10, 20, 30]
    ended = row(results, wanted)
    assert (ended["started_at"], ended["wall_s"], ended["attempts"]) == (at(-102), 6.0, 2)
    assert ended["lost_steps"] == 0


def test_steps_that_are_trained_again_are_counted(results: Results, wanted: WantedRun) -> None:
    """Heard of at 17, again from 10; heard of at 14, again from 10; failed at 13, and in the next sweep from 0."""
    first = Sender(results, wanted)
    first.start(0, 0)
    first.advance(10, 2, evaluation(10, 2, 2.0))
    for reached in (17, 14):
        first.advance(reached, 3)
        first.start(10, 4, evaluation(10, 2, 2.0))
    first.advance(13, 5)
    first.recorder.failed(wanted.run_id, "the worker died")
    assert row(results, wanted)["lost_steps"] == 7 + 4
    second = Sender(results, wanted)
    second.start(0, 100)
    second.advance(10, 102, evaluation(10, 102, 2.0))
    second.finish(10, 103, elapsed_s=2.0)
    assert row(results, wanted)["lost_steps"] == 7 + 4 + 13


def test_what_an_earlier_version_did_not_count_stays_unknown(results: Results, wanted: WantedRun) -> None:
    trained_to_20(results, wanted)
    path = results.run(wanted.run_id)
    pq.write_table(pq.read_table(path).drop_columns(["lost_steps", "engine"]), path)
    assert pd.isna(row(results, wanted)["lost_steps"])
    sender = Sender(results, wanted)
    sender.start(10, 100, evaluation(10, 2, 2.0))
    sender.finish(30, 106, elapsed_s=6.0)
    ended = row(results, wanted)
    assert (ended["num_steps"], ended["attempts"], ended["engine"]) == (30, 2, "stacked")
    assert pd.isna(ended["lost_steps"])


def test_a_worker_that_died_reports_its_curve_twice(results: Results, wanted: WantedRun) -> None:
    """Back to the checkpoint at step 10; the evaluation at 20 is made again, at a later time."""
    sender = Sender(results, wanted)
    sender.start(0, 0)
    sender.advance(10, 2, evaluation(10, 2, 2.0))
    sender.advance(20, 4, evaluation(20, 4, 4.0))
    sender.start(10, 9, evaluation(10, 2, 2.0))
    sender.advance(20, 11, evaluation(20, 11, 4.1))
    sender.finish(20, 12, elapsed_s=4.1)
    curve = read_curves(results.root)
    assert curve["step"].tolist() == [10, 20]
    assert curve["elapsed_s"].tolist() == [2.0, 4.1]
    ended = row(results, wanted)
    assert (ended["attempts"], ended["started_at"], ended["lost_steps"]) == (2, at(0), 10)


def test_what_drivers_lost_that_were_killed_counts(results: Results, wanted: WantedRun) -> None:
    """Its log has how often it started, the status file how far it was trained when the last one was killed."""
    for step in (0, 10):
        RunLogs(results.log).event(Started(run_id=wanted.run_id, step=step))
    RunLogs(results.log).event(Printed(run_id=wanted.run_id, text="started"))
    sender = Sender(results, wanted)
    sender.recorder = Recorder(results, [wanted], 1.0, sender.clock, reached={wanted.run_id: 17})
    sender.start(10, 0, evaluation(10, 2, 2.0))
    sender.advance(20, 11, evaluation(20, 11, 4.1))
    sender.finish(20, 12, elapsed_s=4.1)
    ended = row(results, wanted)
    assert (ended["attempts"], ended["lost_steps"]) == (3, 7)


def test_a_divergence_has_its_step_and_keeps_its_curve(results: Results, wanted: WantedRun) -> None:
    sender = Sender(results, wanted)
    sender.start(0, 0)
    sender.advance(10, 2, evaluation(10, 2, 2.0))
    sender.finish(10, 3, elapsed_s=2.5, diverged_at=13)
    assert read_curves(results.root)["step"].tolist() == [10]
    ended = row(results, wanted)
    assert (ended["status"], ended["diverged_at_step"], ended["num_steps"]) == ("diverged", 13, 13)


@pytest.mark.parametrize("trained_before", [False, True])
def test_a_divergence_before_the_first_evaluation_has_no_curve(
    results: Results, wanted: WantedRun, trained_before: bool
) -> None:
    if trained_before:
        trained_to_20(results, wanted)
    sender = Sender(results, wanted)
    sender.start(0, 100)
    sender.finish(0, 101, elapsed_s=0.5, diverged_at=2)
    ended = row(results, wanted)
    assert ended["diverged_at_step"] == 2
    assert all(pd.isna(ended[name]) for name in ("best_step", "validation_at_best", "test_at_best"))
    assert not results.curve(wanted.run_id).exists()


def test_a_failure_has_its_reason_and_what_was_trained(results: Results, wanted: WantedRun) -> None:
    sender = Sender(results, wanted, devices=2.0)
    sender.start(0, 0)
    sender.advance(10, 2, evaluation(10, 2, 2.0))
    sender.start(10, 5, evaluation(10, 2, 2.0))
    sender.clock.now = START_S + 7
    sender.recorder.failed(wanted.run_id, "RuntimeError: out of memory")
    ended = row(results, wanted)
    assert (ended["status"], ended["failure"], ended["attempts"]) == ("failed", "RuntimeError: out of memory", 2)
    assert (ended["num_steps"], ended["wall_s"], ended["device_s"]) == (10, 2.0, 4.0)
    assert (ended["started_at"], ended["finished_at"]) == (at(0), at(7))


def test_a_run_that_failed_before_any_word_has_a_row_and_a_new_one_when_it_is_trained_again(
    results: Results, wanted: WantedRun
) -> None:
    Sender(results, wanted).recorder.failed(wanted.run_id, "the worker died")
    ended = row(results, wanted)
    assert (ended["num_steps"], ended["attempts"], ended["wall_s"]) == (0, 1, 0.0)
    second = Sender(results, wanted)
    second.start(0, 100)
    second.advance(10, 102, evaluation(10, 102, 2.0))
    second.finish(10, 103, elapsed_s=2.0)
    ended = row(results, wanted)
    assert (ended["status"], ended["attempts"]) == ("complete", 2)
    assert pd.isna(ended["failure"])


def trained_to_20(results: Results, wanted: WantedRun) -> None:
    sender = Sender(results, wanted)
    sender.start(0, 0)
    sender.advance(10, 2, evaluation(10, 2, 2.0))
    sender.advance(20, 4, evaluation(20, 4, 4.0))
    sender.finish(20, 4, elapsed_s=4.0)


def started_over(results: Results, wanted: WantedRun) -> Sender:
    """Its checkpoint is gone and its budget raised, so it trains from step 0 again; at step 10 by now."""
    trained_to_20(results, wanted)
    sender = Sender(results, wanted)
    sender.start(0, 100)
    sender.advance(10, 102, evaluation(10, 102, 2.0))
    return sender


def steps_and_times(results: Results) -> list[tuple[int, float]]:
    curve = read_curves(results.root)
    return [(step, time_ms / 1000 - START_S) for step, time_ms in zip(curve["step"], curve["time_ms"], strict=True)]


def test_a_longer_curve_stays_until_a_run_that_started_over_is_as_far(results: Results, wanted: WantedRun) -> None:
    sender = started_over(results, wanted)
    assert steps_and_times(results) == [(10, 2), (20, 4)]
    assert row(results, wanted)["status"] == "complete"
    sender.advance(20, 104, evaluation(20, 104, 4.0))
    assert steps_and_times(results) == [(10, 102), (20, 104)]
    sender.advance(30, 106, evaluation(30, 106, 6.0))
    sender.finish(30, 106, elapsed_s=6.0)
    assert row(results, wanted)["num_steps"] == 30


def test_a_failure_takes_nothing_from_what_was_trained_before(results: Results, wanted: WantedRun) -> None:
    sender = started_over(results, wanted)
    sender.recorder.failed(wanted.run_id, "out of memory")
    assert steps_and_times(results) == [(10, 2), (20, 4)]
    ended = row(results, wanted)
    assert (ended["status"], ended["num_steps"]) == ("failed", 20)
    assert (ended["best_step"], ended["validation_at_best"]) == (20, 3.2), "of the curve that stays"


def test_a_run_that_started_over_and_diverged_sooner_has_its_own_curve(results: Results, wanted: WantedRun) -> None:
    """This can happen on a GPU, whose sums have no fixed order."""
    started_over(results, wanted).finish(10, 103, elapsed_s=2.5, diverged_at=13)
    assert steps_and_times(results) == [(10, 102)]
    assert row(results, wanted)["diverged_at_step"] == 13


def test_a_damaged_curve_is_replaced_by_what_is_trained(results: Results, wanted: WantedRun) -> None:
    results.curve(wanted.run_id).write_bytes(b"not a table")
    sender = Sender(results, wanted)
    sender.start(10, 0, evaluation(10, -5, 2.0))
    assert steps_and_times(results) == [(10, -5)]


def test_a_clock_that_is_set_back_changes_times_of_day_alone(results: Results, wanted: WantedRun) -> None:
    """The clock is set back by an hour between the two evaluations."""
    sender = Sender(results, wanted)
    sender.start(0, 0)
    sender.advance(10, 2, evaluation(10, 2, 2.0))
    sender.advance(20, -3596, evaluation(20, -3596, 4.0))
    sender.finish(20, -3596, elapsed_s=4.0)
    assert read_curves(results.root)["step"].tolist() == [10, 20]
    ended = row(results, wanted)
    assert (ended["status"], ended["wall_s"]) == ("complete", 4.0)
    assert (ended["started_at"], ended["finished_at"]) == (at(0), at(-3596))
