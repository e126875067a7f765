"""A run that is stopped anywhere and resumed, in a process without Ray: the same curve, the same weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.small_runs import damage, same_bits
from lr_sweep.tests.support.tiny_study import cohort_here, end_of, runs_of, write_study
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.worker.events import Event, Started, evaluations
from lr_sweep.trainables.worker.session import Session

NUM_STEPS = 60


def trained(
    run: WantedRun,
    folder: Path,
    report_every_s: float,
    wall_clock: Callable[[], float] = lambda: 1e9,
    every_s: float = 0.0,
) -> Iterator[Event]:
    """The events of a worker's plain engine, which saves whenever it can and reports every few steps."""
    session = Session(cohort_here([run], Results(folder), engine="plain", every_s=every_s), wall_clock)
    return itertools.chain.from_iterable(session.events(report_every_s))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> WantedRun:
    folder = tmp_path_factory.mktemp("study")
    study = write_study(folder, rates=(1e-2,), variants=("unfrozen-pretrained",), num_steps=NUM_STEPS)
    return runs_of(study, folder / "results")[0]


@pytest.fixture(scope="module")
def undisturbed(run: WantedRun, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return end_of(trained(run, folder, 1000.0), folder, run)


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_is_used(run: WantedRun, tmp_path: Path) -> None:
    list(itertools.islice(trained(run, tmp_path, 0.001), 4))
    newest, before = checkpoints(Results(tmp_path).checkpoints(run.run_id))
    damage(newest, "flipped")
    started = next(trained(run, tmp_path, 0.001))
    assert isinstance(started, Started)
    assert started.step == int(before.name.split("-")[1]) > 0
    assert started.damaged == (str(newest.with_name(f"damaged-{newest.name}")),)


def test_what_is_reported_is_saved(run: WantedRun, tmp_path: Path) -> None:
    """No checkpoint is due by the clock, but every evaluation writes one."""
    reported = 0
    for event in trained(run, tmp_path, 0.001, every_s=1e9):
        reported = max([reported, *(point.step for point in evaluations(event))])
        saved = [int(path.name.split("-")[1]) for path in checkpoints(Results(tmp_path).checkpoints(run.run_id))]
        assert max(saved, default=0) == reported


def test_a_clock_that_jumps_changes_nothing_but_times(
    run: WantedRun, undisturbed: tuple[Any, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    jumps = itertools.cycle([2e9, 1e9, 5.0])
    first = list(itertools.islice(trained(run, tmp_path, 0.001, lambda: next(jumps)), 3))
    events = first + list(trained(run, tmp_path, 0.001, lambda: next(jumps)))
    curve, tensors = end_of(events, tmp_path, run)
    assert curve == undisturbed[0]
    assert same_bits(tensors, undisturbed[1])
    elapsed = [point.elapsed_s for event in events for point in evaluations(event)]
    assert all(seconds >= 0 for seconds in elapsed)
    assert events[-1].elapsed_s == max(elapsed)  # type: ignore[union-attr]
