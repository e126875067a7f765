"""Early stopping, with training replaced by a script: decisions, deaths, and studies that share runs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.plan.plan import Plan, plan_on
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study import settings
from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.sweep.tune import run_study
from lr_sweep.sweep.tune.run_study import Options
from lr_sweep.sweep.tune.trials import Reported, TrialEvent
from lr_sweep.tests.support.scripted_trials import Bench, Killed, evaluation, grid_bench, planned
from lr_sweep.tests.support.tiny_study import in_process, rows, succeeds
from lr_sweep.trainables.worker.messages import Advanced, Cohort, Finished, Started

RATES = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2)
EVERY, BUDGET = 10, 90
END = {"elapsed_s": 1.0, "engine": "stacked", "device": "none"}


def value_of(rate: float, step: int) -> float:
    return 0.9 - 0.1 * abs(math.log10(rate / 1e-3)) - 0.1 / step


@dataclass
class Lockstep:
    """Trains nothing; the runs of a cohort are at the same steps, as in the stacked engine."""

    saved: dict[str, int] = field(default_factory=dict)
    """Steps of checkpoints, by run id."""
    events_left: float = math.inf
    """Until it is killed."""
    trained: dict[str, int] = field(default_factory=dict)
    """Steps of each run that were trained here."""
    last_first: bool = False
    """Whether the last cohort trains first."""

    def train_cohorts(self, cohorts: list[Cohort], *arguments: Any) -> Generator[TrialEvent | None, None, None]:
        for cohort in reversed(cohorts) if self.last_first else cohorts:
            for event in self._train(cohort):
                if self.events_left <= 0:
                    raise Killed
                self.events_left -= 1
                yield event
        yield None

    def _train(self, cohort: Cohort) -> Generator[TrialEvent, None, None]:
        active = {run.run_id: (run, self.saved.get(run.run_id, 0)) for run in cohort.runs}
        for run_id, (run, step) in active.items():
            curve = tuple(evaluation(at, value_of(run.learning_rate, at)) for at in range(EVERY, step + 1, EVERY))
            yield Started(run_id=run_id, step=step, curve=curve)
        yield Reported()
        while active:
            for run_id, (_, step) in list(active.items()):
                request = cohort.stop_requests / run_id
                if request.exists() or step >= BUDGET:
                    del active[run_id]
                    yield Finished(run_id=run_id, step=step, status="complete" if step >= BUDGET else "stopped", **END)
            active = {run_id: (run, step + EVERY) for run_id, (run, step) in active.items()}
            self.saved |= {run_id: step for run_id, (_, step) in active.items()}  # before it is reported, as a session
            for run_id, (run, step) in active.items():
                self.trained[run_id] = self.trained.get(run_id, 0) + EVERY
                yield Advanced(run_id=run_id, step=step, evaluation=evaluation(step, value_of(run.learning_rate, step)))
            yield Reported()


def stopping_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, runs_per_trial: int = 100, **more: Any) -> Bench:
    """A bench of two cells with 2 seeds; every evaluation from 10 steps on is a rung.

    At 10 steps 1e-5 and 3e-2 are below the median of the others. Of the three that are left each has two others, which
    are too few to stop it.
    """
    more = {"num_steps": BUDGET, "rates": RATES, "seeds": 2, "runs_per_trial": runs_per_trial} | more
    return grid_bench(folder, monkeypatch, stop_early="median", **more)


def rungs(bench: Bench) -> pd.DataFrame:
    return pd.read_parquet(bench.results.study("tiny") / "rungs.parquet")


def by_rate(results: Results, column: str) -> dict[float, set[Any]]:
    found: dict[float, set[Any]] = {}
    for row in rows(results.root).values():
        found.setdefault(row["learning_rate"], set()).add(row[column])
    return found


def test_rates_below_the_median_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values but for the same summand: 0.7, 0.8, 0.9, 0.87 and 0.75. 1e-4 is below 0.81, the median of the others."""
    bench = stopping_bench(tmp_path, monkeypatch, rates=(1e-5, 1e-4, 1e-3, 2e-3, 3e-2))
    outcome = bench.run(Lockstep(), report=True)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (20, 0, False)
    stopped, complete = dict.fromkeys((1e-5, 1e-4, 3e-2), 10), dict.fromkeys((1e-3, 2e-3))
    assert by_rate(bench.results, "stopped_at_step") == {rate: {at} for rate, at in (stopped | complete).items()}
    assert {rate for rate, status in by_rate(bench.results, "status").items() if status == {"complete"}} == {*complete}
    cells = pd.read_csv(outcome.report.folder / "cells.csv")
    assert cells["learning_rate"].tolist() == [1e-3, 1e-3]
    found = [(each.check, each.level) for each in outcome.report.findings if each.check in ("stopped", "missing")]
    assert found == [("stopped", "note")] * 2
    assert bench.run(Lockstep()).trained == 0


