"""Searched studies trained by a script: rounds, and what a death at any moment changes, which is nothing."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.plan.plan import Plan
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.dashboard import JOURNAL
from lr_sweep.sweep.search.proposals import read_proposals
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.sweep.tune import run_study
from lr_sweep.sweep.tune.trial_events import TrialEvent, TrialFailed
from lr_sweep.tests.support.scripted_trials import Bench, Script, evaluation, new_bench
from lr_sweep.tests.support.tiny_study import in_process, rows
from lr_sweep.tests.sweep.study.test_search import searched
from lr_sweep.trainables.cohort import Cohort
from lr_sweep.trainables.events import Advanced, Finished, Started


class Killed(BaseException):
    """Stands for `kill -9`: nothing catches it."""


@dataclass
class Landscape(Script):
    """Trains nothing; a run's accuracy falls from 1e-3 on, and it diverges above 3e-2."""

    events_left: float = math.inf
    """Until it is killed."""
    rounds: list[set[float]] = field(default_factory=list)
    """Learning rates of each call."""

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Generator[TrialEvent | None, None, None]:
        self.rounds.append({run.learning_rate for cohort in cohorts for run in cohort.runs})
        for cohort in cohorts:
            for event in self._events(cohort):
                if self.events_left <= 0:
                    raise Killed
                self.events_left -= 1
                yield event
        yield None

    def _events(self, cohort: Cohort) -> Generator[TrialEvent, None, None]:
        for run, run_id in zip(cohort.runs, cohort.run_ids, strict=True):
            yield Started(run_id=run_id, step=0)
            end = {"elapsed_s": 1.0, "engine": "stacked", "device": "none"}
            if run.learning_rate > 3e-2:
                yield Finished(run_id=run_id, step=10, status="diverged", diverged_at_step=10, **end)
                continue
            value = 0.9 - 0.1 * abs(math.log10(run.learning_rate / 1e-3)) + 0.01 * run.seed
            for step in (10, cohort.num_steps):
                yield Advanced(run_id=run_id, step=step, evaluation=evaluation(step, value), step_s=0.1)
            yield Finished(run_id=run_id, step=cohort.num_steps, status="complete", **end)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return search_bench(tmp_path, monkeypatch)


def search_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, sampler: str = "tpe", rates: int = 6) -> Bench:
    folder.mkdir(exist_ok=True)
    made = new_bench(folder, monkeypatch)
    search = f"{{sampler: {sampler}, low: 1e-5, high: 1e-1, rates: {rates}}}\nseeds: 2"
    path = searched(folder, search)
    path.write_text(path.read_text().replace("seeds: 1\n", ""))
    made.study = load_study(path)
    return made


def proposed(bench: Bench) -> pd.DataFrame:
    return pd.read_parquet(bench.results.proposals("tiny"))


def test_a_search_trains_round_by_round(bench: Bench) -> None:
    script = Landscape()
    outcome = bench.run(script)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (24, 0, False)
    found = proposed(bench)
    assert found.groupby("variant")["number"].apply(list).tolist() == [[0, 1, 2, 3, 4, 5]] * 2
    assert found.groupby("variant")["round"].apply(list).tolist() == [[1, 1, 2, 2, 3, 3]] * 2
    assert script.rounds == [set(found.loc[found["round"] == number, "learning_rate"]) for number in (1, 2, 3)]
    assert set(read_wanted(bench.results.root, "tiny")["run_id"]) == set(rows(bench.results.root))
    assert bench.run(Landscape()).trained == 0
    assert bench.said[-1] == "nothing to train: the record holds everything the study wants"


@pytest.mark.parametrize("num_events", [0, 7, 27, 60])
def test_a_search_killed_at_any_moment_proposes_and_trains_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_events: int
) -> None:
    undisturbed = search_bench(tmp_path / "undisturbed", monkeypatch)
    undisturbed.run(Landscape())
    killed = search_bench(tmp_path / "killed", monkeypatch)
    with pytest.raises(Killed):
        killed.run(Landscape(events_left=num_events))
    with pytest.raises(Killed):
        killed.run(Landscape(events_left=5))
    killed.run(Landscape())
    pd.testing.assert_frame_equal(proposed(killed), proposed(undisturbed))
    assert rows(killed.results.root).keys() == rows(undisturbed.results.root).keys()


