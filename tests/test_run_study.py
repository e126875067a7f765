"""What `run` does with what trials report, with Ray replaced by a script."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.record import read_wanted
from sweep import run_study as module
from sweep.errors import UserError
from sweep.placement import Placement
from sweep.ray_session import RayLostError
from sweep.reconcile import reconcile
from sweep.results import Results
from sweep.run_study import write_wanted
from sweep.sharing import Share, ShareChangedError
from sweep.standing import State
from sweep.study import Resources
from sweep.study_file import load_study
from sweep.trials import TrialEvents
from tests.scripted_trials import Bench, NoMirror, Script, new_bench
from tests.tiny_study import rows, runs_of, write_study
from trainables.run import Run


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
    assert set(NoMirror.told) == set(bench.ids)
    assert bench.results.progress("tiny").exists()


def test_a_retry_that_helps_counts_nothing_twice(bench: Bench) -> None:
    _, b, *_ = bench.ids
    script = Script(failures={b: 1})  # the study allows one retry; `a` then reports its end once more
    outcome = bench.run(script)
    assert len(script.passes) == 1
    assert (outcome.trained, outcome.failed) == (4, 0)
    recorded = rows(bench.results.root)
    assert [recorded[run_id]["attempts"] for run_id in bench.ids] == [1, 2, 1, 1]


def test_a_run_that_fails_does_not_take_its_neighbours_with_it(bench: Bench) -> None:
    a, b, c, d = bench.ids
    script = Script(failures={b: 2})
    outcome = bench.run(script)
    assert script.passes == [[[a, b, c], [d]], [[c]]]
    assert (outcome.trained, outcome.failed, outcome.stopped) == (4, 1, False)
    assert bench.states() == ["complete", "failed", "complete", "complete"]
    assert rows(bench.results.root)[b]["failure"] == "RuntimeError: scripted"
    assert bench.said[-1] == "1 runs failed; `status` says why, `run --retry-failed` trains them again"


def test_a_trial_that_cannot_start_fails_all_its_runs(bench: Bench) -> None:
    a, *_ = bench.ids
    script = Script(failures={a: 2}, at_start={a})
    outcome = bench.run(script)
    assert len(script.passes) == 1
    assert outcome.failed == 3
    assert bench.states() == ["failed", "failed", "failed", "complete"]


def test_failed_runs_are_trained_again_on_request_only(bench: Bench) -> None:
    _, b, *_ = bench.ids
    bench.run(Script(failures={b: 2}))
    idle = Script()
    assert bench.run(idle).failed == 1  # still
    assert idle.passes == []
    assert "1 runs failed" in bench.said[-1]
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


def test_the_mirror_is_told_of_all_that_is_recorded(bench: Bench) -> None:
    """Runs that ended without a curve, too: another sweep's mirror may have been out of reach."""
    a, b, c, d = bench.ids
    bench.run(Script(failures={b: 2}))
    assert not bench.results.curve(b).exists()
    bench.run(Script())
    assert set(NoMirror.told) == {a, b, c, d}


def test_a_problem_of_a_trial_s_thread_reaches_the_user(bench: Bench) -> None:
    def broken(*arguments: Any) -> bool:
        raise OSError(28, "No space left on device", "/results/runs/a")

    with bench.monkeypatch.context() as patch:
        patch.setattr(Script, "train_cohorts", broken)
        with pytest.raises(module.UserError, match="cannot write to /results/runs/a: No space left on device"):
            bench.run(Script())
    assert bench.run(Script()).trained == 4  # nothing is locked, the same command goes on


def test_stopping_leaves_the_rest_for_later(bench: Bench) -> None:
    with bench.monkeypatch.context() as patch:
        patch.setattr(Script, "train_cohorts", lambda *arguments: False)
        outcome = bench.run(Script())
    assert (outcome.trained, outcome.stopped) == (0, True)
    assert bench.said[-1] == "stopped; the same command resumes from here"
    assert bench.states() == ["new"] * 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_before_runs_are_saved(
    bench: Bench, capfd: pytest.CaptureFixture[str], number: int
) -> None:
    def interrupted(*arguments: Any) -> bool:
        cohorts, events, stop = arguments[1], arguments[6], arguments[7]
        run_id = Run.from_content(cohorts[0][0].content).run_id
        events.on_event({"kind": "started", "run_id": run_id, "step": 0, "evaluations": [], "damaged": []})
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        return False

    with bench.monkeypatch.context() as patch:
        patch.setattr(Script, "train_cohorts", interrupted)
        before = signal.getsignal(number)
        assert bench.run(Script()).stopped
        assert signal.getsignal(number) is before
    assert capfd.readouterr().out.splitlines()[0] == "saving 1 run; press Ctrl-C again to leave at once"


@pytest.mark.parametrize("ends_ray", [False, True])
def test_a_signal_while_ray_starts_trains_nothing(bench: Bench, ends_ray: bool) -> None:
    """With `ends_ray`: it went to the whole process group."""

    @contextlib.contextmanager
    def starts(placement: Placement, log_file: Path) -> Iterator[Share]:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        if ends_ray:
            raise RayLostError("Ray did not start")
        yield Share(placement, list, None)

    bench.monkeypatch.setattr(module, "ray_session", starts)
    script = Script()
    assert bench.run(script).stopped
    assert (script.passes, bench.states()) == ([], ["new"] * 4)
    assert bench.said[-1] == "stopped; the same command resumes from here"


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

    def train_cohorts(
        self, cohorts: Any, names: Any, places: Any, placement: Any, results: Any, events: Any, stop: Any, at_most: Any
    ) -> bool:
        if not self.deaths:
            return super().train_cohorts(cohorts, names, places, placement, results, events, stop, at_most)
        self.deaths -= 1
        if self.ends_one_before:
            super().train_cohorts([cohorts[0][:1]], names[:1], places[:1], placement, results, events, stop, at_most)
        raise RayLostError("Ray died (raylet ended unexpectedly)")


