"""What `run` does with what trials report, with Ray replaced by a script."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.packing import KILLED
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.reconcile import reconcile
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.sweep.results.run_state import State
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.sweep.study.study import Resources
from lr_sweep.sweep.tune import driver
from lr_sweep.sweep.tune.nodes import MAX_LOSSES, Machines
from lr_sweep.sweep.tune.prepare import write_wanted
from lr_sweep.sweep.tune.ray_session import RayLostError
from lr_sweep.sweep.tune.shares import Share
from lr_sweep.sweep.tune.trial_events import StorageFailed, TrialEvent, TrialFailed, TrialInterrupted
from lr_sweep.tests.support.scripted_trials import Bench, NoMirror, Script, new_bench
from lr_sweep.tests.support.tiny_study import rows, runs_of, write_study
from lr_sweep.trainables.events import Event, Started

Events = Generator[TrialEvent | None, None, None]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return new_bench(tmp_path, monkeypatch)


def test_all_go_well(bench: Bench) -> None:
    script = Script()
    outcome = bench.run(script)
    a, b, c, d = bench.ids
    assert script.passes == [[[a, b, c], [d]]]
    assert (outcome.trained, outcome.failed, outcome.stopped) == (4, 0, False)
    assert bench.states() == ["complete"] * 4
    assert set(NoMirror.notified) == set(bench.ids)
    assert bench.results.progress("tiny").exists()


def test_a_retry_that_helps_counts_nothing_twice(bench: Bench) -> None:
    _, b, *_ = bench.ids
    script = Script(failures={b: 1})  # the study allows one retry; `a` then reports its end once more
    outcome = bench.run(script)
    assert len(script.passes) == 1
    assert (outcome.trained, outcome.failed) == (4, 0)
    recorded = rows(bench.results.root)
    assert [recorded[run_id]["attempts"] for run_id in bench.ids] == [1, 2, 1, 1]


def test_a_run_that_fails_does_not_take_its_neighbours_with_it(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    a, b, c, d = bench.ids
    script = Script(failures={b: 2})
    outcome = bench.run(script)
    assert script.passes == [[[a, b, c], [d]], [[c]]]
    assert (outcome.trained, outcome.failed, outcome.stopped) == (4, 1, False)
    assert bench.states() == ["complete", "failed", "complete", "complete"]
    assert rows(bench.results.root)[b]["failure"] == "RuntimeError: scripted"
    assert bench.said[-2:] == [
        "1 run failed; `status` lists all, `run --retry-failed` trains them again",
        "  digits tiny unfrozen-random 1e-3 seed 0: RuntimeError: scripted",
    ]
    shown = "digits tiny unfrozen-random 1e-3 seed 0 failed: RuntimeError: scripted"
    assert capfd.readouterr().out.splitlines()[0] == shown, "when it happens, not at the end"


def test_a_trial_that_cannot_start_fails_all_its_runs(bench: Bench) -> None:
    a, *_ = bench.ids
    script = Script(failures={a: 2}, at_start={a})
    outcome = bench.run(script)
    assert len(script.passes) == 1
    assert outcome.failed == 3
    assert bench.states() == ["failed", "failed", "failed", "complete"]


def test_a_sweep_whose_first_runs_all_fail_alike_ends(bench: Bench) -> None:
    script = Script(failures=dict.fromkeys(bench.ids, 2))
    with pytest.raises(UserError, match="the first 3 trials all failed: RuntimeError: scripted. The other runs were"):
        bench.run(script)
    assert sorted(bench.states()) == ["failed", "failed", "failed", "new"]


def test_a_sweep_in_which_something_worked_trains_the_rest(bench: Bench) -> None:
    _, *others = bench.ids
    assert bench.run(Script(failures=dict.fromkeys(others, 2))).failed == 3
    assert bench.states() == ["complete", "failed", "failed", "failed"]


def test_a_part_of_a_study_is_trained(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    a, b, *_ = bench.ids
    script = Script()
    only = parse_only("learning_rate=1e-3,learning_rate=0.0001, variant=unfrozen-random")
    assert bench.run(script, only=only).trained == 2
    assert script.passes == [[[a, b]]]
    assert bench.states() == ["complete", "complete", "new", "new"]
    assert "2/2 runs done" in capfd.readouterr().out  # the others are not done
    assert bench.run(script, only=only).trained == 0
    assert bench.said[-1].startswith("nothing to train: the record holds everything that --only learning_rate=1e-3,")
    assert bench.run(Script()).trained == 2


def test_parts_that_a_study_lacks_are_refused(bench: Bench) -> None:
    with pytest.raises(UserError, match="--only variant=frozen: unknown variant 'frozen'; .*valid: unfrozen-random"):
        bench.run(Script(), only=parse_only("variant=frozen"))


def test_failed_runs_are_trained_again_on_request_only(bench: Bench) -> None:
    _, b, *_ = bench.ids
    bench.run(Script(failures={b: 2}))
    idle = Script()
    assert bench.run(idle).failed == 1  # still
    assert idle.passes == []
    assert bench.said[-1] == "  digits tiny unfrozen-random 1e-3 seed 0: RuntimeError: scripted"
    assert not any("holds everything" in line for line in bench.said)

    again = Script(failures={b: 2})
    outcome = bench.run(again, max_attempts=10)
    assert again.passes == [[[b]]]
    assert (outcome.trained, outcome.failed) == (1, 1)

    outcome = bench.run(Script(), max_attempts=10)
    assert (outcome.trained, outcome.failed) == (1, 0)
    assert bench.states() == ["complete"] * 4
    assert bench.run(Script(), max_attempts=10).trained == 0
    assert "nothing to train" in bench.said[-1]


def test_new_runs_are_trained_beside_old_failures(bench: Bench) -> None:
    _, b, _, d = bench.ids
    bench.run(Script(failures={b: 2}))
    bench.results.run(d).unlink()
    bench.results.curve(d).unlink()
    outcome = bench.run(Script())
    assert (outcome.trained, outcome.failed) == (1, 1)
    assert reconcile(bench.wanted, bench.results).states[d] is State.COMPLETE


def test_the_mirror_is_notified_of_all_that_is_recorded(bench: Bench) -> None:
    """Runs that ended without a curve, too: another sweep's mirror may have been out of reach."""
    a, b, c, d = bench.ids
    bench.run(Script(failures={b: 2}))
    assert not bench.results.curve(b).exists()
    bench.run(Script())
    assert set(NoMirror.notified) == {a, b, c, d}


