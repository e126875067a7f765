"""Cohorts trained together: their events, their checkpoints, and that stopping them anywhere changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.small_runs import damage, same_bits
from lr_sweep.tests.support.tiny_study import cohort_here, end_of, runs_of, write_study
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.worker.messages import Advanced, Event, Finished, Started, evaluations
from lr_sweep.trainables.worker.session import Session

NUM_STEPS = 30
RATES = (1e-3, 1e-2, 3e-2)
HARMS = st.sampled_from(["nothing", "torn", "empty", "flipped", "partial"])
End = tuple[Any, dict[str, torch.Tensor]]


def session(
    runs: Sequence[WantedRun],
    folder: Path,
    num_slots: int = 9,
    wall_clock: Callable[[], float] = lambda: 1e9,
    **more: Any,
) -> Session:
    given: dict[str, Any] = {"every_s": 0.0, "runs_at_once": num_slots} | more
    return Session(cohort_here(runs, Results(folder), **given), wall_clock)


def flat(events: Any) -> list[Event]:
    return list(itertools.chain.from_iterable(events))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[WantedRun]:
    """The runs of one cell: three learning rates, two seeds."""
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


def assert_ended_as(alone: dict[str, End], events: list[Event], folder: Path, runs: list[WantedRun]) -> None:
    for run in runs:
        own = [event for event in events if event.run_id == run.run_id]
        curve, tensors = end_of(own, folder, run)
        assert curve == alone[run.run_id][0]
        assert same_bits(tensors, alone[run.run_id][1])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6), st.permutations(range(6)), HARMS), max_size=3))
def test_deaths_and_other_runs_change_nothing(
    runs: list[WantedRun],
    alone: dict[str, End],
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[tuple[int, int, list[int], str]],
) -> None:
    """Each life trains the runs in another order and so many at a time, and ends without a last save.

    Then the newest checkpoint of its first run is damaged.
    """
    folder = tmp_path_factory.mktemp("lives")
    events: list[Event] = []
    for num_reports, num_slots, order, harm in lives:
        ordered = [runs[index] for index in order]
        events += flat(itertools.islice(session(ordered, folder, num_slots).events(0.001), num_reports))
        own = Results(folder).checkpoints(ordered[0].run_id)
        if harm == "partial":
            own.mkdir(parents=True, exist_ok=True)
            (own / "partial-77").write_bytes(b"half of it")
        elif harm != "nothing" and (saved := checkpoints(own)):
            damage(saved[0], harm)
    events += flat(session(runs, folder).events(1000.0))
    assert_ended_as(alone, events, folder, runs)
    assert not list(folder.rglob("partial-*"))


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_is_used(runs: list[WantedRun], tmp_path: Path) -> None:
    list(itertools.islice(session(runs[:1], tmp_path).events(0.001), 4))
    newest, before = checkpoints(Results(tmp_path).checkpoints(runs[0].run_id))
    damage(newest, "flipped")
    (started,) = next(session(runs[:1], tmp_path).events(0.001))
    assert isinstance(started, Started)
    assert started.step == int(before.name.split("-")[1]) > 0
    assert started.damaged == (str(newest.with_name(f"damaged-{newest.name}")),)


def test_a_clock_that_jumps_changes_nothing_but_times(
    runs: list[WantedRun], alone: dict[str, End], tmp_path: Path
) -> None:
    jumps = itertools.cycle([2e9, 1e9, 5.0])
    lives = [session(runs[:1], tmp_path, wall_clock=lambda: next(jumps)).events(0.001) for _ in range(2)]
    events = flat(itertools.islice(lives[0], 3)) + flat(lives[1])
    assert_ended_as(alone, events, tmp_path, runs[:1])
    elapsed = [point.elapsed_s for event in events for point in evaluations(event)]
    assert all(seconds >= 0 for seconds in elapsed)
    assert ends_of(events)[runs[0].run_id].elapsed_s == max(elapsed)


@pytest.mark.parametrize("num_slots", [1, 2, 6])
def test_every_run_reports_its_start_its_points_and_its_end(
    runs: list[WantedRun], tmp_path: Path, num_slots: int
) -> None:
    training: set[str] = set()
    events: list[Event] = []
    for reported in session(runs, tmp_path, num_slots, every_s=1e9).events(1000.0):
        for event in reported:
            run_id = event.run_id
            if isinstance(event, Started):
                training.add(run_id)
            assert run_id in training
            saved = checkpoints(Results(tmp_path).checkpoints(run_id))
            points = evaluations(event) if isinstance(event, Advanced) else ()
            assert all(int(saved[0].name.split("-")[1]) == point.step for point in points)  # saved first
            if isinstance(event, Finished):
                training.remove(run_id)
                assert len(saved) == 1
        assert len(training) <= num_slots
        events += reported
    for run in runs:
        kinds = [type(event) for event in events if event.run_id == run.run_id]
        assert kinds == [Started, *[Advanced] * 3, Finished]
    end = ends_of(events)[events[-1].run_id]
    assert (end.status, end.step, end.diverged_at_step) == ("complete", NUM_STEPS, None)
    assert end.device.startswith("cpu (")
    paces = [(event.step_s, event.evaluation_s) for event in events if isinstance(event, Advanced)]
    assert all(step_s and evaluation_s and step_s > 0 and evaluation_s > 0 for step_s, evaluation_s in paces)


def ends_of(events: Sequence[Event]) -> dict[str, Finished]:
    """How each run ended, in the order in which they did."""
    return {event.run_id: event for event in events if isinstance(event, Finished)}


def test_a_run_that_diverges_gives_its_slot_to_one_that_waits(
    runs: list[WantedRun], alone: dict[str, End], tmp_path: Path
) -> None:
    one = session(runs[:4], tmp_path, 2)
    reports = one.events(1000.0)
    next(reports)
    one.engine._rows.values[0] = torch.nan  # type: ignore[attr-defined]
    sick = one.engine.slots[0].run.run_id  # type: ignore[attr-defined]
    events = flat(reports)
    ends = ends_of(events)
    assert (ends[sick].status, ends[sick].diverged_at_step) == ("diverged", 1)
    assert next(iter(ends)) == sick
    healthy = [run for run in runs[:4] if run.run_id != sick]
    assert all(ends[run.run_id].status == "complete" for run in healthy)
    assert_ended_as(alone, events, tmp_path, healthy)


def test_asked_to_stop_it_saves_every_run_but_not_in_the_middle_of_a_step(
    runs: list[WantedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = session(runs[:3], tmp_path, every_s=1e9)
    list(itertools.islice(one.events(0.0001), 2))
    engine: Any = one.engine
    steps = {slot.run.run_id: slot.progress.step for slot in engine.slots}

    def saved() -> dict[str, int]:
        found = {run_id: checkpoints(Results(tmp_path).checkpoints(run_id)) for run_id in steps}
        return {run_id: int(paths[0].name.split("-")[1]) for run_id, paths in found.items() if paths}

    one.leave()
    assert saved() == steps

    def broken(num_steps: int) -> None:
        for slot in engine.slots:
            slot.progress.step += 1
        raise MemoryError

    monkeypatch.setattr(engine, "train_chunk", broken)
    with pytest.raises(MemoryError):
        next(one.events(0.0001))
    one.leave()
    assert saved() == steps


def test_what_was_done_before_is_reported_again_and_not_trained(runs: list[WantedRun], tmp_path: Path) -> None:
    flat(session(runs[:2], tmp_path).events(1000.0))
    again = flat(session(runs[:2], tmp_path).events(1000.0))
    assert [type(event) for event in again] == [Started] * 2 + [Finished] * 2
    assert [point.step for point in evaluations(again[0])] == [10, 20, 30]
