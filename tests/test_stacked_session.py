"""Cohorts trained together: their events, their checkpoints, and that stopping them anywhere changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep.placement import Placement
from sweep.results import Results
from sweep.runs import WantedRun
from sweep.study import Resources
from sweep.trials import assignment
from tests.test_resume import end_of
from tests.tiny_study import runs_of, write_study
from trainables.checkpoint import checkpoints
from trainables.cohort import RunSession
from trainables.stacked_session import StackedSession

NUM_STEPS = 30
RATES = (1e-3, 1e-2, 3e-2)

End = tuple[Any, dict[str, torch.Tensor]]


def assignments(runs: Sequence[WantedRun], folder: Path, every_s: float = 0.0) -> list[Any]:
    return [assignment(run, Placement(resources=Resources()), Results(folder), folder, every_s) for run in runs]


def session(runs: Sequence[WantedRun], folder: Path, num_places: int = 9, every_s: float = 0.0) -> StackedSession:
    return StackedSession(assignments(runs, folder, every_s), num_places, lambda: 1e9)


def flat(events: Any) -> list[dict[str, Any]]:
    return list(itertools.chain.from_iterable(events))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[WantedRun]:
    """Of one cell: three learning rates, two seeds."""
    folder = tmp_path_factory.mktemp("study")
    study = write_study(folder, rates=RATES, variants=("unfrozen-pretrained",), num_steps=NUM_STEPS, seeds=2)
    return runs_of(study, folder / "results")


@pytest.fixture(scope="module")
def alone(runs: list[WantedRun], tmp_path_factory: pytest.TempPathFactory) -> dict[str, End]:
    """How each run ends that trains alone and is never stopped."""
    ends = {}
    for run in runs:
        folder = tmp_path_factory.mktemp("alone")
        ends[run.run_id] = end_of(flat(session([run], folder).events(1000.0)), folder, run)
    return ends


def assert_ended_as(alone: dict[str, End], events: list[dict[str, Any]], folder: Path, runs: list[WantedRun]) -> None:
    for run in runs:
        own = [event for event in events if event["run_id"] == run.run_id]
        curve, tensors = end_of(own, folder, run)
        assert curve == alone[run.run_id][0]
        assert all(torch.equal(tensor, alone[run.run_id][1][name]) for name, tensor in tensors.items())


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6), st.permutations(range(6))), max_size=3))
def test_deaths_and_other_companions_change_nothing(
    runs: list[WantedRun],
    alone: dict[str, End],
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[tuple[int, int, list[int]]],
) -> None:
    """Each life trains the runs in another order and so many at a time, and ends without a last save."""
    folder = tmp_path_factory.mktemp("lives")
    events: list[dict[str, Any]] = []
    for num_reports, num_places, order in lives:
        company = [runs[index] for index in order]
        events += flat(itertools.islice(session(company, folder, num_places).events(0.001), num_reports))
    events += flat(session(runs, folder).events(1000.0))
    assert_ended_as(alone, events, folder, runs)


@pytest.mark.parametrize("num_places", [1, 2, 6])
def test_every_run_tells_its_start_its_points_and_its_end(
    runs: list[WantedRun], tmp_path: Path, num_places: int
) -> None:
    training: set[str] = set()
    events: list[dict[str, Any]] = []
    for told in session(runs, tmp_path, num_places, every_s=1e9).events(1000.0):
        for event in told:
            run_id = event["run_id"]
            if event["kind"] == "started":
                training.add(run_id)
            assert run_id in training
            saved = checkpoints(Results(tmp_path).checkpoints(run_id))
            points = [point["step"] for point in event["evaluations"]] if event["kind"] == "progress" else []
            assert all(int(saved[0].name.split("-")[1]) == step for step in points)  # saved before it is told
            if event["kind"] == "finished":
                training.remove(run_id)
                assert len(saved) == 1
        assert len(training) <= num_places
        events += told
    for run in runs:
        kinds = [event["kind"] for event in events if event["run_id"] == run.run_id]
        assert kinds == ["started", *["progress"] * 3, "finished"]
    end = events[-1]
    assert (end["status"], end["step"], end["diverged_at_step"]) == ("complete", NUM_STEPS, None)
    assert end["device"].startswith("cpu (")
    progress = [event for event in events if event["kind"] == "progress"]
    assert all(event["step_s"] > 0 and event["evaluation_s"] > 0 for event in progress)


def test_a_run_that_diverges_gives_its_place_to_one_that_waits(
    runs: list[WantedRun], alone: dict[str, End], tmp_path: Path
) -> None:
    one = session(runs[:4], tmp_path, 2)
    told = one.events(1000.0)
    next(told)
    one.training._rows.values[0] = torch.nan  # type: ignore[union-attr]
    sick = one.training.members[0].run.run_id
    events = flat(told)
    ends = {event["run_id"]: event for event in events if event["kind"] == "finished"}
    assert (ends[sick]["status"], ends[sick]["diverged_at_step"]) == ("diverged", 1)
    assert next(event["run_id"] for event in events if event["kind"] == "finished") == sick
    healthy = [run for run in runs[:4] if run.run_id != sick]
    assert all(ends[run.run_id]["status"] == "complete" for run in healthy)
    assert_ended_as(alone, events, tmp_path, healthy)


def test_asked_to_stop_it_saves_every_run_but_not_in_the_middle_of_a_step(
    runs: list[WantedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = session(runs[:3], tmp_path, every_s=1e9)
    list(itertools.islice(one.events(0.0001), 2))
    steps = {member.run.run_id: member.progress.step for member in one.training.members}

    def saved() -> dict[str, int]:
        found = {run_id: checkpoints(Results(tmp_path).checkpoints(run_id)) for run_id in steps}
        return {run_id: int(paths[0].name.split("-")[1]) for run_id, paths in found.items() if paths}

    one.save()
    assert saved() == steps

    def broken(num_steps: int) -> None:
        for member in one.training.members:
            member.progress.step += 1
        raise MemoryError

    monkeypatch.setattr(one.training, "_train_chunk", broken)
    with pytest.raises(MemoryError):
        next(one.events(0.0001))
    one.save()
    assert saved() == steps


def test_either_engine_goes_on_where_the_other_stopped(
    runs: list[WantedRun], alone: dict[str, End], tmp_path: Path
) -> None:
    run = runs[0]
    events: list[dict[str, Any]] = []
    list(itertools.islice(session(runs[:2], tmp_path).events(1000.0), 2))
    (plain,) = assignments([run], tmp_path)
    events += itertools.islice(RunSession(plain).events(1000.0), 2)
    events += flat(session(runs[:1], tmp_path).events(1000.0))
    curve, _ = end_of(events, tmp_path, run)
    for ours, theirs in zip(curve, alone[run.run_id][0], strict=True):
        assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-4, abs=1e-4)


def test_what_was_done_before_is_told_again_and_not_trained(runs: list[WantedRun], tmp_path: Path) -> None:
    flat(session(runs[:2], tmp_path).events(1000.0))
    again = flat(session(runs[:2], tmp_path).events(1000.0))
    assert [event["kind"] for event in again] == ["started"] * 2 + ["finished"] * 2
    assert [point["step"] for point in again[0]["evaluations"]] == [10, 20, 30]