def test_a_full_disk_of_the_driver_stops_trials_and_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    class Reporting(Script):
        def train_cohorts(self, *arguments: Any) -> Events:
            try:
                yield from super().train_cohorts(*arguments)
            finally:
                stopped.append(True)

    def full(self: Recorder, event: Event) -> None:
        raise OSError(28, "No space left on device", "/results/runs/a")

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "event", full)
        with pytest.raises(UserError, match="cannot write to /results/runs/a: No space left on device"):
            bench.run(Reporting())
    assert stopped
    assert bench.run(Script()).trained == 4  # nothing is locked, the same command resumes


def test_a_full_disk_of_a_worker_is_reported(bench: Bench) -> None:
    class Full(Script):
        def train_cohorts(self, *arguments: Any) -> Events:
            yield StorageFailed(reason="[Errno 28] No space left on device")

    with pytest.raises(UserError, match=r"a worker cannot write checkpoints: \[Errno 28\] No space left on device"):
        bench.run(Full())


class Stopped(Script):
    """Is stopped by a signal while its first run trains; the run ends before its trial has read of it."""

    number: int = signal.SIGTERM

    def train_cohorts(
        self, cohorts: Any, placement: Any, scratch: Any, machines: Any, leave: Any, at_most: Any
    ) -> Events:
        yield Started(run_id=cohorts[0].run_ids[0], step=0)
        os.kill(os.getpid(), self.number)
        while not leave.is_set():
            yield None
        assert not leave.at_once, "a run is saved first"
        first = dataclasses.replace(cohorts[0], runs=cohorts[0].runs[:1])
        yield from super().train_cohorts([first], placement, scratch, machines, leave, at_most)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_answered_before_runs_are_saved_and_the_rest_is_left_for_later(
    bench: Bench, capfd: pytest.CaptureFixture[str], number: int
) -> None:
    script, before = Stopped(), signal.getsignal(number)
    script.number = number
    outcome = bench.run(script)
    assert signal.getsignal(number) is before
    assert capfd.readouterr().out.splitlines()[0] == "saving 1 run; press Ctrl-C again to leave at once"
    assert bench.said[-1] == "stopped; the same command resumes from here"
    assert (outcome.trained, outcome.stopped) == (1, True)
    assert bench.states() == ["complete", "new", "new", "new"]


