"""Events of trials -> rows of the record, worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.record.read import logged_values, read_curves, read_run_rows, read_runs
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.tiny_study import runs_of, write_study
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.worker.messages import Advanced, Finished, Printed, Report, Started

START_S = 1_767_268_800.0
"""2026-01-01 12:00 UTC."""


class Clock:
    def __init__(self) -> None:
        self.now = START_S

    def __call__(self) -> float:
        return self.now


def evaluation(step: int, time_s: float, elapsed_s: float) -> Evaluation:
    """An evaluation so many seconds after the start; accuracies and losses follow from the step."""
    names = ("train_loss", "train", "validation_loss", "validation", "test_loss", "test")
    numbers = {name: step / 100 + index for index, name in enumerate(names)}
    return Evaluation(step=step, time_ms=int((START_S + time_s) * 1000), elapsed_s=elapsed_s, **numbers)


class Sender:
    """Sends events of one run to a recorder, at times of its own."""

    def __init__(self, results: Results, wanted: WantedRun, devices: float = 1.0, reached: int = 0) -> None:
        self.results, self.wanted, self.run_id, self.clock = results, wanted, wanted.run_id, Clock()
        self.recorder = Recorder(results, [wanted], devices, self.clock, reached={self.run_id: reached})

    def again(self, devices: float = 1.0, reached: int = 0) -> Sender:
        """Return the sender of another process."""
        return Sender(self.results, self.wanted, devices, reached)

    def send(self, event: Report, at_s: float) -> None:
        self.clock.now = START_S + at_s
        self.recorder.event(event)

    def start(self, step: int, at_s: float, *curve: Evaluation) -> None:
        self.send(Started(run_id=self.run_id, step=step, curve=curve), at_s)

    def advance(self, step: int, at_s: float, evaluation: Evaluation | None = None) -> None:
        self.send(Advanced(run_id=self.run_id, step=step, evaluation=evaluation), at_s)

    def evaluate(self, step: int, at_s: float, elapsed_s: float) -> None:
        self.advance(step, at_s, evaluation(step, at_s, elapsed_s))

    def finish(self, step: int, at_s: float, elapsed_s: float, diverged_at: int | None = None) -> None:
        status: Literal["complete", "diverged"] = "complete" if diverged_at is None else "diverged"
        end = {"elapsed_s": elapsed_s, "device": "a device", "engine": "stacked"}
        self.send(Finished(run_id=self.run_id, step=step, status=status, diverged_at_step=diverged_at, **end), at_s)

    def fail(self, reason: str) -> None:
        self.recorder.failed(self.run_id, reason)

    def train_to_20(self) -> None:
        """Train in a process before this one."""
        before = self.again()
        before.start(0, 0)
        before.evaluate(10, 2, 2.0)
        before.evaluate(20, 4, 4.0)
        before.finish(20, 4, elapsed_s=4.0)

    def start_over(self) -> None:
        """Train to step 10 again: its checkpoint is gone and its budget raised."""
        self.train_to_20()
        self.start(0, 100)
        self.evaluate(10, 102, 2.0)

    def row(self) -> dict[str, Any]:
        """The row of the record."""
        (only,) = read_runs(self.results.root).to_dict("records")
        assert only["run_id"] == self.run_id
        return only

    def steps(self) -> list[int]:
        """Steps of the recorded curve."""
        return [step for step, _ in self.points()]

    def points(self) -> list[tuple[int, float]]:
        """Steps of the recorded curve, and when they were evaluated, in seconds from the start."""
        curve = read_curves(self.results.root)
        return list(zip(curve["step"], curve["time_ms"] / 1000 - START_S, strict=True))


@pytest.fixture
def sender(tmp_path: Path) -> Sender:
    results = Results(tmp_path / "results")
    results.prepare()
    (wanted,) = runs_of(write_study(tmp_path, rates=(1e-3,), variants=("frozen-pretrained",)), results.root)
    return Sender(results, wanted)


def at(time_s: float) -> datetime:
    return datetime.fromtimestamp(START_S + time_s, UTC)


def test_a_run_from_start_to_end(sender: Sender) -> None:
    sender = sender.again(devices=0.5)
    sender.start(0, 5)
    assert not sender.results.holds(sender.run_id)
    sender.evaluate(10, 8, 2.0)
    assert sender.steps() == [10]
    assert not sender.results.run(sender.run_id).exists()
    sender.advance(15, 10)
    sender.evaluate(20, 12, 4.5)
    sender.finish(20, 13, elapsed_s=4.5)
    curve = read_curves(sender.results.root).to_dict("records")
    assert curve == [
        {"run_id": sender.run_id, **vars(evaluation(10, 8, 2.0))},
        {"run_id": sender.run_id, **vars(evaluation(20, 12, 4.5))},
    ]
    ended = sender.row()
    assert (ended["status"], ended["num_steps"], ended["attempts"], ended["device"]) == ("complete", 20, 1, "a device")
    assert (ended["lost_steps"], ended["engine"]) == (0, "stacked")
    assert (ended["best_step"], ended["validation_at_best"], ended["test_at_best"]) == (20, 3.2, 5.2)
    assert (ended["wall_s"], ended["device_s"]) == (4.5, 2.25)
    assert (ended["started_at"], ended["finished_at"]) == (at(5), at(13))
    assert (ended["task"], ended["model"], ended["variant"]) == ("digits", "tiny", "frozen-pretrained")
    assert (ended["learning_rate"], ended["seed"], ended["data_origin"]) == (1e-3, 0, "scikit-learn")
    assert ended["pretrained_on"] == "the weights in weights"
    assert ended["weights_checksum"] == sender.wanted.run.weights_checksum
    assert json.loads(ended["content"]) == sender.wanted.run.content()
    assert {"python", "torch"} <= json.loads(ended["versions"]).keys()


def test_what_a_function_logged_is_in_its_curve(sender: Sender) -> None:
    """As Parquet has it: numbers that are not finite, and null where nothing was logged."""
    logged = [{"step": step, "name": "gradient", "value": value} for step, value in ((9, 0.1), (10, math.inf))]
    sender.start(0, 0)
    sender.advance(10, 2, replace(evaluation(10, 2, 2.0), logged=logged))
    sender.evaluate(20, 4, 4.0)
    again = sender.again()  # a killed driver, whose worker had saved the evaluation
    again.start(10, 5, replace(evaluation(10, 2, 2.0), logged=logged))
    again.evaluate(20, 6, 4.0)
    assert pq.read_table(sender.results.curve(sender.run_id))["logged"].to_pylist() == [logged, None]
    curves = read_curves(sender.results.root)
    assert logged_values(curves, ["run_id"]).to_numpy().tolist() == [
        [sender.run_id, 9, "gradient", 0.1],
        [sender.run_id, 10, "gradient", math.inf],
    ]


def test_a_run_resumed_from_a_checkpoint(sender: Sender) -> None:
    """Its first evaluation ended 100 s before this process began, after 2 s of training."""
    before = [evaluation(10, -100, 2.0), evaluation(20, -98, 4.0)]
    sender.start(25, 0, *before)
    assert sender.steps() == [10, 20]
    sender.start(27, 2)  # from a checkpoint beyond the last word: nothing is lost
    sender.evaluate(30, 3, 6.0)
    sender.finish(30, 4, elapsed_s=6.0)
    assert sender.steps() == [10, 20, 30]
    ended = sender.row()
    assert (ended["started_at"], ended["wall_s"], ended["attempts"]) == (at(-102), 6.0, 2)
    assert ended["lost_steps"] == 0


def test_steps_that_are_trained_again_are_counted(sender: Sender) -> None:
    """Heard of at 17, again from 10; heard of at 14, again from 10; failed at 13, and in the next sweep from 0."""
    sender.start(0, 0)
    sender.evaluate(10, 2, 2.0)
    for reached in (17, 14):
        sender.advance(reached, 3)
        sender.start(10, 4, evaluation(10, 2, 2.0))
    sender.advance(13, 5)
    sender.fail("the worker died")
    assert sender.row()["lost_steps"] == 7 + 4
    second = sender.again()
    second.start(0, 100)
    second.evaluate(10, 102, 2.0)
    second.finish(10, 103, elapsed_s=2.0)
    assert sender.row()["lost_steps"] == 7 + 4 + 13


def test_what_an_earlier_version_did_not_count_stays_unknown(sender: Sender) -> None:
    sender.train_to_20()
    path = sender.results.run(sender.run_id)
    pq.write_table(pq.read_table(path).drop_columns(["lost_steps", "engine"]), path)
    assert pd.isna(sender.row()["lost_steps"])
    sender.start(10, 100, evaluation(10, 2, 2.0))
    sender.finish(30, 106, elapsed_s=6.0)
    ended = sender.row()
    assert (ended["num_steps"], ended["attempts"], ended["engine"]) == (30, 2, "stacked")
    assert pd.isna(ended["lost_steps"])


def test_a_worker_that_died_reports_its_curve_twice(sender: Sender) -> None:
    """Back to the checkpoint at step 10; the evaluation at 20 is made again, at a later time."""
    sender.start(0, 0)
    sender.evaluate(10, 2, 2.0)
    sender.evaluate(20, 4, 4.0)
    sender.start(10, 9, evaluation(10, 2, 2.0))
    sender.evaluate(20, 11, 4.1)
    sender.finish(20, 12, elapsed_s=4.1)
    curve = read_curves(sender.results.root)
    assert curve["step"].tolist() == [10, 20]
    assert curve["elapsed_s"].tolist() == [2.0, 4.1]
    ended = sender.row()
    assert (ended["attempts"], ended["started_at"], ended["lost_steps"]) == (2, at(0), 10)


def test_what_drivers_lost_that_were_killed_counts(sender: Sender) -> None:
    """Its log has how often it started, the status file how far it was trained when the last one was killed."""
    for step in (0, 10):
        sender.again().start(step, 0)
    sender.again().recorder.event(Printed(run_id=sender.run_id, text="started"))
    sender = sender.again(reached=17)
    sender.start(10, 0, evaluation(10, 2, 2.0))
    sender.evaluate(20, 11, 4.1)
    sender.finish(20, 12, elapsed_s=4.1)
    ended = sender.row()
    assert (ended["attempts"], ended["lost_steps"]) == (3, 7)


def test_a_divergence_has_its_step_and_keeps_its_curve(sender: Sender) -> None:
    sender.start(0, 0)
    sender.evaluate(10, 2, 2.0)
    sender.finish(10, 3, elapsed_s=2.5, diverged_at=13)
    assert sender.steps() == [10]
    ended = sender.row()
    assert (ended["status"], ended["diverged_at_step"], ended["num_steps"]) == ("diverged", 13, 13)


def test_how_a_run_resumed_is_in_its_row(sender: Sender) -> None:
    end: dict[str, Any] = {"status": "complete", "elapsed_s": 1.0, "device": "a device", "engine": "own"}
    resumed: dict[str, Any] = {"resumed": "inexactly", "not_saved": ("average", "scheduler")}
    for more, expected in ((resumed, ("inexactly", "average, scheduler")), ({}, ("never", None))):
        again = sender.again()
        again.start(0, 0)
        again.send(Finished(run_id=sender.run_id, step=20, **end, **more), 3)
        (row,) = read_run_rows(sender.results.root, None, ("resumed", "not_saved"))
        assert (row["resumed"], row["not_saved"]) == expected
    sender.fail("the worker died")
    assert pd.isna(sender.row()["resumed"])


@pytest.mark.parametrize("trained_before", [False, True])
def test_a_divergence_before_the_first_evaluation_has_no_curve(sender: Sender, trained_before: bool) -> None:
    if trained_before:
        sender.train_to_20()
    sender.start(0, 100)
    sender.finish(0, 101, elapsed_s=0.5, diverged_at=2)
    ended = sender.row()
    assert ended["diverged_at_step"] == 2
    assert all(pd.isna(ended[name]) for name in ("best_step", "validation_at_best", "test_at_best"))
    assert not sender.results.curve(sender.run_id).exists()


def test_a_failure_has_its_reason_and_what_was_trained(sender: Sender) -> None:
    sender = sender.again(devices=2.0)
    sender.start(0, 0)
    sender.evaluate(10, 2, 2.0)
    sender.start(10, 5, evaluation(10, 2, 2.0))
    sender.clock.now = START_S + 7
    sender.fail("RuntimeError: out of memory")
    ended = sender.row()
    assert (ended["status"], ended["failure"], ended["attempts"]) == ("failed", "RuntimeError: out of memory", 2)
    assert (ended["num_steps"], ended["wall_s"], ended["device_s"]) == (10, 2.0, 4.0)
    assert (ended["started_at"], ended["finished_at"]) == (at(0), at(7))


def test_a_run_that_failed_before_any_word_has_a_row_and_a_new_one_when_it_is_trained_again(sender: Sender) -> None:
    sender.again().fail("the worker died")
    ended = sender.row()
    assert (ended["num_steps"], ended["attempts"], ended["wall_s"]) == (0, 1, 0.0)
    second = sender.again()
    second.start(0, 100)
    second.evaluate(10, 102, 2.0)
    second.finish(10, 103, elapsed_s=2.0)
    ended = sender.row()
    assert (ended["status"], ended["attempts"]) == ("complete", 2)
    assert pd.isna(ended["failure"])


def test_a_longer_curve_stays_until_a_run_that_started_over_is_as_far(sender: Sender) -> None:
    sender.start_over()
    assert sender.points() == [(10, 2), (20, 4)]
    assert sender.row()["status"] == "complete"
    sender.evaluate(20, 104, 4.0)
    assert sender.points() == [(10, 102), (20, 104)]
    sender.evaluate(30, 106, 6.0)
    sender.finish(30, 106, elapsed_s=6.0)
    assert sender.row()["num_steps"] == 30


def test_a_failure_takes_nothing_from_what_was_trained_before(sender: Sender) -> None:
    sender.start_over()
    sender.fail("out of memory")
    assert sender.points() == [(10, 2), (20, 4)]
    ended = sender.row()
    assert (ended["status"], ended["num_steps"]) == ("failed", 20)
    assert (ended["best_step"], ended["validation_at_best"]) == (20, 3.2), "of the curve that stays"


def test_a_run_that_started_over_and_diverged_sooner_has_its_own_curve(sender: Sender) -> None:
    """This can happen on a GPU, whose sums have no fixed order."""
    sender.start_over()
    sender.finish(10, 103, elapsed_s=2.5, diverged_at=13)
    assert sender.points() == [(10, 102)]
    assert sender.row()["diverged_at_step"] == 13


def test_a_damaged_curve_is_replaced_by_what_is_trained(sender: Sender) -> None:
    sender.results.curve(sender.run_id).write_bytes(b"not a table")
    sender.start(10, 0, evaluation(10, -5, 2.0))
    assert sender.points() == [(10, -5)]


def test_each_event_is_a_line_of_the_log_with_its_time(sender: Sender) -> None:
    nan = dict.fromkeys(("train", "validation_loss", "test_loss"), math.nan)
    logged = [{"step": step, "name": "norm", "value": step / 10} for step in (19, 20)]
    measured = replace(evaluation(20, 0, 3.0), train_loss=1.25, validation=0.5, test=0.75, **nan, logged=logged)
    sender.start(0, 0)
    sender.send(Started(run_id=sender.run_id, step=10, damaged=("step-20.safetensors",)), 1)
    sender.advance(15, 2)
    sender.advance(20, 3, measured)
    sender.send(Printed(run_id=sender.run_id, text="loss 1.25\nloss 1.2"), 60)
    sender.finish(40, 86_400, elapsed_s=6.0)
    assert sender.results.log(sender.run_id).read_text().splitlines() == [
        "2026-01-01 12:00:00  started",
        "2026-01-01 12:00:01  step-20.safetensors is damaged (its checksum differs)",
        "2026-01-01 12:00:01  resumed from step 10",
        "2026-01-01 12:00:03  step 20: train loss 1.25, validation 0.5, test 0.75, norm 2",
        "2026-01-01 12:01:00  | loss 1.25",
        "2026-01-01 12:01:00  | loss 1.2",
        "2026-01-02 12:00:00  complete at step 40, 6.0 s of training, on a device",
    ]


def test_nothing_is_appended_through_a_link(sender: Sender, tmp_path: Path) -> None:
    """A directory that another user sent may hold one."""
    (precious := tmp_path / "precious").write_text("years of work")
    log = sender.results.log(sender.run_id)
    log.parent.mkdir()
    log.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        sender.recorder.log(sender.run_id, ["started"])
    assert precious.read_text() == "years of work"