def test_a_death_between_storing_and_training_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(run_study, "write_wanted", die)
        with pytest.raises(Killed):
            bench.run(Landscape())
    stored = proposed(bench)
    assert len(stored) == 4
    bench.run(Landscape())
    assert proposed(bench)["learning_rate"].isin(stored["learning_rate"]).sum() == 4


def test_more_rates_go_on_from_the_stored_ones_and_fewer_want_fewer(bench: Bench) -> None:
    bench.run(Landscape())
    before, study = proposed(bench), bench.study
    assert study.search is not None
    bench.study = study.model_copy(update={"search": study.search.model_copy(update={"rates": 8})})
    assert bench.run(Landscape()).trained == 8
    after = proposed(bench)
    pd.testing.assert_frame_equal(after[after["number"] < 6].reset_index(drop=True), before)
    bench.study = study.model_copy(update={"search": study.search.model_copy(update={"rates": 5})})
    assert bench.run(Landscape()).trained == 0
    assert len(read_wanted(bench.results.root, "tiny")) == 2 * 5 * 2
    pd.testing.assert_frame_equal(proposed(bench), after)


def test_only_a_part_is_searched(bench: Bench) -> None:
    """The other cell has its first round, so that reports name what is missing."""
    bench.run(Landscape(), only=parse_only("variant=unfrozen-random"))
    assert proposed(bench)["variant"].value_counts().to_dict() == {"unfrozen-random": 6, "frozen-pretrained": 2}
    outcome = bench.run(Landscape())
    assert (outcome.trained, len(proposed(bench))) == (12, 12)


def test_a_cell_with_a_part_of_its_seeds_waits(bench: Bench) -> None:
    outcome = bench.run(Landscape(), only=parse_only("seed=0"))
    assert (outcome.trained, outcome.stopped, len(proposed(bench))) == (4, False, 4)
    messages = [finding.message for finding in outcome.report.findings if finding.check == "missing"]
    assert messages.count("the search has proposed 2 of 6 learning rates") == 2


def test_failed_runs_are_lost_to_the_search_and_may_be_retried(bench: Bench) -> None:
    assert bench.study.search is not None
    (first,) = next_points(bench.study.search, (), [], 1, maximise=True)
    outcome = bench.run(_FailsAt(first.learning_rate))
    stored = proposed(bench)
    assert (outcome.failed, outcome.stopped, len(stored)) == (4, False, 12)
    assert bench.run(Landscape(), max_attempts=9).failed == 0
    pd.testing.assert_frame_equal(proposed(bench), stored)


class _FailsAt(Landscape):
    """Runs of one learning rate fail."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Generator[TrialEvent | None, None, None]:
        failing = [cohort for cohort in cohorts if any(run.learning_rate == self.rate for run in cohort.runs)]
        yield from super().train_cohorts([cohort for cohort in cohorts if cohort not in failing], *arguments)
        for cohort in failing:
            yield TrialFailed(run_ids=cohort.run_ids, reason="RuntimeError: scripted")


def test_optuna_reads_the_journal(bench: Bench) -> None:
    bench.run(Landscape())
    storage = JournalStorage(JournalFileBackend(str(bench.results.study("tiny") / JOURNAL)))
    names = optuna.get_all_study_names(storage)
    assert names == ["tiny: digits tiny frozen-pretrained", "tiny: digits tiny unfrozen-random"]
    for name in names:
        trials = optuna.load_study(study_name=name, storage=storage).trials
        diverged = [trial for trial in trials if trial.params["learning_rate"] > 3e-2]
        assert len(trials) == 6
        assert all(trial.state == TrialState.FAIL for trial in diverged)
        assert {trial.user_attrs["round"] for trial in trials} == {1, 2, 3}


def test_plan_status_and_archive_know_the_proposals(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        bench.run(Landscape(events_left=25))
    plan = Plan(bench.study, Placement(resources=bench.study.resources), bench.results, tmp_path)
    assert len(plan.wanted) == 24
    code, text = in_process("status", tmp_path / "tiny.yaml", "--results", bench.results.root)
    assert (code, "frozen-pretrained" in text) == (0, True)
    bench.run(Landscape())
    assert in_process("verify", "--results", bench.results.root)[0] == 0
    assert in_process("export", tmp_path / "all.tar", "--results", bench.results.root)[0] == 0
    assert in_process("import", tmp_path / "all.tar", "--results", tmp_path / "copy")[0] == 0
    copied = read_proposals(Results(tmp_path / "copy"), bench.study)
    assert copied == read_proposals(bench.results, bench.study)
