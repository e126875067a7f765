"""Submitting without a cluster: what is refused and what would be sent. With one: test_jobs.py."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import Say
from lr_sweep.sweep.cluster.jobs import SENT, ClusterJobs, Job, copy_program, owner_here
from lr_sweep.sweep.results import provenance
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.small_cluster import write_program
from lr_sweep.tests.support.tiny_study import ROOT, refused, said, write_study
from lr_sweep.trainables.worker import job_secrets

ABSOLUTE = ("--results", "/shared/results", "--data-dir", "/shared/data")


@pytest.fixture
def other_server() -> Iterator[str]:
    """Some web server that is not Ray's."""
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Cluster:
    """Replaces a cluster's job server; keeps what it is sent."""

    def __init__(self, there: Sequence[Job], folder: Path) -> None:
        self.address, self.there, self.folder, self.commands = "http://cluster", list(there), folder, []
        self.more: Mapping[str, str] = {}
        self.stopped: list[str] = []
        self.ends = a_job("tiny-1", "STOPPED")

    def __call__(self, address: str) -> Cluster:
        return self

    def jobs(self) -> list[Job]:
        return self.there

    def start(self, study: str, results: str, command: str, folder: Path, more: Mapping[str, str]) -> str:
        shutil.copytree(folder, self.folder)
        self.more = more
        self.commands.append(command)
        self.there.append(a_job(f"{study}-1", "PENDING"))
        return f"{study}-1"

    def machines(self) -> int:
        return 3

    def get(self, name: str) -> Job:
        return next(job for job in self.there if job.name == name)

    def newest(self, name: str) -> Job:
        return next(job for job in self.there if name in (job.study, job.name))

    def stop(self, name: str) -> None:
        self.stopped.append(name)

    def follow(self, name: str, write: Say) -> Job:
        return self.ends


def a_job(name: str, status: str, **more: Any) -> Job:
    fields: dict[str, Any] = {"results": "/shared/results", "exit_code": None, "started_s": 0.0, "ended_s": None} | more
    return Job(name=name, study=name.partition("-")[0], status=status, **fields)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    fake = Cluster([], tmp_path / "there")
    monkeypatch.setattr("lr_sweep.sweep.cli.cluster_commands.ClusterJobs", fake)
    return fake


@pytest.mark.parametrize(
    ("results", "data_dir", "wanted"),
    [
        ("results", "data", "got --results results and --data-dir data, want absolute paths"),
        ("/shared/results", "~/data", "got --data-dir ~/data, want absolute paths"),
    ],
)
def test_relative_paths_are_refused(tmp_path: Path, results: str, data_dir: str, wanted: str) -> None:
    assert wanted in refused("submit", write_study(tmp_path), "--results", results, "--data-dir", data_dir)


def test_a_wrong_study_is_reported_before_the_cluster_is_asked() -> None:
    printed = refused("submit", "quickstar", "--address", "http://127.0.0.1:1", *ABSOLUTE)
    assert "unknown study 'quickstar'; did you mean 'quickstart'?" in printed


@pytest.mark.parametrize("command", [("submit", "quickstart", *ABSOLUTE), ("cluster", "jobs")])
def test_no_head_at_the_address(command: tuple[str, ...]) -> None:
    printed = refused(*command, "--address", "http://127.0.0.1:1")
    assert "nothing answers at --address http://127.0.0.1:1: [Errno 111] Connection refused. Start a cluster" in printed
    assert "grid" not in printed


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:6379", "ray://127.0.0.1:10001", "http://", "http://h:99999"])
def test_an_address_that_is_no_url(address: str) -> None:
    printed = refused("cluster", "jobs", "--address", address)
    assert f"--address: got {address!r}, want the URL of a cluster's job server, such as http://127.0.0." in printed


