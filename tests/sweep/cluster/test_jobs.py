"""A study's life on a Ray head of this machine: submitted, left, followed again, stopped, submitted again."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lr_sweep.analysis.record.read import read_curves
from lr_sweep.sweep.cluster.jobs import owner_here
from lr_sweep.tests.support.own_study import write_own_study
from lr_sweep.tests.support.servers.laptop import accepted
from lr_sweep.tests.support.servers.local_head import TOKEN, LocalHead, local_head
from lr_sweep.tests.support.small_cluster import ClusterRun
from lr_sweep.tests.support.tiny_study import (
    ROOT,
    as_text,
    command_line,
    curves,
    rows,
    sweep,
    sweep_until,
    swept,
    trained_here,
    write_study,
)
from lr_sweep.tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
PATIENCE_S = 480.0


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHead]:
    with local_head(tmp_path_factory.mktemp("head")) as started:
        yield started


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of some ten seconds each."""
    folder = tmp_path_factory.mktemp("study")
    return write_study(
        folder, rates=(1e-2,), num_steps=2000, protocol="{evaluate_every: 50, train_examples_evaluated: 100}"
    )


def test_submitted_left_come_back_to_stopped_and_submitted_again(head: LocalHead, study: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    submit = ("submit", study, "--results", results, "--data-dir", tmp_path / "data", "--address", head.address)

    def say(*arguments: str | Path) -> tuple[int, str]:
        code, printed = sweep(*arguments, env=head.environment)
        assert "Traceback" not in printed
        assert TOKEN not in printed
        return code, printed

    job = lambda action: say("cluster", action, "tiny", "--address", head.address)  # noqa: E731
    code, printed = sweep_until("following tiny", *submit, env=head.environment, timeout_s=PATIENCE_S)
    assert code == 0, printed
    assert TOKEN not in printed
    name = accepted(printed)
    assert f"{name} was accepted" in printed
    assert (
        f"not followed any more; {name} is still running. Follow it again: lr-sweep cluster logs {name} --address "
        f"{head.address}" in printed
    )
    code, printed = say(*submit)
    assert code == 2
    assert f"{name} of {owner_here()} writes to {results}, and a results directory has one writer" in printed
    code, printed = say("cluster", "jobs", "--address", head.address)
    assert code == 0
    assert f"{name}  running" in printed or f"{name}  pending" in printed
    assert printed.endswith("\n1 machine is there\n")
    wait_until(lambda: any((results / "checkpoints").rglob("*.safetensors")), "a checkpoint", PATIENCE_S)
    code, printed = job("stop")
    assert code == 0
    assert "stopped; the same command resumes from here" in printed
    assert f"{name} was stopped; submit the study again to resume it" in printed
    assert len(rows(results)) < 2
    before = evaluated_at(results)
    assert before
    assert job("stop") == (0, f"{name} has ended already (stopped)\n")
    code, printed = job("logs")
    assert code == 130
    assert "training 2 runs" in printed
    code, printed = say(*submit)
    assert code == 0
    assert "2 runs wanted: all complete" in printed
    assert f"{accepted(printed)} succeeded after" in printed
    assert accepted(printed) > name
    assert [len(curve) for curve in curves(results).values()] == [40, 40]
    after = evaluated_at(results)
    assert {run_id: after[run_id][: len(times)] for run_id, times in before.items()} == before  # none was made again
    assert {row["git_commit"] for row in rows(results).values()} == {commit()}
    for log in results.joinpath("logs").rglob("*.log"):
        assert TOKEN not in log.read_text()


def test_a_training_function_of_ones_own(head: LocalHead, tmp_path: Path) -> None:
    """Its code is sent; its data is in the data directory, under its names in the study."""
    study, results = write_own_study(tmp_path / "own"), tmp_path / "results"
    expected = trained_here(study, tmp_path / "here")
    submit = ("submit", study, "--results", results, "--data-dir", tmp_path / "shared", "--address", head.address)
    code, printed = sweep(*submit, env=head.environment)
    assert code == 2
    assert "no data/digits.npz in " in printed
    shutil.copytree(tmp_path / "own" / "data", tmp_path / "shared" / "data")
    swept(*submit, env=head.environment)
    assert as_text(curves(results)) == as_text(expected)


def test_as_a_function(head: LocalHead, study: Path, tmp_path: Path) -> None:
    """A failure in the job is returned: its text and its exit code."""
    script = f"""
from lr_sweep.sweep.cluster.jobs import ClusterJobs
from lr_sweep.sweep.cluster.jobs import submit_study
from lr_sweep.sweep.study.file import load_study
study, folder = load_study({str(study)!r}), {str(tmp_path)!r}
cluster = ClusterJobs({head.address!r})
job = submit_study(study, folder, folder, cluster, [], print, {{"API_KEY": "a-planted-secret"}})
busy = cluster.drivers() > 0
ended = cluster.follow(job.name, print)
print(busy, cluster.drivers(), cluster.machines())
print("planted" in str(cluster._client.list_jobs()), "lr_sweep_secrets" in str(cluster._client.list_jobs()))
print(ended.status, ended.exit_code)
"""
    (tmp_path / "something").touch()
    command = [*command_line()[:1], "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=head.environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path} is not empty and holds no record of ours" in done.stdout
    assert done.stdout.endswith("True 0 1\nFalse True\nFAILED 2\n")


TELLS = """\
command: sh tell.sh {learning_rate} {seed}
metrics: {validation: 'key=(\\S+)', test: 'key=(\\S+)'}
metric: {name: loss, higher_is_better: false}
variants: {only: {}}
learning_rates: [0.1]
seeds: 1
"""


def test_a_secret_reaches_the_workers_and_no_file(head: LocalHead, tmp_path: Path) -> None:
    """The metric is the secret's length. A worker has the priority that Ray gives it without a driver's memory."""
    (tmp_path / "tell.sh").write_text('echo "key=${#API_KEY}"; echo "priority=$(nice)"')
    (tmp_path / "tells.yaml").write_text(TELLS)
    submit = ("submit", tmp_path / "tells.yaml", "--results", tmp_path / "results", "--data-dir", tmp_path)
    env = head.environment | {"API_KEY": (secret := "a-planted-secret")}
    code, printed = sweep(*submit, "--env", "API_KEY", "--address", head.address, env=env)
    assert code == 0, printed
    (curve,) = curves(tmp_path / "results").values()
    assert len(secret) in curve[-1].values()  # as a metric
    kept = [path for folder in (head.sessions, tmp_path) for path in folder.rglob("*") if path.is_file()]
    assert len(kept) > 20
    texts = [printed.encode(), *(path.read_bytes() for path in kept)]
    assert not any(secret.encode() in text for text in texts)
    assert any(b"priority=15" in text for text in texts)


def test_a_second_driver_waits_for_memory_and_a_killed_one_is_named(
    head: LocalHead, study: Path, tmp_path: Path
) -> None:
    """A job that waits may be stopped; it ends when its turn comes."""

    def submitted(results: str) -> str:
        where = ("--results", tmp_path / results, "--data-dir", tmp_path / "data", "--address", head.address)
        code, printed = sweep("submit", study, *where, "--no-follow", env=head.environment)
        assert code == 0, printed
        return accepted(printed)

    def say(*words: str) -> tuple[int, str]:
        return sweep("cluster", *words, "--address", head.address, env=head.environment)

    first = submitted("first")
    wait_until(lambda: any((tmp_path / "first" / "curves").glob("*.parquet")), "an evaluation", PATIENCE_S)
    second = submitted("second")
    assert say("stop", second) == (
        0,
        f"{second} waits for memory on the head: it ends, without training, when its turn comes\n",
    )
    assert re.search(f"{second} +pending", say("jobs")[1])
    (driver,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path / "first") in (words := process.info["cmdline"] or []) and "run" in words
    ]
    driver.kill()
    code, printed = say("logs", first)
    assert code == 1
    assert "its driver was killed by SIGKILL, as the system does when memory is short. Submit the study" in printed
    is_stopped = re.compile(f"{second} +stopped")
    wait_until(lambda: bool(is_stopped.search(say("jobs")[1])), "the second job's end", PATIENCE_S)
    assert not (tmp_path / "second" / "curves").exists()


@pytest.mark.parametrize("token", [None, "f" * 64])
def test_without_the_token_requests_are_refused(head: LocalHead, tmp_path: Path, token: str | None) -> None:
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(token)
    code, printed = sweep("cluster", "jobs", "--address", head.address, env=head.environment | {"HOME": str(tmp_path)})
    assert code == 2
    assert f"the cluster at {head.address} refuses our token: " in printed
    assert "~/.ray/auth_token" in printed
    assert token is None or token not in printed
    assert "Traceback" not in printed


def test_run_presents_the_token_and_reads_what_nodes_there_are(head: LocalHead, study: Path, tmp_path: Path) -> None:
    arguments = (study, "--results", tmp_path / "results", "--address", head.ray_address, "--gpus-per-trial", "1")
    with ClusterRun(tmp_path / "log", *arguments, env=head.environment | {"RAY_AUTH_MODE": "token"}) as run:
        code, printed = run.ends()
    assert code == 2
    assert f"the cluster at {head.ray_address} has no such node (nodes: 1 CPU and 0 GPU)" in printed


def evaluated_at(results: Path) -> dict[str, list[int]]:
    """When each evaluation of each run was made, by run id."""
    return {str(run_id): group["time_ms"].tolist() for run_id, group in read_curves(results).groupby("run_id")}


def commit() -> str | None:
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or None
