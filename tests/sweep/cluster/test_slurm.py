"""docs/cluster/sweep.sbatch under a real Slurm of two nodes on this machine; `make slurm-test`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.sweep.cluster.slurm import wait
from lr_sweep.tests.support.chaos import final_weights, processes, record_content
from lr_sweep.tests.support.servers.laptop import steps_within, study_of
from lr_sweep.tests.support.servers.slurm import GPUS, Slurm, what_is_missing
from lr_sweep.tests.support.small_cluster import write_program
from lr_sweep.tests.support.tiny_study import ROOT, rows, swept, write_study
from lr_sweep.tests.support.waiting import wait_until

PATIENCE_S = float(os.environ.get("SLURM_TEST_PATIENCE_S", "1200"))
"""Limit of each wait; a busy machine needs more."""
SCRIPT = ROOT / "docs" / "cluster" / "sweep.sbatch"
RUN_S = 40.0
"""So long a run takes on an idle CPU: a study of eight outlasts two parts of a job."""
NODE = ("--cpus-per-task=2", "--time=600")
STUDY: dict[str, Any] = {
    "rates": (1e-3, 3e-3, 1e-2),
    "variants": ("unfrozen-random", "frozen-random"),
    "seeds": 2,
    "num_steps": int(os.environ.get("SLURM_TEST_STEPS", "1000")),
    "protocol": "{evaluate_every: 250, train_examples_evaluated: 100}",
}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if reason := what_is_missing():
        pytest.skip(reason)
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    yield made
    made.end()


def submit(
    slurm: Slurm, options: tuple[str, ...], study: Path, *more: str, venv: str = sys.prefix, **settings: str
) -> str:
    folder = study.parent
    where = ("--results", folder / "results", "--data-dir", folder / "data")
    return slurm.submit(*NODE, *options, SCRIPT, study, *where, *more, VENV=venv, **settings)


def while_it_runs(slurm: Slurm, job: str, happened: Callable[[], bool], what: str) -> None:
    """Wait until something happens, at most to the end of the job."""
    wait_until(lambda: happened() or slurm.has_ended(job), what, PATIENCE_S)
    assert not slurm.has_ended(job), slurm.output(job)


def ended(slurm: Slurm, job: str) -> str:
    """Wait for the end of a job, and return what it printed; no process of its Ray may be left."""
    wait_until(lambda: slurm.has_ended(job), f"the end of job {job}", PATIENCE_S)
    wait_until(lambda: not rays_processes(job), "the end of Ray's processes")
    assert not Path(f"/tmp/ray-{job}").exists()
    return slurm.output(job)


def rays_processes(job: str) -> list[str]:
    return [command for _, _, command in processes() if f"/tmp/ray-{job}/" in command]


@pytest.mark.slurm
def test_a_sweep_that_reaches_its_time_limit_requeues_itself_and_ends_as_if_undisturbed(
    slurm: Slurm, tmp_path: Path
) -> None:
    """Twice, each time after it has saved something: a busy machine may need longer than any limit given before."""
    study = write_study(tmp_path, **study_of(steps_within(RUN_S, tmp_path / "tried")))
    job = submit(slurm, ("--signal=B:USR1@120",), study, "--checkpoint-every-s", "5")
    for restarts in ("1", "2"):
        while_it_runs(slurm, job, partial(saves_more, tmp_path / "results", saved(tmp_path / "results")), "checkpoints")
        slurm.limit(job, 3)
        while_it_runs(slurm, job, partial(has_restarted, slurm, job, restarts), f"restart {restarts}")
        slurm.limit(job, 600)
    printed = ended(slurm, job)
    assert "8 runs wanted: all complete" in printed
    assert printed.count("time limit: runs are saved, the job is requeued") == 2
    assert slurm.field(job, "JobState") == "COMPLETED"
    print(f"steps lost: {[row['lost_steps'] for row in rows_of(study)]}")
    check_as_if_undisturbed(study)


def check_as_if_undisturbed(study: Path) -> None:
    results, reference = study.parent / "results", study.parent / "reference"
    swept("run", study, "--results", reference, "--cpus", "2", timeout_s=PATIENCE_S)
    assert record_content(results) == record_content(reference)
    assert final_weights(results) == final_weights(reference)


def saved(results: Path) -> set[Path]:
    return set(results.glob("checkpoints/*/step-*"))


def saves_more(results: Path, before: set[Path]) -> bool:
    return bool(saved(results) - before)


def has_restarted(slurm: Slurm, job: str, times: str) -> bool:
    return slurm.field(job, "Restarts") == times


def rows_of(study: Path) -> list[dict[str, Any]]:
    return list(rows(study.parent / "results").values())


@pytest.mark.slurm
def test_a_sweep_on_two_nodes_loses_one_and_completes(slurm: Slurm, tmp_path: Path) -> None:
    """Each node has one of the machine's CPUs; the second one's Ray is killed in the middle.

    The runs are long: Ray notices after 12 s that a machine is gone.
    """
    study = write_study(tmp_path, **STUDY | {"seeds": 1, "num_steps": 3 * STUDY["num_steps"]}, runs_per_trial=1)
    job = submit(slurm, ("--nodes=2", "--cpus-per-task=1"), study, "--checkpoint-every-s", "1")
    while_it_runs(slurm, job, lambda: len(raylets(job)) == 2, "Ray on two nodes")
    while_it_runs(slurm, job, lambda: len(set(raylets_of_trials(job))) == 2, "a trial on each node")
    while_it_runs(slurm, job, lambda: len(saved(tmp_path / "results")) >= 2, "checkpoints")
    (second,) = [pid for pid, command in raylets(job) if "--head" not in command.split()]
    os.kill(second, signal.SIGKILL)
    printed = ended(slurm, job)
    assert "6 runs wanted: all complete" in printed
    assert slurm.field(job, "JobState") == "COMPLETED"
    print(f"(attempts, steps lost): {[(row['attempts'], row['lost_steps']) for row in rows_of(study)]}")
    check_as_if_undisturbed(study)


def raylets(job: str) -> list[tuple[int, str]]:
    """Process ids and command lines of a job's raylets."""
    return [
        (pid, command)
        for pid, _, command in processes()
        if "/raylet/raylet " in command and f"/tmp/ray-{job}/" in command
    ]


