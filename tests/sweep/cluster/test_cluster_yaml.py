"""The files of docs/cluster: what they start is reachable by ssh alone, once, and again where it fails."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest
from ruamel.yaml import YAML

from lr_sweep.tests.support.small_cluster import FILES, load, write_program
from lr_sweep.tests.support.tiny_study import ROOT, arguments_of
from lr_sweep.tests.support.waiting import free_port, mlflow_answers, wait_until


@pytest.fixture(params=FILES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(name: str) -> dict[str, Any]:
    return load(name)


def starts(cluster: dict[str, Any]) -> list[str]:
    return [*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]]


def test_gpu_machines_come_and_go() -> None:
    cluster = load("aws")
    for name in ("gpu", "gpu-l4"):
        gpu = cluster["available_node_types"][name]
        assert gpu["min_workers"] == 0
        assert gpu["max_workers"] == cluster["max_workers"] == 8
    assert cluster["idle_timeout_minutes"] == 10
    assert cluster["provider"]["cache_stopped_nodes"] is False
    assert cluster["available_node_types"]["head"]["resources"] == {"CPU": 0, "GPU": 0}


def test_both_files_start_one_mlflow() -> None:
    (first,), (second,) = ([line for line in starts(load(name)) if "mlflow_server" in line] for name in FILES)
    assert first == second


def test_aws_s_linter_accepts_the_account() -> None:
    api = pytest.importorskip("cfnlint.api")
    assert [str(match) for match in api.lint_file(ROOT / "docs" / "cluster" / "account.yaml")] == []


def test_few_lines_are_to_be_changed_and_each_says_so(name: str) -> None:
    marked = [line for line in FILES[name].read_text().splitlines() if "  # CHANGE" in line or "# CHANGE:" in line]
    assert len(marked) == {"aws": 8, "local": 4}[name]
    assert f"the {['four', 'eight'][name == 'aws']} lines marked CHANGE" in FILES[name].read_text()


class Head:
    """A machine's home folder in which a file's start commands run, with a `ray` that ends no real one."""

    def __init__(self, folder: Path, cluster: dict[str, Any]) -> None:
        self.home, self.shared = folder / "home", folder / "shared"
        self.shared.mkdir()
        programs = self.home / "lr-sweep" / ".venv" / "bin"
        write_program(programs / "ray", f'#!/bin/sh\necho "$RAY_AUTH_MODE $*" >> {folder}/ray.log\n')
        write_program(programs / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (self.home / "lr-sweep" / "sweep").symlink_to(ROOT / "sweep")
        (token := self.home / ".ray" / "auth_token").parent.mkdir()
        token.write_text("a" * 64)
        self.token = sha256(b"a" * 64).hexdigest()
        self.calls = folder / "ray.log"
        self.port = free_port()
        self.commands = [
            line.replace("5000", str(self.port)).replace("/shared/", f"{self.shared}/")
            for line in cluster["head_start_ray_commands"]
            if "shutdown" not in line  # it would end this machine
        ]

    def up(self) -> None:
        """Run the start commands as `ray up` does, each in a shell of its own."""
        for command in self.commands:
            self.call(command)

    def call(self, command: str) -> None:
        path = f"{self.home}/lr-sweep/.venv/bin:{os.environ['PATH']}"
        environment = os.environ | {"HOME": str(self.home), "PATH": path}
        subprocess.run(["bash", "-c", command], env=environment, check=True, timeout=30)

    def servers(self) -> set[int]:
        """The process ids of MLflow servers on the port, parents first."""
        found = set()
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if f"--port={self.port}" in line:
                found.add(process.pid)
        return found

    def end(self) -> None:
        for pid in self.servers():
            process = psutil.Process(pid)
            for each in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):  # they end with their parent, too
                    each.kill()


@pytest.fixture
def head(tmp_path: Path, cluster: dict[str, Any]) -> Iterator[Head]:
    head = Head(tmp_path, cluster)
    yield head
    head.end()


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "aws"])
def test_each_ray_up_starts_mlflow_and_ray_stop_ends_it(head: Head, name: str, tmp_path: Path) -> None:
    """The server's store is one setting, kept off the command line: a database's address has a password in it."""
    store = head.home / "mlflow" / "mlflow.db"
    if name == "local":  # the two files have one command
        store = tmp_path / "elsewhere.db"
        (head.shared / "mlflow-store").write_text(f"sqlite:///{store}\n")
    head.up()
    wait_until(lambda: mlflow_answers(head.port, head.token), "MLflow")
    before = head.servers()
    head.up()
    wait_until(lambda: not before & head.servers(), "the first MLflow's end")
    wait_until(lambda: mlflow_answers(head.port, head.token), "MLflow")
    assert addresses_listened_on(head) == {"127.0.0.1"}
    link = Request(f"http://127.0.0.1:{head.port}/", headers={"Authorization": f"Bearer {head.token}"})
    with urlopen(link) as page:  # the link of `ui FILE`, before the first study
        assert page.url == f"http://127.0.0.1:{head.port}/mlflow/"
    assert store.exists()
    assert not any(store.name in word for pid in head.servers() for word in psutil.Process(pid).cmdline())
    head.call("~/lr-sweep/sweep/cluster/bin/ray stop")
    wait_until(lambda: not head.servers(), "the second MLflow's end")
    assert head.calls.read_text().splitlines()[-1] == "token stop"


def addresses_listened_on(head: Head) -> set[str]:
    found = set()
    for pid in head.servers():
        for each in psutil.Process(pid).net_connections(kind="tcp"):
            if each.status == psutil.CONN_LISTEN:
                found.add(each.laddr.ip)
    return found


def test_an_idle_head_shuts_itself_down_and_is_terminated_then() -> None:
    cluster = load("aws")
    (command,) = [line for line in cluster["head_start_ray_commands"] if "cluster.head idle" in line]
    assert "-m lr_sweep.sweep.cluster.head idle 60 sudo shutdown -h now" in command
    assert cluster["available_node_types"]["head"]["node_config"]["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert cluster["idle_timeout_minutes"] < 60  # workers end before the head, which ends them
    assert not any("cluster.head idle" in line for line in starts(load("local")))


@pytest.mark.parametrize(("failures", "code", "calls"), [(2, 0, 3), (99, 1, 10)])
def test_a_worker_s_start_is_tried_again(name: str, tmp_path: Path, failures: int, code: int, calls: int) -> None:
    """With a `ray` that fails so often, and a `sleep` that does not wait."""
    (command,) = [line for line in load(name)["worker_start_ray_commands"] if "ray start" in line]
    programs, calls_made = tmp_path / "lr-sweep" / ".venv" / "bin", tmp_path / "calls"
    fails = f"[ $(wc -l < {calls_made}) -gt {failures} ]"
    write_program(programs / "ray", f'#!/bin/sh\necho "$@" >> {calls_made}\n{fails}\n')
    write_program(programs / "sleep", "#!/bin/sh\n")
    (tmp_path / "lr-sweep" / "sweep").symlink_to(ROOT / "sweep")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"HOME": str(tmp_path), "PATH": path, "RAY_HEAD_IP": "192.0.2.10"}
    assert subprocess.run(["bash", "-c", command], env=env).returncode == code
    assert calls_made.read_text().splitlines() == ["start --address=192.0.2.10:6379"] * calls


FOLDER = ROOT / "docs" / "cluster"


def manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(FOLDER / "rayjob.yaml")
    return loaded


def test_the_entrypoint_is_a_command_of_the_program() -> None:
    program, option, module, *arguments = shlex.split(manifest()["spec"]["entrypoint"])
    assert (program, option, module) == ("python", "-m", "lr_sweep.sweep")
    chosen = arguments_of(arguments)
    assert (arguments[0], chosen["address"]) == ("run", "auto")
    mounts = [container["volumeMounts"][0]["mountPath"] for container in containers()]
    assert mounts == ["/shared", "/shared"]
    assert chosen["results"].startswith("/shared/")
    assert str(chosen["data_dir"]).startswith("/shared/")


def containers() -> list[dict[str, Any]]:
    cluster = manifest()["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for pod in pods for container in pod["template"]["spec"]["containers"]]


def test_a_worker_pod_that_is_deleted_says_so_and_stays_until_its_runs_are_saved(tmp_path: Path) -> None:
    write_program(tmp_path / "ray", f'#!/bin/sh\necho "$*" > {tmp_path / "said"}\n')
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(["bash", "-c", "exec -a ray::CohortTrainable.train sleep 60"]) as trial:
        program, option, hook = containers()[1]["lifecycle"]["preStop"]["exec"]["command"]
        quick = hook.replace("/proc/[0-9]*", f"/proc/{trial.pid}").replace("sleep 1", "sleep 0.1")
        with subprocess.Popen([program, option, quick], env=os.environ | path) as waits:
            with pytest.raises(subprocess.TimeoutExpired):
                waits.wait(1.0)
            trial.kill()
            trial.wait()
            assert waits.wait(30) == 0
    assert "--reason DRAIN_NODE_REASON_PREEMPTION " in (tmp_path / "said").read_text()


def test_rays_version_is_the_environments() -> None:
    version = manifest()["spec"]["rayClusterSpec"]["rayVersion"]
    assert f"\nray=={version}\n" in (ROOT / "constraints.txt").read_text()
    assert len({container["image"] for container in containers()}) == 1


def test_kueues_label_is_one_line_away() -> None:
    text = (FOLDER / "rayjob.yaml").read_text()
    job = YAML(typ="safe").load(text.replace("# labels:", "labels:"))
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "lr-sweep"}


def test_the_image_has_the_environments_packages_each_with_its_hash() -> None:
    """pip refuses a package that lacks a hash, or has another; setuptools builds the program."""
    assert "--require-hashes" in (FOLDER / "Dockerfile").read_text()
    lines = [line for line in (FOLDER / "requirements.txt").read_text().splitlines() if line[0] != "#"]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    pinned = {canonical(line.split()[0]) for line in lines if not line.startswith("setuptools==")}
    assert pinned <= set(map(canonical, (ROOT / "constraints.txt").read_text().split()))
    assert {name.partition("==")[0] for name in pinned} >= {"ray", "torch", "mlflow", "psycopg", "psycopg-binary"}


def canonical(pin: str) -> str:
    return re.sub(r"[-_.]+(?=.*==)", "-", pin).lower()


def test_what_the_image_is_built_from_is_listed() -> None:
    """`.dockerignore` excludes everything but what the Dockerfile copies."""
    first, *kept = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert first == "*"
    copied = re.findall(r"^COPY (.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    wanted = {f"!{name}" for names in copied for name in names.split()} | {"**/__pycache__"}
    assert set(kept) == wanted
