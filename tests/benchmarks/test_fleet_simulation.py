"""The simulated fleet against answers worked out by hand."""

from __future__ import annotations

import dataclasses
import heapq
import math
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.benchmarks.fleet import Fleet, Outcome, Trial, simulate
from lr_sweep.benchmarks.fleet_study import FLOORS, Costs, checkpoint_gb, study_runs
from lr_sweep.sweep.plan.packing import cohorts
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.study.study import Resources

TRIAL = Trial(work_s=100, checkpoint_every_s=30, checkpoint_s=1)
"""Three checkpoints, after 30, 61 and 92 s; it ends after 103 s."""
FLEET = Fleet(num_nodes=1, gpus_per_node=1, node_start_s=10, worker_start_s=0, trial_start_s=0, idle_s=600)


MNIST = ("mnist", "gpt2", "frozen-random")


class LostAt:
    """Draws for the first machine that it is lost after so many seconds, for the others that they last."""

    def __init__(self, *after_s: float) -> None:
        self.after_s = list(after_s)

    def exponential(self, mean_s: float) -> float:
        return self.after_s.pop(0) if self.after_s else math.inf

    def random(self) -> float:
        return 0.5


def simulated(trials: list[Trial], fleet: Fleet, *lost_after_s: float) -> Outcome:
    return simulate(trials, fleet, cast(np.random.Generator, LostAt(*lost_after_s)))


def changed(fleet: Fleet = FLEET, **fields: float) -> Fleet:
    return dataclasses.replace(fleet, **fields)  # type: ignore[arg-type]


def test_undisturbed_trials_take_turns() -> None:
    outcome = simulated([TRIAL] * 5, changed(gpus_per_node=2))
    assert outcome.makespan_s == 10 + 3 * 103
    assert outcome.paid_s == outcome.makespan_s
    assert outcome.checkpoints_s == 5 * 3
    assert (outcome.lost_s, outcome.num_lost_nodes) == (0, 0)


def test_no_more_machines_than_there_are_trials_for() -> None:
    outcome = simulated([TRIAL] * 5, changed(num_nodes=200, gpus_per_node=2))
    assert outcome.makespan_s == 10 + 103
    assert outcome.paid_s == 3 * 113


def test_a_failure_loses_what_no_checkpoint_holds() -> None:
    outcome = simulated([TRIAL], changed(failures_per_hour=1), 75)
    # Checkpoints end at 31 and 62 s and hold 60 s of work; 13 s more are lost. The other machine is there 10 s later,
    # and 40 s of work take 41 s.
    assert outcome.lost_s == 13
    assert outcome.makespan_s == 10 + 75 + 10 + 41
    assert outcome.checkpoints_s == 3
    assert outcome.paid_s == outcome.makespan_s
    assert (outcome.num_lost_nodes, outcome.most_failures) == (1, 1)


def test_a_failure_within_a_checkpoint_loses_all_since_the_one_before() -> None:
    assert simulated([TRIAL], changed(failures_per_hour=1), 30.5).lost_s == 30


def test_with_a_notice_nothing_is_lost() -> None:
    outcome = simulated([TRIAL], changed(interruptions_per_hour=1, notice_s=120), 75)
    assert outcome.lost_s == 0
    assert outcome.makespan_s == 10 + 75 + 10 + 27  # 73 s of work were done
    assert outcome.checkpoints_s == 3
    assert outcome.paid_s == (10 + 75 + 120) + (10 + 27)
    assert (outcome.num_lost_nodes, outcome.most_failures) == (1, 0)


def test_a_notice_too_short_for_a_checkpoint_is_none() -> None:
    slow = dataclasses.replace(TRIAL, checkpoint_s=5)
    assert simulated([slow], changed(interruptions_per_hour=1, notice_s=4), 75).lost_s == 75 - 2 * 5 - 60


def test_a_failure_takes_all_trials_of_a_machine() -> None:
    fleet = changed(gpus_per_node=8, num_nodes=2, failures_per_hour=1)
    outcome = simulated([TRIAL] * 16, fleet, 75)
    assert outcome.lost_s == 8 * 13
    assert outcome.makespan_s == 10 + 75 + 10 + 41


def test_a_machine_without_work_is_given_back() -> None:
    short = dataclasses.replace(TRIAL, work_s=20)
    outcome = simulated([short, TRIAL], changed(num_nodes=2, idle_s=5))
    assert outcome.paid_s == (10 + 20 + 5) + (10 + 103)


def test_the_driver_starts_one_trial_at_a_time() -> None:
    outcome = simulated([TRIAL] * 3, changed(gpus_per_node=3, trial_start_s=2, worker_start_s=7))
    assert outcome.makespan_s == 10 + 3 * 2 + 7 + 103


def test_a_driver_with_too_much_to_do_slows_training() -> None:
    busy = dataclasses.replace(TRIAL, driver_load=0.5)
    assert simulated([busy] * 2, changed(gpus_per_node=2)).makespan_s == 10 + 103
    outcome = simulated([busy] * 4, changed(gpus_per_node=4))
    assert outcome.makespan_s == 10 + 2 * 103
    assert outcome.peak_driver_load == 2
    assert outcome.driver_s == 2 * 103


