"""`cluster check`: the shipped files have placeholders alone, and each mistake of the tables is found in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster.check import AWS, COMMON, LOCAL, PLACEHOLDER_ID, problems_in
from lr_sweep.tests.support.small_cluster import FILES
from lr_sweep.tests.support.tiny_study import ROOT, said


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with a token and a key, and the checkout as the folder of commands."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for name in (".ray/auth_token", ".ssh/lr-sweep.pem", ".ssh/id_ed25519"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


def filled_in(home: Path, name: str, old: str = "", new: str = "") -> Path:
    """Write a shipped file with ids of an account, or addresses of a network, and one text in the place of another."""
    text = FILES[name].read_text().replace(PLACEHOLDER_ID, "00fedcba98765432").replace("192.0.2.", "10.0.0.")
    assert old in text
    path = home / "mine.yaml"
    path.write_text(text.replace(old, new) if old else text)
    return path


def test_the_shipped_files_have_placeholders_alone(home: Path) -> None:
    code, printed = said("cluster", "check", FILES["local"])
    assert (code, printed.splitlines()[-1]) == (1, f"{FILES['local']}: 3 problems")
    found = {name: problems_in(path) for name, path in FILES.items()}
    assert all("is a placeholder: give your own" in problem for problems in found.values() for problem in problems)
    assert len(found["aws"]) == 5  # image, two subnets and group, which three node types share; the file system
    assert [text.split(":")[0] for text in found["local"]] == [
        "provider.head_ip",
        "provider.worker_ips.0",
        "provider.worker_ips.1",
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_filled_in_has_no_problem(home: Path, name: str) -> None:
    path = filled_in(home, name)
    assert said("cluster", "check", path) == (
        0,
        f"{path}: no problem in what can be checked here; `ray up {path}` shows the rest\n",
    )


PLANTED = {
    "aws": [
        ("cluster_name: lr-sweep", "cluster_name: ours"),
        ("\nmax_workers: 8", "\nmin_workers: 1\nmax_workers: 8"),
        ("IamInstanceProfile: {Name", "# {Name"),
        ("      InstanceType: m6i.xlarge\n", ""),
        ("ImageId: ami-", "ImageId: sg-"),
        (" SecurityGroupIds:", " # "),
        ("[subnet-00fedcba987654320, ", "[sg-00fedcba987654320, "),
        ("        KeyName: lr-sweep", "        EbsOptimized: true"),
        ("  ssh_private_key", "  #"),
        ("VolumeSize: 100", "VolumeSize: 8"),
    ],
    "local": [
        ("bin/ray start --addr", ".venv/bin/ray start --addr"),
        ("python -P -m lr_sweep.sweep.cluster.mlflow_server", "mlflow server"),
        ("--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0"),
        ("bin/ray start --head", "bin/ray start"),
        ("cluster.head start", "cluster.heads start"),
        ("--port=6379", "--port=6380"),
        ("make env EXTRAS=cluster", "python -m lr_sweep.sweep.cluster.idle 60"),
        ("  ssh_user: lab", "  # lab"),
        ("sweep/cluster/bin/ray start --head", "; ray start --head"),
        ("$RAY_HEAD_IP", "$RAY_HEAD"),
        (" --autoscaling-config=~/ray_bootstrap_config.yaml", ""),
        ("mlflow_server --port=5000", "mlflow_server --port=5001"),
        ("--address=$RAY_HEAD_IP:6379", "--address=$RAY_HEAD_IP"),
        ("/shared", "/elsewhere"),
        ("RAY_enable_autoscaler_v2=0", "RAY_enable_autoscaler_v2=1"),
        ("[10.0.0.11, 10.0.0.12]", "[10.0.0.11, 10.0.0.10]"),
        ("head_ip: 10.0.0.10", "head_ip: localhost"),
    ],
}


@pytest.mark.parametrize("name", FILES)
def test_each_mistake_of_the_tables_is_found(home: Path, name: str) -> None:
    """In the file of AWS, those of both kinds in the local one."""
    table, found = {mistake.reason for mistake in {"aws": AWS, "local": (*COMMON, *LOCAL)}[name]}, set[str]()
    for old, new in PLANTED[name]:
        problems = problems_in(filled_in(home, name, old, new))
        made = {reason for reason in table if any(problem.endswith(f", {reason}") for problem in problems)}
        assert made, (old, new, problems)
        found |= made
    assert found == table


@pytest.mark.parametrize(
    ("name", "old", "new", "wanted"),
    [
        ("aws", "\nmax_workers: 8", "\nmax_worker: 8", "the file: Ray refuses it: Additional properties are not"),
        ("aws", "    min_workers: 0", "    min_workers: many", "Ray refuses it: "),
        ("aws", "head_node_type: head", "head_node_type: hed", "`head_node_type` must be one of"),
        ("aws", "    min_workers: 0", "    min_workers: 5", "is smaller than the sum of `min_workers`"),
        ("aws", "type: aws", "type: awss", "Unsupported node provider: awss"),
        ("local", "  worker_ips:", "  worker_ip:", "Please supply a `head_ip` and list of `worker_ips`"),
    ],
)
def test_what_ray_refuses_comes_first_and_alone(home: Path, name: str, old: str, new: str, wanted: str) -> None:
    """Without Ray's schema, and its warnings."""
    (problem,) = problems_in(filled_in(home, name, old, new))
    assert wanted in problem
    assert "\n" not in problem


def test_min_workers_of_machines_of_one_s_own_are_no_problem(home: Path) -> None:
    """`ray up` moves the number to a node type before it looks at its schema."""
    assert problems_in(filled_in(home, "local", "cluster_name:", "min_workers: 1\ncluster_name:")) == []


def test_files_of_this_machine(home: Path) -> None:
    (home / ".ssh" / "lr-sweep.pem").unlink()
    (home / ".ray" / "auth_token").unlink()
    token, key, mount = problems_in(filled_in(home, "aws", "  ~/lr-sweep/common: common\n", ""))
    assert token.endswith(".ray/auth_token does not exist; make it with `ray get-auth-token --generate > /dev/null`")
    assert key == f"auth.ssh_private_key: {home}/.ssh/lr-sweep.pem does not exist"
    assert mount == "file_mounts.~/lr-sweep/common: got nothing, want common, which the machines need"


def test_no_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        problems_in(tmp_path / "none.yaml")