def test_something_else_answers(other_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--address` must count: Ray's client would let environment variables override it."""
    for variable in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    printed = refused("cluster", "jobs", "--address", other_server)
    assert f"the job server at {other_server} fails: Version check returned 404" in printed


def test_a_submitted_study_is_run_with_its_options(tmp_path: Path, cluster: Cluster) -> None:
    study = write_study(tmp_path)
    options = ("--no-follow", "--gpus-per-trial", "0.5", "--retry-failed", "--restart-inexact", "--strict")
    paths = ("--results", "/shared/our results", "--data-dir", "/shared/data")
    code, printed = said("submit", study, *paths, *options)
    assert (code, "Traceback" in printed) == (0, False)
    assert printed.index("sending ") < printed.index("tiny-1 was accepted")
    assert cluster.commands == [
        "exec sh lr_sweep/sweep/cluster/start.sh run tiny.yaml --address auto "
        "--results '/shared/our results' --data-dir /shared/data --checkpoint-every-s 60.0 "
        "--retry-failed --restart-inexact --strict"
    ]
    sent = load_study(cluster.folder / "tiny.yaml")
    assert sent.resources.gpus_per_trial == 0.5
    assert sent.learning_rate_grid() == load_study(study).learning_rate_grid()
    assert (cluster.folder / "lr_sweep" / "sweep" / "__main__.py").is_file()


ELSEWHERE = {"results": "/shared/other"}


@pytest.mark.parametrize(
    ("there", "why_not"),
    [
        (a_job("tiny-7", "RUNNING", owner=owner_here()), "for which `cluster logs tiny-7` waits"),
        (a_job("tiny-7", "PENDING", owner="bob@lab"), "tiny-7 of bob@lab writes to /shared/results, and a results"),
        (a_job("other-1", "RUNNING", results="/shared//results/"), "a directory of its own with --results"),
        (a_job("tiny-7", "RUNNING", owner="bob@lab", **ELSEWHERE), None),
        (a_job("tiny-7", "RUNNING", owner=owner_here(), **ELSEWHERE), None),
        (a_job("tiny-7", "STOPPED"), None),
        (a_job("tiny-7", "FAILED"), None),
    ],
)
def test_a_second_job_is_refused_while_one_writes_to_its_results_directory(
    tmp_path: Path, cluster: Cluster, there: Job, why_not: str | None
) -> None:
    """Another user's study of the same name, in a directory of its own, is another study."""
    cluster.there.append(there)
    code, printed = said("submit", write_study(tmp_path), "--no-follow", *ABSOLUTE)
    assert (code, "Traceback" in printed) == (2 if why_not else 0, False)
    assert why_not is None or why_not in printed
    assert "cluster stop" not in printed
    assert len(cluster.commands) == (why_not is None)


def test_a_secret_is_sent_encrypted_alone(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_secrets, "cluster_token", lambda: "of the cluster")
    submit = ("submit", write_study(tmp_path), "--no-follow", *ABSOLUTE)
    assert "--env NO_SUCH: not set here" in refused(*submit, "--env", "NO_SUCH")
    monkeypatch.setenv("API_KEY", "a-planted-secret")
    code, printed = said(*submit, "--env", "API_KEY")
    assert code == 0
    sent = [path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()]
    assert not any(b"a-planted-secret" in text for text in [*sent, printed.encode(), str(cluster.commands).encode()])
    assert "a-planted-secret" not in str(cluster.more)
    monkeypatch.delenv("API_KEY")
    monkeypatch.setattr(job_secrets, "job_metadata", lambda: cluster.more)
    job_secrets.take_secrets()
    assert os.environ["API_KEY"] == "a-planted-secret"


@pytest.mark.parametrize(
    ("owner", "options", "code", "wanted"),
    [
        (owner_here(), (), 0, "tiny-1 was stopped; submit the study again"),
        ("bob@lab", ("--yes",), 0, "tiny-1 was stopped; submit the study again"),
        ("bob@lab", (), 2, "tiny-1 was submitted by bob@lab, and you are {me}: `lr-sweep cluster stop tiny-1 --addr"),
        ("", (), 2, "tiny-1 was submitted by another user"),
    ],
)
def test_another_user_s_job_is_stopped_only_after_a_yes(
    cluster: Cluster, owner: str, options: tuple[str, ...], code: int, wanted: str
) -> None:
    """The tests have no terminal to ask at."""
    cluster.there.append(a_job("tiny-1", "RUNNING", owner=owner))
    stopped, printed = said("cluster", "stop", "tiny", *options)
    assert (stopped, cluster.stopped) == (code, [] if code else ["tiny-1"])
    assert wanted.format(me=owner_here()) in printed


