"""Trials that fail, are killed, lose their machine or their share of the cluster; Ray is replaced by a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_json
from lr_sweep.sweep.tune import broken_nodes, trials
from lr_sweep.sweep.tune.nodes import Machines, Share
from lr_sweep.sweep.tune.ray_session import RayLostError
from lr_sweep.sweep.tune.trials import TrialFailed, TrialInterrupted
from lr_sweep.tests.support.scripted_trials import Bench, Disturbed, Events, Script, new_bench
from lr_sweep.tests.support.tiny_study import rows
from lr_sweep.trainables.worker.messages import Started
from lr_sweep.trainables.worker.ray_internals import KILLED


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return new_bench(tmp_path, monkeypatch)


def test_a_retry_that_helps_counts_nothing_twice(bench: Bench) -> None:
    _, b, *_ = bench.ids
    script = Script(failures={b: 1})  # the study allows one retry; `a` then reports its end once more
    outcome = bench.run(script)
    assert len(script.passes) == 1
    assert (outcome.trained, outcome.failed) == (4, 0)
    recorded = rows(bench.results.root)
    assert [recorded[run_id]["attempts"] for run_id in bench.ids] == [1, 2, 1, 1]


def test_many_trials_at_once_report_less_often(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "REPORTS_PER_S", 0.2)  # so that two are many
    given: list[float] = []

    class Seen(Script):
        def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
            given.extend(cohort.report_every_s for cohort in cohorts)
            yield from super().train_cohorts(cohorts, *arguments)

    monkeypatch.setattr(Share, "_now", lambda share, wants: (min(wants, 8), True))
    bench.run(Seen())
    assert given == [10.0, 10.0]


def test_what_a_killed_driver_had_trained_counts_as_lost(bench: Bench) -> None:
    first, *_ = bench.ids
    bench.results.prepare()
    write_json(bench.results.progress("tiny"), {"training": {first: 7}})
    bench.run(Script())
    assert {run_id: row["lost_steps"] for run_id, row in rows(bench.results.root).items()} == {
        run_id: 7 if run_id == first else 0 for run_id in bench.ids
    }


def test_a_trial_that_cannot_start_fails_all_its_runs(bench: Bench) -> None:
    a, *_ = bench.ids
    script = Script(failures={a: 2}, at_start={a})
    outcome = bench.run(script)
    assert len(script.passes) == 1
    assert outcome.failed == 3
    assert bench.states() == ["failed", "failed", "failed", "complete"]


def test_a_sweep_whose_first_attempts_all_fail_alike_ends(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    def retried(cohorts: Any, *arguments: Any) -> Events:
        for number in range(99):
            yield TrialInterrupted(run_ids=cohorts[number % 2].run_ids, reason=f"ImportError: no module {number}")
            yield None

    with pytest.raises(UserError, match="the first 3 attempts all failed, .*: ImportError: no module 2. The"):
        bench.run(Disturbed(retried))
    recorded = rows(bench.results.root)
    first, *_, last = bench.ids
    assert [recorded[run_id]["attempts"] for run_id in (first, last)] == [2, 1]
    assert "failed; it is tried again: ImportError: no module 0" in capfd.readouterr().out


def test_a_study_that_failed_is_trained_anew(bench: Bench) -> None:
    with pytest.raises(UserError, match="attempts all failed"):
        bench.run(Script(failures=dict.fromkeys(bench.ids, 9)))
    assert bench.run(Script(), retry_failed=True).failed == 0
    assert bench.states() == ["complete"] * 4


def test_a_sweep_in_which_something_worked_trains_the_rest(bench: Bench) -> None:
    _, *others = bench.ids
    assert bench.run(Script(failures=dict.fromkeys(others, 2))).failed == 3
    assert bench.states() == ["complete", "failed", "failed", "failed"]


def ray_dies(*_: object) -> Events:
    yield None
    raise RayLostError("Ray died (raylet ended unexpectedly)")


def test_ray_that_keeps_dying_is_given_up(bench: Bench) -> None:
    with pytest.raises(UserError, match="5 times before any run ended. .*resumes from the runs"):
        bench.run(Disturbed(*[ray_dies] * 5))
    assert bench.states() == ["waiting"] * 4


def test_ray_is_started_again_when_it_dies_as_long_as_runs_end_between_five_deaths(bench: Bench) -> None:
    def dies_after_a_run(*arguments: Any) -> Events:
        yield from script.train_first(*arguments)
        yield from ray_dies()

    script = Disturbed(*[ray_dies] * 4, dies_after_a_run, *[ray_dies] * 3)
    assert bench.run(script).trained == 4
    assert bench.states() == ["complete"] * 4
    assert len(script.passes) == 2


class Together(Script):
    """Starts `runs_at_once` runs of a cohort, and fails if that is more than one."""

    def __init__(self, reason: str, **more: Any) -> None:
        super().__init__(**more)
        self.reason, self.runs_at_once = reason, list[list[int]]()

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
        self.runs_at_once.append([cohort.runs_at_once for cohort in cohorts])
        for cohort in cohorts:
            if cohort.runs_at_once == 1:
                yield from super().train_cohorts([cohort], *arguments)
                continue
            for run_id in cohort.run_ids[: cohort.runs_at_once]:
                yield Started(run_id=run_id, step=0)
            yield TrialFailed(run_ids=cohort.run_ids, reason=self.reason)


def test_runs_that_ran_out_of_memory_train_half_as_many_at_a_time(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Together("OutOfMemoryError: CUDA out of memory")
    assert bench.run(script).failed == 0
    assert script.runs_at_once == [[3, 1], [1]]  # the second cohort fits as it is
    assert bench.states() == ["complete"] * 4
    assert "3 runs that trained together failed (OutOfMemoryError" in capfd.readouterr().out


def test_of_runs_that_fail_together_the_one_at_fault_fails_alone(bench: Bench) -> None:
    script = Together("RuntimeError: something in one of them", failures={bench.ids[1]: 99})
    outcome = bench.run(script)
    assert (outcome.trained, outcome.failed) == (4, 1)
    assert bench.states() == ["complete", "failed", "complete", "complete"]


def test_another_share_of_the_cluster_packs_runs_anew(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    def share_changes(cohorts: Any, *arguments: Any) -> Events:
        yield Started(run_id=cohorts[0].run_ids[0], step=0)
        while not arguments[3].is_set():
            yield None

    def change(self: Share, wants: int) -> str | None:
        return "1 trials at once instead of 2" if not script.passes else None

    script = Disturbed(*[share_changes] * 20)
    bench.monkeypatch.setattr(Share, "change", change)
    outcome = bench.run(script)
    assert (outcome.trained, outcome.failed) == (4, 0)
    assert rows(bench.results.root)[bench.ids[0]]["attempts"] == 21
    assert capfd.readouterr().out.count("1 trials at once instead of 2; runs resume from their checkpoints") == 20


def test_runs_whose_worker_is_killed_for_memory_train_half_as_many_at_a_time_at_once(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    """The trial itself is tried again with fewer, and so are later passes."""

    def is_killed(cohorts: Any, *arguments: Any) -> Events:
        for run_id in cohorts[0].run_ids:
            yield Started(run_id=run_id, step=0)
        yield TrialInterrupted(run_ids=cohorts[0].run_ids, reason=f"{KILLED}: memory is full")

    assert bench.run(Disturbed(is_killed)).failed == 0
    printed = capfd.readouterr().out
    assert "3 runs that trained together failed (killed by" in printed
    assert "they resume from their checkpoints, 1 at a time" in printed
    assert bench.states() == ["complete"] * 4


def test_a_start_that_is_broken_off_is_no_attempt(bench: Bench) -> None:
    """The run's machine is lost, then the share of the cluster changes before its trial has started again."""

    def loses_machine_and_share(cohorts: Any, *arguments: Any) -> Events:
        yield Started(run_id=cohorts[0].run_ids[0], step=0)
        yield TrialInterrupted(run_ids=cohorts[0].run_ids)
        yield TrialInterrupted(run_ids=cohorts[1].run_ids)

    bench.run(Disturbed(loses_machine_and_share))
    recorded = rows(bench.results.root)
    assert [recorded[run_id]["attempts"] for run_id in bench.ids] == [2, 1, 1, 1]


@pytest.mark.parametrize("kind", [TrialFailed, TrialInterrupted])
def test_runs_that_fail_on_one_node_only_are_trained_elsewhere(
    bench: Bench, capfd: pytest.CaptureFixture[str], kind: Any
) -> None:
    def broken(cohorts: Any, *arguments: Any) -> Events:
        for number, run_id in enumerate(cohorts[0].run_ids[:2]):
            yield kind(run_ids=[run_id], reason=f"OSError: Input/output error: '/mnt/{number}'", node="x")

    bench.monkeypatch.setattr(Machines, "usable", lambda machines, placement: {"x", "y"} - machines.excluded)
    bench.monkeypatch.setattr(broken_nodes, "node_text", lambda node: "10.0.0.1")
    outcome = bench.run(Disturbed(broken))
    assert (outcome.trained, outcome.failed) == (4, 0)
    printed = capfd.readouterr().out
    assert printed.count("trials fail on 10.0.0.1 (OSError: Input/output error: '/mnt/1'): it is left, its runs") == 1
