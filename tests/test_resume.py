"""A run that is stopped anywhere and taken up again, in a process without Ray: the same curve, the same weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from sweep.placement import Placement
from sweep.results import Results
from sweep.runs import WantedRun
from sweep.study import Resources
from sweep.trials import assignment
from tests.tiny_study import runs_of, write_study
from trainables.checkpoint import checkpoints
from trainables.cohort import RunSession

NUM_STEPS = 60
VOLATILE = ("time_ms", "elapsed_s")


def session(run: WantedRun, folder: Path, wall_clock: Callable[[], float] = lambda: 1e9) -> RunSession:
    """A worker's: it saves whenever it can and reports every few steps."""
    return RunSession(assignment(run, Placement(resources=Resources()), Results(folder), folder, 0.0), wall_clock)


def end_of(events: list[dict[str, Any]], folder: Path, run: WantedRun) -> tuple[Any, dict[str, torch.Tensor]]:
    """The curve by what its events told, and the final state."""
    points = {point["step"]: point for event in events for point in event.get("evaluations", [])}
    curve = [{key: value for key, value in points[step].items() if key not in VOLATILE} for step in sorted(points)]
    (final,) = checkpoints(Results(folder).checkpoints(run.run_id))
    return curve, load_file(final)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> WantedRun:
    folder = tmp_path_factory.mktemp("study")
    study = write_study(folder, rates=(1e-2,), variants=("unfrozen-pretrained",), num_steps=NUM_STEPS)
    return runs_of(study, folder / "results")[0]


@pytest.fixture(scope="module")
def undisturbed(run: WantedRun, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return end_of(list(session(run, folder).events(1000.0)), folder, run)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    path.write_bytes({"torn": content[:middle], "empty": b"", "flipped": flipped}[how])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lives=st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["nothing", "torn", "empty", "flipped", "partial"])), max_size=5
    )
)
def test_any_number_of_deaths_and_damaged_checkpoints_change_nothing(
    run: WantedRun,
    undisturbed: tuple[Any, dict[str, torch.Tensor]],
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[tuple[int, str]],
) -> None:
    """Each life ends after so many reports, without a last save; then its newest checkpoint comes to harm."""
    folder = tmp_path_factory.mktemp("lives")
    own = Results(folder).checkpoints(run.run_id)
    events: list[dict[str, Any]] = []
    for num_reports, harm in lives:
        events += itertools.islice(session(run, folder).events(0.001), num_reports)
        newest = next(iter(checkpoints(own)), None)
        if harm == "partial":
            own.mkdir(parents=True, exist_ok=True)
            (own / "partial-77").write_bytes(b"half of it")
        elif harm != "nothing" and newest is not None:
            damage(newest, harm)
    events += session(run, folder).events(1000.0)
    curve, tensors = end_of(events, folder, run)
    assert curve == undisturbed[0]
    assert tensors.keys() == undisturbed[1].keys()
    assert all(torch.equal(tensor, undisturbed[1][name]) for name, tensor in tensors.items())
    assert not list(own.glob("partial-*"))


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_used(run: WantedRun, tmp_path: Path) -> None:
    list(itertools.islice(session(run, tmp_path).events(0.001), 4))
    newest, before = checkpoints(Results(tmp_path).checkpoints(run.run_id))
    damage(newest, "flipped")
    started = next(session(run, tmp_path).events(0.001))
    assert started["step"] == int(before.name.split("-")[1]) > 0
    assert started["damaged"] == [str(newest.with_name(f"damaged-{newest.name}"))]


def test_what_is_told_is_saved(run: WantedRun, tmp_path: Path) -> None:
    """With no time for checkpoints, an evaluation is one all the same."""
    patient = RunSession(assignment(run, Placement(resources=Resources()), Results(tmp_path), tmp_path, 1e9))
    told = 0
    for event in patient.events(0.001):
        told = max([told, *(point["step"] for point in event.get("evaluations", []))])
        saved = [int(path.name.split("-")[1]) for path in checkpoints(Results(tmp_path).checkpoints(run.run_id))]
        assert max(saved, default=0) == told


def test_a_clock_that_jumps_changes_nothing_but_times(
    run: WantedRun, undisturbed: tuple[Any, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    jumps = itertools.cycle([2e9, 1e9, 5.0])
    first = list(itertools.islice(session(run, tmp_path, lambda: next(jumps)).events(0.001), 3))
    events = first + list(session(run, tmp_path, lambda: next(jumps)).events(0.001))
    curve, tensors = end_of(events, tmp_path, run)
    assert curve == undisturbed[0]
    assert all(torch.equal(tensor, undisturbed[1][name]) for name, tensor in tensors.items())
    elapsed = [point["elapsed_s"] for event in events for point in event.get("evaluations", [])]
    assert all(seconds >= 0 for seconds in elapsed)
    assert events[-1]["elapsed_s"] == max(elapsed)