@pytest.mark.parametrize(
    ("ended", "code", "cause"),
    [
        ({"exit_code": -9}, 1, "its driver was killed by SIGKILL, as the system does when memory is short."),
        ({"exit_code": -11}, 1, "its driver was killed by SIGSEGV."),
        ({"message": "Job supervisor actor died: no node.\nMore."}, 1, "lost (Job supervisor actor died: no node)."),
        ({"exit_code": 3}, 3, None),
    ],
)
def test_a_follower_says_how_a_driver_died(
    cluster: Cluster, ended: dict[str, Any], code: int, cause: str | None
) -> None:
    cluster.there.append(a_job("tiny-1", "RUNNING"))
    cluster.ends = a_job("tiny-1", "FAILED", ended_s=1.0, **ended)
    followed, printed = said("cluster", "logs", "tiny")
    assert followed == code
    assert (f"{cause} Submit the study again to resume it.\n" in printed) == (cause is not None)


def test_jobs_and_machines(cluster: Cluster) -> None:
    none = "no study was submitted to the cluster at http://cluster\n3 machines are there\n"
    assert said("cluster", "jobs") == (0, none)
    cluster.there += [
        a_job("tiny-20261123-041500", "RUNNING", owner="bob@lab"),
        a_job("other-20261122-090000", "FAILED"),
    ]
    code, printed = said("cluster", "jobs")
    assert (code, "Traceback" in printed) == (0, False)
    assert "tiny-20261123-041500   running" in printed
    assert "bob@lab  /shared/results\n" in printed
    assert printed.endswith("\n3 machines are there\n")


@pytest.mark.parametrize(("given", "seen"), [({}, "unset"), ({"CUDA_VISIBLE_DEVICES": "1"}, "1")])
def test_a_driver_with_memory_sees_the_head_s_gpus_and_leaves_workers_their_priority(
    tmp_path: Path, given: dict[str, str], seen: str
) -> None:
    """Ray's raylet and job supervisor are replaced by shells with their environments."""
    said = '"$*" "$RAY_JOB_CONFIG_JSON_ENV_VAR" "${CUDA_VISIBLE_DEVICES-unset}"'
    python = write_program(tmp_path / "python", f"#!/bin/sh\necho {said}\n")
    path = {"PATH": "/usr/bin:/bin"}
    words = ["sh", "-c", "sleep 60; true", f"--python_worker_command={python} x"]
    with subprocess.Popen(words, env=path | given, start_new_session=True) as raylet:
        job = {"RAY_JOB_CONFIG_JSON_ENV_VAR": '{"RAY_worker_niceness": "0", "x": "0"}', "CUDA_VISIBLE_DEVICES": ""}
        start = ["sh", "-c", f"sh {ROOT}/sweep/cluster/start.sh run tiny.yaml; true"]
        env = path | job | {"RAY_RAYLET_PID": str(raylet.pid)}
        printed = subprocess.run(start, env=env, capture_output=True, text=True, check=True).stdout
        os.killpg(raylet.pid, signal.SIGKILL)
    assert printed == f'-m lr_sweep.sweep run tiny.yaml {{"RAY_worker_niceness": "15", "x": "0"}} {seen}\n'


