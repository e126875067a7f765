"""Which runs train together, where trials run, and what this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan import placement as module
from lr_sweep.sweep.plan.placement import (
    Placement,
    check_fit,
    cohorts,
    idle_gpu,
    is_out_of_memory,
    trial_name,
)
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.tests.support.tiny_study import runs_of, write_study


def test_cpus_that_an_affinity_excludes_do_not_count() -> None:
    one = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{one}]); from lr_sweep.sweep.plan.placement import cpus_here; "
    done = subprocess.run([sys.executable, "-c", f"{program}print(cpus_here())"], capture_output=True, check=True)
    assert done.stdout == b"1\n"


def test_processes_of_a_run_need_one_node() -> None:
    four = Placement(resources=Resources(cpus_per_trial=2, gpus_per_trial=1, processes_per_run=4))
    assert four.trial == {"CPU": 8, "GPU": 4}
    assert four.devices_per_trial == 4
    node = {"CPU": 32.0, "GPU": 8.0}
    assert four.trials_at_once([node, {"CPU": 32.0, "GPU": 3.0}, {"CPU": 15.0, "GPU": 8.0}]) == 2 + 0 + 1
    check_fit(four, [node])
    with pytest.raises(UserError) as raised:
        check_fit(four, [{"CPU": 32.0, "GPU": 3.0}] * 2)
    assert str(raised.value).startswith(
        "a trial asks for 8 CPU and 4 GPU for the 4 processes of a run, which are on one node, but this machine has no "
        "such node (nodes: 32 CPU and 3 GPU; 32 CPU and 3 GPU)."
    )


@pytest.mark.parametrize(
    ("files", "placement", "is_said"),
    [
        (["dev/nvidia0"], Placement(resources=Resources()), True),
        (["dev/null"], Placement(resources=Resources()), False),
        (["dev/nvidia0"], Placement(resources=Resources(gpus_per_trial=0.25)), False),
        (["dev/nvidia0"], Placement(resources=Resources(), address="auto"), False),
    ],
)
def test_a_gpu_that_no_trial_uses_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[str], placement: Placement, is_said: bool
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr("lr_sweep.sweep.plan.placement.Path", lambda _: tmp_path)
    said = ["this machine has a GPU that no trial uses: --gpus-per-trial 0.25 lets four share it"]
    assert idle_gpu(placement) == (said if is_said else [])


@pytest.fixture
def runs(tmp_path: Path) -> list[WantedRun]:
    """2 seeds x 2 variants x 3 learning rates, in this order."""
    return runs_of(write_study(tmp_path, rates=(1e-4, 1e-3, 1e-2), seeds=2), tmp_path / "results")


def indices(runs: list[WantedRun], chosen: list[WantedRun], size: int | None, at_once: int = 1) -> list[list[int]]:
    groups = cohorts(chosen, Resources(runs_per_trial=size), at_once)
    return [[runs.index(run) for run in group] for group in groups]


def test_a_trial_trains_runs_of_one_cell_in_the_study_s_order(runs: list[WantedRun]) -> None:
    assert indices(runs, runs, 1) == [[index] for index in range(12)]
    assert indices(runs, runs, 2) == [[0, 1], [2, 6], [3, 4], [5, 9], [7, 8], [10, 11]]
    assert indices(runs, runs, 3) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]  # first seeds first
    assert indices(runs, runs[1:5] + runs[6:7], 2) == [[1, 2], [3, 4], [6]]  # runs that are done leave gaps
    assert indices(runs, [], 3) == []


def test_by_default_a_cell_is_a_trial_or_as_many_as_keep_all_devices_busy(runs: list[WantedRun]) -> None:
    cells = [[3, 4, 5, 9, 10, 11], [0, 1, 2, 6, 7, 8]]  # unfrozen first: it takes longer
    assert runs[3].variant.startswith("unfrozen")
    assert indices(runs, runs, None, at_once=1) == indices(runs, runs, None, at_once=2) == cells
    assert indices(runs, runs, None, at_once=3) == [[0, 1, 2, 6, 7, 8], [3, 4, 5], [9, 10, 11]]
    assert sorted(map(len, indices(runs, runs, None, at_once=4))) == [3] * 4
    assert sorted(map(len, indices(runs, runs, None, at_once=100))) == [1] * 12
    assert len({trial_name(group) for group in cohorts(runs, Resources(), 4)}) == 4
    assert cohorts([], Resources(), 4) == []


def test_the_plain_engine_trains_single_runs(runs: list[WantedRun]) -> None:
    assert [len(group) for group in cohorts(runs, Resources(engine="plain"), 1)] == [1] * 12


def test_many_runs_that_train_one_by_one_share_trials(runs: list[WantedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of each of two cells, four trials for the slot: three in each."""
    monkeypatch.setattr(module, "TRIALS_PER_SLOT", 4)
    assert [len(group) for group in cohorts(runs, Resources(engine="plain"), 1)] == [3] * 4
    assert [len(group) for group in cohorts(runs, Resources(engine="plain"), 3)] == [1] * 12


def test_trials_at_once_are_counted_by_node() -> None:
    nodes = [{"CPU": 5.0, "GPU": 1.0}, {"CPU": 2.0}, {"CPU": 1.0, "GPU": 4.0}, {}]
    for cpus, gpus, number in ((1, 0, 8), (2, 0, 3), (1, 1, 2), (1, 0.34, 3), (2, 0.5, 2), (9, 1, 1)):
        placement = Placement(resources=Resources(cpus_per_trial=cpus, gpus_per_trial=gpus))
        assert placement.trials_at_once(nodes) == number


def test_a_share_of_a_gpu_is_of_one_device() -> None:
    """As Ray (2.60) places them on four GPUs: two trials of 0.4 each fit on a GPU, and one of 0.6."""
    for gpus, number in ((0.6, 4), (0.4, 8), (0.5, 8), (0.34, 8), (0.3333, 12), (0.1, 40), (1, 4)):
        placement = Placement(resources=Resources(gpus_per_trial=gpus))
        assert placement.trials_at_once([{"CPU": 100.0, "GPU": 4.0}]) == number


@pytest.mark.parametrize(
    ("reason", "memory"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("OutOfMemoryError: CUDA out of memory", True),
        ("MemoryError: ", True),
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", True),
        ("FileExistsError: [Errno 17] File exists", False),
    ],
)
def test_running_out_of_memory_is_recognised_by_the_reason(reason: str, memory: bool) -> None:
    assert is_out_of_memory(reason) == memory