def test_what_is_left_of_the_first_seed_gets_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above with one seed at first: the rates that were stopped have no value, so there are two winners of three."""
    bench = stopping_bench(tmp_path, monkeypatch, rates=(1e-5, 1e-4, 1e-3, 2e-3, 3e-2), winners="3")
    assert bench.run(Lockstep()).trained == 2 * (5 + 2)
    found = [(row["learning_rate"], row["seed"], row["status"]) for row in rows(bench.results.root).values()]
    assert {each for each in found if each[1] == 1 or each[2] == "complete"} == {
        (rate, seed, "complete") for rate in (1e-3, 2e-3) for seed in (0, 1)
    }
    assert bench.run(Lockstep()).trained == 0


def test_nothing_stops_before_the_first_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rung is at 11.1 steps, rounded up to an evaluation."""
    monkeypatch.setitem(globals(), "BUDGET", 100)
    bench = stopping_bench(tmp_path, monkeypatch, rates=(1e-5, 1e-4, 1e-3, 2e-3, 3e-2))
    bench.run(Lockstep())
    stopped = by_rate(bench.results, "stopped_at_step")
    assert (stopped[1e-3], stopped[2e-3], stopped[1e-5], stopped[3e-2]) == ({None}, {None}, {20}, {20})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        bench = stopping_bench(tmp_path_factory.mktemp("undisturbed"), patch)
        bench.run(Lockstep())
        yield bench


@pytest.mark.parametrize("num_events", [22, *(pytest.param(number, marks=pytest.mark.slow) for number in (0, 15, 40))])
def test_killed_at_any_moment_the_same_decisions_hold(
    undisturbed: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_events: int
) -> None:
    killed = stopping_bench(tmp_path, monkeypatch)
    saved: dict[str, int] = {}
    for events_left in (num_events, 14):
        with pytest.raises(Killed):
            killed.run(Lockstep(saved, events_left))
    killed.run(Lockstep(saved))
    order = ["variant", "learning_rate", "step"]
    decided, wanted = (rungs(each).sort_values(order, ignore_index=True) for each in (killed, undisturbed))
    pd.testing.assert_frame_equal(decided, wanted)
    for column in ("status", "stopped_at_step"):
        assert by_rate(killed.results, column) == by_rate(undisturbed.results, column)