def test_ray_is_started_again_when_it_dies(bench: Bench) -> None:
    script = DyingRay()
    script.deaths = 5
    assert bench.run(script).trained == 4
    assert bench.states() == ["complete"] * 4


def test_ray_that_keeps_dying_is_given_up(bench: Bench) -> None:
    script = DyingRay()
    script.deaths = 6
    with pytest.raises(UserError, match="6 times before any run ended. Is there memory enough"):
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
        "of those, 1 had been started 2 times or more and were not tried again; once their reason is mended: "
        "--max-attempts 4"
    )
    assert bench.run(Script(), max_attempts=3).failed == 0
    assert rows(bench.results.root)[b]["attempts"] == 3


class Together(Script):
    """Starts as many runs of a cohort as it is told to, and runs out of memory if they are more than fit."""

    fits: int = 1
    reason: str = "OutOfMemoryError: CUDA out of memory"
    places: list[list[int]]
    """Of the cohorts of each call."""

    def train_cohorts(
        self, cohorts: Any, names: Any, places: Any, placement: Any, results: Any, events: Any, stop: Any, at_most: Any
    ) -> bool:
        self.places = [*getattr(self, "places", []), list(places)]
        for cohort, name, number in zip(cohorts, names, places, strict=True):
            if number <= self.fits:
                super().train_cohorts([cohort], [name], [number], placement, results, events, stop, at_most)
                continue
            run_ids = [Run.from_content(each.content).run_id for each in cohort]
            for run_id in run_ids[:number]:
                events.on_event({"kind": "started", "run_id": run_id, "step": 0, "evaluations": [], "damaged": []})
            events.on_failure(run_ids, self.reason)
        return True


def test_runs_that_ran_out_of_memory_train_half_as_many_at_a_time_and_later_sweeps_remember(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Together()
    assert bench.run(script).failed == 0
    assert script.places == [[3, 1], [1]]  # the second cohort fits as it is
    assert bench.states() == ["complete"] * 4
    assert "3 runs that trained together failed (OutOfMemoryError" in capfd.readouterr().out
    study = write_study(bench.folder, rates=(1e-4, 1e-3, 1e-2, 1e-1, 0.3, 0.5), variants=("unfrozen-random",))
    bench.study = load_study(study).model_copy(update={"resources": Resources(runs_per_trial=2)})
    script = Together()
    bench.run(script)
    assert script.places == [[1]]


def test_of_runs_that_fail_together_the_one_at_fault_fails_alone(bench: Bench) -> None:
    at_fault = bench.ids[1]
    script = Together(failures={at_fault: 99})
    script.reason = "RuntimeError: something in one of them"
    outcome = bench.run(script)
    assert (outcome.trained, outcome.failed) == (4, 1)
    assert bench.states() == ["complete", "failed", "complete", "complete"]
    assert not (bench.results.root / "places.json").exists()


class Disturbed(Script):
    """Starts the first run and is cut short, so many times; then goes on as planned."""

    times: int = 1

    def __init__(self, cut_short: Callable[[TrialEvents, list[str]], None], times: int) -> None:
        super().__init__()
        self.cut_short, self.times = cut_short, times

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> bool:
        self.times -= 1
        if self.times < 0:
            return super().train_cohorts(cohorts, *arguments)
        events, run_ids = arguments[4], [Run.from_content(each.content).run_id for each in cohorts[0]]
        events.on_event({"kind": "started", "run_id": run_ids[0], "step": 0, "evaluations": [], "damaged": []})
        self.cut_short(events, run_ids)
        return True


def test_another_share_of_the_cluster_packs_runs_anew(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    def share_changed(events: TrialEvents, run_ids: list[str]) -> None:
        raise ShareChangedError("1 trials at once instead of 2")

    outcome = bench.run(Disturbed(share_changed, times=20))
    assert (outcome.trained, outcome.failed) == (4, 0)
    assert rows(bench.results.root)[bench.ids[0]]["attempts"] == 21
    assert "1 trials at once instead of 2; runs resume from their checkpoints" in capfd.readouterr().out


def lose_the_machine(events: TrialEvents, run_ids: list[str]) -> None:
    """As the callback does when no retry is left."""
    if events.on_machine_lost(run_ids):
        events.on_interruption(run_ids)
    else:
        events.on_failure(run_ids, "ActorUnavailableError: gone")


@pytest.mark.parametrize(("times", "failed"), [(module.MAX_DEATHS, 0), (module.MAX_DEATHS + 1, 1)])
def test_lost_machines_are_overlooked_unless_a_run_gets_no_further(bench: Bench, times: int, failed: int) -> None:
    assert bench.run(Disturbed(lose_the_machine, times)).failed == failed
    assert bench.states() == ["failed" if failed else "complete"] + ["complete"] * 3