def raylets_of_trials(job: str) -> list[int]:
    """Process ids of the raylets of a job's trials."""
    own = {pid for pid, _ in raylets(job)}
    return [parent for _, parent, command in processes() if parent in own and "Trainable" in command]


@pytest.mark.slurm
def test_scancel_saves_every_run_and_leaves_no_process(slurm: Slurm, tmp_path: Path) -> None:
    study = write_study(tmp_path, num_steps=10**6, protocol="{evaluate_every: 1000000}")  # saved by nothing else
    job = submit(slurm, (), study, "--checkpoint-every-s", "1000")
    while_it_runs(slurm, job, lambda: len(raylets_of_trials(job)) == 2, "two trials")
    while_it_runs(slurm, job, lambda: " 2 running" in slurm.output(job), "two runs")
    slurm.cancel(job)
    printed = ended(slurm, job)
    assert "saving 2 runs" in printed
    assert len(list((tmp_path / "results" / "checkpoints").glob("*/step-*"))) == 2
    assert slurm.field(job, "JobState") == "CANCELLED"
    assert slurm.field(job, "Restarts") == "0"


@pytest.mark.slurm
def test_a_job_is_requeued_only_so_often(slurm: Slurm, tmp_path: Path) -> None:
    """Each part gets its signal while Ray starts, which takes forever."""
    venv = with_ray(tmp_path, "exec sleep 1000")
    job = submit(slurm, ("--time=1", "--signal=B:USR1@60"), write_study(tmp_path), venv=venv, MAX_RESTARTS="1")
    printed = ended(slurm, job)
    assert printed.count("time limit: runs are saved, the job is requeued") == 1
    assert "error: time limit: runs are saved, but the job was requeued 1 times already" in printed
    assert slurm.field(job, "JobState") == "FAILED"
    assert slurm.field(job, "Restarts") == "1"


def with_ray(folder: Path, body: str) -> str:
    """Make an environment whose `ray` is a shell script."""
    for name, text in {"python": f'exec {sys.executable} "$@"', "ray": body}.items():
        write_program(folder / "venv" / "bin" / name, f"#!/bin/sh\n{text}\n")
    return str(folder / "venv")


@pytest.mark.slurm
def test_a_ray_that_does_not_start_fails_the_job(slurm: Slurm, tmp_path: Path) -> None:
    venv = with_ray(tmp_path, "echo 'no Ray today' >&2; exit 3")
    job = submit(slurm, (), write_study(tmp_path), venv=venv)
    assert "no Ray today" in ended(slurm, job)
    assert slurm.field(job, "JobState") == "FAILED"
    assert not (tmp_path / "results").exists()


@pytest.mark.slurm
def test_ray_has_the_gpus_of_the_task_and_the_job_the_exit_code_of_run(slurm: Slurm, tmp_path: Path) -> None:
    job = submit(
        slurm,
        (f"--gpus-per-task={len(GPUS)}",),
        write_study(tmp_path, resources="{cpus_per_trial: 3}"),
        "--gpus-per-trial",
        "1",
    )
    assert "nodes: 2 CPU and 2 GPU" in ended(slurm, job)
    assert slurm.field(job, "ExitCode") == "2:0"


@pytest.mark.parametrize(("there", "code"), [(2, 1), (3, 0), (4, 0)])
def test_fewer_nodes_than_wanted_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], there: int, code: int
) -> None:
    """One more is none: a node that Slurm gave back may still be known."""
    monkeypatch.setattr("lr_sweep.sweep.cluster.slurm.num_nodes", lambda address: there)
    assert wait("192.0.2.1:6379", "3", "0") == code
    assert ("Ray started on 2 of 3 nodes" in capfd.readouterr().err) == (code == 1)