class Away(ClusterJobs):
    """A job whose log is read over a connection that is lost."""

    def __init__(self) -> None:
        self.address = "http://cluster"
        self._client: Any = SimpleNamespace(tail_job_logs=self.tail)

    async def tail(self, name: str) -> AsyncIterator[str]:
        for text in ("3 runs", "\n4"):
            yield text
        raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")


@pytest.mark.cluster
def test_what_a_job_prints_is_shown_once_and_a_lost_connection_ends_the_following_alone() -> None:
    shown: list[str] = []
    with pytest.raises(UserError, match=r"with close code 1006. If the head is up, tiny-1 is running"):
        Away().follow("tiny-1", shown.append)
    assert shown == ["3 runs", "\n4"]


def test_the_newest_job_of_a_study_is_one_s_own_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = a_job("tiny-1", "FAILED", owner=owner_here()), a_job("tiny-2", "RUNNING", owner="bob@lab")
    monkeypatch.setattr(ClusterJobs, "jobs", lambda self: [mine, theirs, a_job("other-3", "RUNNING", owner="bob@lab")])
    server = Away()
    assert [server.newest(name).name for name in ("tiny", "tiny-2", "other")] == ["tiny-1", "tiny-2", "other-3"]
    with pytest.raises(UserError, match="no job of study 'third'"):
        server.newest("third")


MIB = 2**20


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    left_out = (".git/config", "results/runs/r.parquet", "docs/d.md", "sweep/__pycache__/a.pyc", "README.md")
    for name in ("sweep/a.py", *left_out):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_what_is_copied(checkout: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert copy_program(there, checkout) == len("sweep/a.py") + (there / "lr_sweep" / "packed.json").stat().st_size
    files = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()}
    assert files == {"lr_sweep/packed.json", "lr_sweep/sweep/a.py"}
    assert (there / "lr_sweep" / "sweep" / "a.py").read_text() == "sweep/a.py"


@pytest.mark.cluster
def test_equal_checkouts_make_equal_packages(checkout: Path, tmp_path: Path) -> None:
    """Ray names packages by their content, and does not send again what a cluster has."""
    from ray._private.runtime_env.packaging import get_uri_for_directory

    packages = set()
    for name in ("first", "second"):
        copy_program(tmp_path / name, checkout)
        packages.add(get_uri_for_directory(str(tmp_path / name), include_gitignore=True))
        os.utime(checkout / "sweep" / "a.py", (0, 0))
    assert len(packages) == 1


DOCKERFILE = [line.split() for line in (ROOT / "docs/cluster/Dockerfile").read_text().splitlines()]


def mounted(cluster_file: str) -> set[str]:
    return set(yaml.safe_load((ROOT / cluster_file).read_text())["file_mounts"].values())


@pytest.mark.parametrize(
    "copied",
    [
        {*SENT},
        mounted("cluster.yaml"),
        mounted("docs/cluster/local.yaml"),
        {word for line in DOCKERFILE if line[:1] == ["COPY"] for word in line[1:-1]},
    ],
    ids=["a job", "cluster.yaml", "local.yaml", "the image"],
)
def test_every_copy_has_all_folders_of_the_program(copied: set[str]) -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {name.split(".")[1] for name in packages if "." in name}
    assert folders | {"__init__.py"} <= copied
    assert all(name.startswith("~") or (ROOT / name).exists() for name in copied)


def test_all_of_this_program_is_sent_and_fits(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", *SENT], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git checkout")
    assert copy_program(tmp_path) < 20 * MIB
    sent = {path.relative_to(tmp_path / "lr_sweep").as_posix() for path in tmp_path.rglob("*")}
    assert {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()} <= sent


def test_a_copy_knows_its_commit(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs trained on a cluster are recorded with the commit of the laptop's checkout; .git is not sent."""
    known = {"git_commit": "0f3a", "git_dirty": True, "version": "0.3"}
    monkeypatch.setattr("lr_sweep.sweep.cluster.jobs.origin", lambda files: known)
    copy_program(tmp_path / "there", checkout)
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path / "there" / "lr_sweep")
    assert provenance.origin() == known