@pytest.mark.parametrize("ends_ray", [False, True])
def test_a_signal_while_ray_starts_breaks_that_off_and_prints_no_empty_tables(
    bench: Bench, capfd: pytest.CaptureFixture[str], ends_ray: bool
) -> None:
    """With `ends_ray`, the signal went to the whole process group."""

    @contextlib.contextmanager
    def starts(placement: Placement, log: Path, excluded: Any, starting: Any) -> Iterator[Share]:
        with contextlib.nullcontext() if ends_ray else starting():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)
            if not ends_ray:
                pytest.fail("Ray's start is not broken off")
        raise RayLostError("Ray did not start")
        yield Share(placement, list, None)

    bench.monkeypatch.setattr(driver, "ray_session", starts)
    script = Script()
    outcome = bench.run(script)
    assert (outcome.stopped, outcome.report) == (True, None)
    assert (script.passes, bench.states()) == ([], ["new"] * 4)
    assert bench.said[-1] == "stopped; the same command resumes from here"
    assert capfd.readouterr().out == "stopping; press Ctrl-C again to leave at once\n"
    assert not (bench.results.study("tiny") / "report").exists()


class Starting(Script):
    """Is stopped while its workers start: no run trains."""

    def train_cohorts(self, *arguments: Any) -> Events:
        leave = arguments[4]
        os.kill(os.getpid(), signal.SIGINT)
        while not leave.is_set():
            yield None
        self.at_once = leave.at_once


def test_a_sweep_in_which_nothing_trains_yet_is_left_at_once(bench: Bench) -> None:
    script = Starting()
    assert bench.run(script).stopped
    assert script.at_once, "there is nothing to save"
    assert bench.states() == ["new"] * 4


def test_the_study_is_kept_as_it_was_run_and_can_be_run_again(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path))
    results = Results(tmp_path / "results")
    write_wanted(results, study, runs_of(tmp_path / "tiny.yaml", results.root))
    assert load_study(results.study("tiny") / "tiny.yaml") == study
    assert len(read_wanted(results.root, "tiny")) == 4


class DyingRay(Script):
    """Ray dies so many times before it lets a cohort through."""

    deaths: int = 0
    """Still to come."""
    ends_one_before: bool = False
    """Whether a run ends before each death."""

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
        if not self.deaths:
            yield from super().train_cohorts(cohorts, *arguments)
            return
        self.deaths -= 1
        if self.ends_one_before:
            first = dataclasses.replace(cohorts[0], runs=cohorts[0].runs[:1])
            yield from super().train_cohorts([first], *arguments)
        raise RayLostError("Ray died (raylet ended unexpectedly)")


def test_ray_is_started_again_when_it_dies(bench: Bench) -> None:
    script = DyingRay()
    script.deaths = 4
    assert bench.run(script).trained == 4
    assert bench.states() == ["complete"] * 4


def test_ray_that_keeps_dying_is_given_up(bench: Bench) -> None:
    script = DyingRay()
    script.deaths = 5
    with pytest.raises(UserError, match="5 times before any run ended. .*resumes from the runs"):
        bench.run(script)
    assert bench.states() == ["new"] * 4


def test_deaths_of_ray_between_which_runs_end_are_no_reason_to_give_up(bench: Bench) -> None:
    script = DyingRay()
    script.deaths, script.ends_one_before = 3, True
    assert bench.run(script).trained == 4
    assert len(script.passes) == 4


def test_runs_that_failed_too_often_are_given_up(bench: Bench) -> None:
    _, b, *_ = bench.ids
    bench.run(Script(failures={b: 2}))
    idle = Script()
    assert bench.run(idle, max_attempts=2).failed == 1  # it was started twice
    assert idle.passes == []
    assert bench.said[-1] == (
        "of those, 1 were not tried again, since they were started 2 times or more; once the reason is fixed, give "
        "--max-attempts 4"
    )
    assert bench.run(Script(), max_attempts=3).failed == 0
    assert rows(bench.results.root)[b]["attempts"] == 3


class Together(Script):
    """Starts `runs_at_once` runs of a cohort, and runs out of memory if that is more than `fits`."""

    fits: int = 1
    reason: str = "OutOfMemoryError: CUDA out of memory"
    runs_at_once: list[list[int]]
    """`runs_at_once` of the cohorts, for each call."""

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
        self.runs_at_once = [*getattr(self, "runs_at_once", []), [cohort.runs_at_once for cohort in cohorts]]
        for cohort in cohorts:
            if cohort.runs_at_once <= self.fits:
                yield from super().train_cohorts([cohort], *arguments)
                continue
            for run_id in cohort.run_ids[: cohort.runs_at_once]:
                yield Started(run_id=run_id, step=0)
            yield TrialFailed(run_ids=cohort.run_ids, reason=self.reason)