@pytest.mark.parametrize("num_trials", [50, 190, 210, 400])
def test_that_slowdown_is_the_one_of_trials_that_wait_in_line(num_trials: int) -> None:
    report_every_s, event_s = 2.0, 0.01
    exact = trained_in_line(num_trials, report_every_s, event_s, 200.0) / (num_trials * 200.0)
    load = num_trials * event_s / report_every_s
    assert exact == pytest.approx(1 / max(1.0, load), rel=0.02)


def trained_in_line(num_trials: int, report_every_s: float, event_s: float, duration_s: float) -> float:
    """Sum of the training of trials that each report, wait for their turn with the driver, and train on."""
    rng, trained_s, free_s = np.random.default_rng(0), 0.0, 0.0
    reports = [float(at) for at in rng.uniform(0, report_every_s, num_trials)]
    heapq.heapify(reports)
    while reports[0] < duration_s:
        free_s = max(free_s, reports[0]) + event_s
        heapq.heapreplace(reports, free_s + report_every_s)
        trained_s += report_every_s
    return trained_s


def test_the_best_interval_is_near_young_s_and_daly_s() -> None:
    checkpoint_s, between_failures_s = 10.0, 2000.0
    best_s = math.sqrt(2 * checkpoint_s * between_failures_s)
    fleet = changed(num_nodes=200, node_start_s=0, failures_per_hour=3600 / between_failures_s)

    def waste(every_s: float) -> float:
        trials = [Trial(work_s=20_000, checkpoint_every_s=every_s, checkpoint_s=checkpoint_s)] * 200
        outcome = simulate(trials, fleet, np.random.default_rng(0))
        return (outcome.lost_s + outcome.checkpoints_s) / (200 * 20_000)

    found = {factor: waste(factor * best_s) for factor in (0.25, 0.5, 1.0, 2.0, 4.0)}
    assert best_s == 200
    assert min(found, key=lambda factor: found[factor]) == 1.0
    # To first order a checkpoint each interval, and half an interval each failure.
    assert found[1.0] == pytest.approx(10 / 200 + 100 / 2000, rel=0.1)


@given(
    seed=st.integers(0, 1000),
    works=st.lists(st.floats(1, 500), min_size=1, max_size=20),
    notice_s=st.sampled_from([0.0, 120.0]),
)
def test_time_that_is_paid_is_there_for_all_that_was_done(seed: int, works: list[float], notice_s: float) -> None:
    trials = [Trial(work_s=work, checkpoint_every_s=30, checkpoint_s=1, driver_load=0.2) for work in works]
    lossy = changed(num_nodes=3, gpus_per_node=2, failures_per_hour=10, interruptions_per_hour=10, notice_s=notice_s)
    outcome = simulate(trials, lossy, np.random.default_rng(seed))
    done_s = sum(works) + outcome.lost_s + outcome.checkpoints_s
    assert done_s <= 2 * outcome.paid_s + len(works) * outcome.num_lost_nodes  # a last checkpoint after the notice
    assert outcome.makespan_s >= 10 + max(works)
    assert outcome == simulate(trials, lossy, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def runs() -> list[WantedRun]:
    return study_runs()


def test_the_study_s_cohorts_as_trials(runs: list[WantedRun]) -> None:
    assert len(runs) == 10_000
    groups = cohorts(runs, Resources(gpus_per_trial=1), at_once=1600)
    assert len(groups) == 1600
    costs = Costs(run_step_ms=FLOORS, storage_gb_per_s=0.5, result_s=0.002, evaluation_s=0.003)
    trials = [costs.trial(group, None) for group in groups]
    assert max(trial.work_s for trial in trials) < 2 * sum(trial.work_s for trial in trials) / 1600
    # 625 runs in 6 trials, as even as can be.
    (mnist,) = [group for group in groups if group[0] is next(run for run in runs if run.cell == MNIST)]
    assert len(mnist) == 104
    trial = costs.trial(mnist, None)
    assert trial.work_s == pytest.approx(400_000 * 104 * 0.34e-3)
    assert trial.checkpoint_every_s == 60  # the next evaluation is 2000 * 104 * 0.34e-3 = 70.72 s away
    assert trial.checkpoint_s == pytest.approx(2 * checkpoint_gb(mnist))
    # A result every 2 s and at every evaluation, which is one of 104 runs.
    assert trial.driver_load == pytest.approx(0.002 * (1 / 2 + 1 / 70.72) + 0.003 * 104 / 70.72)


def test_step_times_between_and_beyond_those_given_lie_on_a_line(runs: list[WantedRun]) -> None:
    costs = Costs(
        run_step_ms={"frozen": {"64": 1.0, "1024": 7.0}, "unfrozen": {"64": 2.0, "1024": 2.0}},
        **{"storage_gb_per_s": 1.0, "result_s": 0.0, "evaluation_s": 0.0},
    )
    steps_ms = {run.cell: 1000 * costs.run_step_s(run) for run in runs[:400]}
    assert steps_ms[MNIST] == pytest.approx(1.0)
    assert steps_ms["cifar10-lra", "gpt2", "frozen-pretrained"] == pytest.approx(7.0)
    assert steps_ms["listops", "gpt2", "frozen-random"] == pytest.approx(1 + 6 * (2000 - 64) / 960)
    assert steps_ms["listops", "gpt2", "unfrozen-random"] == pytest.approx(2.0)