def test_killed_while_a_rung_is_recorded_a_cell_is_judged_when_it_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record has 1e-5 alone at the rung; the other cell trains first after the kill. Of 5, 3 are kept."""
    bench = stopping_bench(tmp_path, monkeypatch, seeds=1)
    saved: dict[str, int] = {}
    with pytest.raises(Killed):
        bench.run(Lockstep(saved, 5 + 1 + 1))  # starts, their marker, an evaluation
    bench.run(Lockstep(saved, last_first=True))
    assert rungs(bench)["num_compared"].tolist() == 2 * ([5] * 5 + [3] * 3 * 7)


def test_a_decision_that_was_stored_holds_although_its_run_was_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = stopping_bench(tmp_path, monkeypatch)
    saved: dict[str, int] = {}
    with pytest.raises(Killed):
        bench.run(Lockstep(saved, 22))  # 10 starts, 10 evaluations at the first rung, 2 markers
    assert not rungs(bench)["kept"].all()
    assert rows(bench.results.root) == {}
    bench.run(Lockstep(saved))
    ended = {row["learning_rate"]: row["num_steps"] for row in rows(bench.results.root).values()}
    assert (ended[1e-5], ended[3e-2], ended[1e-3]) == (10, 10, 90)


def test_runs_one_by_one_are_compared_with_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three have fewer than three others, 1e-2 equals the median of those before it, 3e-2 is below it."""
    bench = stopping_bench(tmp_path, monkeypatch, runs_per_trial=1, seeds=1, variants=("unfrozen-random",))
    bench.run(Lockstep())
    assert by_rate(bench.results, "stopped_at_step") == {
        1e-5: {None}, 1e-4: {None}, 1e-3: {None}, 1e-2: {None}, 3e-2: {10}
    }  # fmt: skip
    assert rungs(bench)["num_compared"].tolist() == [1] * 8 + [2] * 8 + [3] * 8 + [4] * 8 + [5]


def test_another_study_trains_a_stopped_run_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = stopping_bench(tmp_path, monkeypatch, variants=("unfrozen-random",))
    saved: dict[str, int] = {}
    bench.run(Lockstep(saved))
    stopping = bench.study
    (tmp_path / "other").mkdir()
    text = study_to_yaml(stopping.model_copy(update={"stop_early": None, "study": "whole"}))
    (tmp_path / "whole.yaml").write_text(text)
    bench.study = load_study(tmp_path / "whole.yaml")
    script = Lockstep(saved)
    outcome = bench.run(script)
    assert outcome.trained == sum(steps > 0 for steps in script.trained.values()) == 4
    assert set(script.trained.values()) == {BUDGET - 10}
    assert by_rate(bench.results, "status") == {rate: {"complete"} for rate in RATES}
    bench.study = stopping
    outcome = bench.run(Lockstep(), report=True)
    assert outcome.trained == 0
    assert not [each for each in outcome.report.findings if each.check == "stopped"]


def test_plan_status_and_a_copy_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = stopping_bench(tmp_path, monkeypatch)
    bench.run(Lockstep())
    plan = planned(bench)
    assert "stops      median;" in plan_on(plan, {"CPU": 2.0})
    assert not plan.reconciled.to_train
    text = in_process("status", tmp_path / "tiny.yaml", "--results", bench.results.root)[1]
    assert "stopped" in text
    stopped = next(row["run_id"] for row in rows(bench.results.root).values() if row["stopped_at_step"])
    assert "up to step 90: stopped" in in_process("show", stopped, "--results", bench.results.root)[1]
    succeeds("verify", "--results", bench.results.root)
    copy = Results(Path(shutil.copytree(bench.results.root, tmp_path / "copy")))
    assert not Plan(bench.study, plan.placement, copy, tmp_path).reconciled.to_train


@pytest.mark.parametrize(
    ("num_steps", "wanted"),
    [
        (900, (100, 200, 300, 400, 500, 600, 700, 800)),
        (1000, (200, 300, 400, 500, 600, 700, 800, 900)),  # a ninth is 111 steps
        (300, (100, 200)),
        (100, ()),
    ],
)
def test_rungs(num_steps: int, wanted: tuple[int, ...]) -> None:
    assert tuple(settings.rungs(num_steps, 100)) == wanted


def test_on_a_cluster_with_results_in_an_object_store_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = stopping_bench(tmp_path, monkeypatch)
    bench.results.uri = "s3://bucket/results"
    placement = Placement(resources=bench.study.resources, address="10.0.0.1:6379")
    monkeypatch.setattr(run_study, "check_beforehand", lambda *arguments: None)
    options = Options(results=bench.results, data_dir=tmp_path, placement=placement)
    with pytest.raises(UserError, match="got `stop_early` on a cluster with results in s3://bucket/results, want"):
        run_study.run_study(bench.study, options, bench.said.append)
    assert not bench.results.root.exists()