def test_runs_that_ran_out_of_memory_train_half_as_many_at_a_time_and_later_sweeps_remember(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Together()
    assert bench.run(script).failed == 0
    assert script.runs_at_once == [[3, 1], [1]]  # the second cohort fits as it is
    assert bench.states() == ["complete"] * 4
    assert "3 runs that trained together failed (OutOfMemoryError" in capfd.readouterr().out
    study = write_study(bench.folder, rates=(1e-4, 1e-3, 1e-2, 1e-1, 0.3, 0.5), variants=("unfrozen-random",))
    bench.study = load_study(study).model_copy(update={"resources": Resources(runs_per_trial=2)})
    script = Together()
    bench.run(script)
    assert script.runs_at_once == [[1]]


def test_of_runs_that_fail_together_the_one_at_fault_fails_alone(bench: Bench) -> None:
    at_fault = bench.ids[1]
    script = Together(failures={at_fault: 99})
    script.reason = "RuntimeError: something in one of them"
    outcome = bench.run(script)
    assert (outcome.trained, outcome.failed) == (4, 1)
    assert bench.states() == ["complete", "failed", "complete", "complete"]
    assert not (bench.results.root / "places.json").exists()


class Disturbed(Script, ABC):
    """Starts the first run and is cut short, so many times; then trains as planned."""

    times: int = 1

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
        self.times -= 1
        if self.times < 0:
            yield from super().train_cohorts(cohorts, *arguments)
            return
        yield Started(run_id=cohorts[0].run_ids[0], step=0)
        yield from self.cut_short(cohorts[0].run_ids, arguments[2], arguments[3])

    @abstractmethod
    def cut_short(self, run_ids: list[str], machines: Machines, leave: threading.Event) -> Events:
        """Report how the first pass ends."""


class ShareChanges(Disturbed):
    def cut_short(self, run_ids: list[str], machines: Machines, leave: threading.Event) -> Events:
        while not leave.is_set():
            yield None


def test_another_share_of_the_cluster_packs_runs_anew(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    script = ShareChanges()
    script.times = 20

    def change(self: Share, wants: int) -> str | None:
        return "1 trials at once instead of 2" if script.times >= 0 else None

    bench.monkeypatch.setattr(Share, "change", change)
    outcome = bench.run(script)
    assert (outcome.trained, outcome.failed) == (4, 0)
    assert rows(bench.results.root)[bench.ids[0]]["attempts"] == 21
    assert capfd.readouterr().out.count("1 trials at once instead of 2; runs resume from their checkpoints") == 20


class MachineLost(Disturbed):
    def cut_short(self, run_ids: list[str], machines: Machines, leave: threading.Event) -> Events:
        """End the trial as the callback does when no retry is left."""
        if machines.overlook_loss(run_ids):
            yield TrialInterrupted(run_ids=run_ids)
        else:
            yield TrialFailed(run_ids=run_ids, reason="ActorUnavailableError: gone")


@pytest.mark.parametrize(("times", "failed"), [(MAX_LOSSES, 0), (MAX_LOSSES + 1, 1)])
def test_lost_machines_are_overlooked_unless_a_run_gets_no_further(bench: Bench, times: int, failed: int) -> None:
    script = MachineLost()
    script.times = times
    assert bench.run(script).failed == failed
    assert bench.states() == ["failed" if failed else "complete"] + ["complete"] * 3


class Killed(Script):
    """Its workers are killed by Ray's memory monitor before they begin a run."""

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
        for cohort in cohorts:
            yield TrialFailed(run_ids=cohort.run_ids, reason=f"{KILLED}: no memory")


def test_a_sweep_whose_workers_are_killed_again_and_again_ends_with_advice(bench: Bench) -> None:
    with pytest.raises(UserError, match="Train less at once, with a smaller --cpus"):
        bench.run(Killed())
    assert bench.states() == ["new"] * 4


class Retried(Script):
    """Its first trial fails and is tried again."""

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
        for number in range(3):
            yield TrialInterrupted(run_ids=cohorts[0].run_ids, reason=f"ImportError: no module {number}")
        yield from super().train_cohorts(cohorts, *arguments)


def test_the_first_failure_of_a_kind_is_printed_although_it_is_tried_again(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.run(Retried())
    lines = [line for line in capfd.readouterr().out.splitlines() if "ImportError" in line]
    assert lines == [
        "digits tiny unfrozen-random 1e-4 seed 0 and 2 runs in the same trial failed; it is tried again: ImportError: "
        "no module 0"
    ]


def test_scratch_of_tune_that_a_killed_process_left_goes_although_nothing_is_left_to_train(bench: Bench) -> None:
    bench.run(Script())
    left = bench.results.tune / "trials" / "tuner.pkl"
    left.parent.mkdir(parents=True)
    left.touch()
    assert bench.run(Script()).trained == 0
    assert not bench.results.tune.exists()
