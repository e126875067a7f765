"""`cluster check`: placeholders and mistakes of the shipped cluster files, and what a user may leave out of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster import check
from lr_sweep.sweep.cluster.check import PLACEHOLDER_ID, not_checked, problems_in
from lr_sweep.sweep.cluster.tunnels import read_cluster
from lr_sweep.tests.support.command_lines import said, succeeds
from lr_sweep.tests.support.tiny_study import ROOT

AWS, LOCAL = ROOT / "cluster.yaml", ROOT / "docs" / "cluster" / "local.yaml"


@cache
def parsed(path: Path, text: str) -> dict[str, Any]:
    """Each content is read once: that takes most of a check's time."""
    return read_cluster(path)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with a token and a key, and the checkout as the folder of commands."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(check, "read_cluster", lambda path: parsed(path, path.read_text()))
    monkeypatch.chdir(ROOT)
    for name in (".ray/auth_token", ".ssh/lr-sweep.pem", ".ssh/id_ed25519"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
        path.chmod(0o600)
    return tmp_path


def own(source: Path) -> str:
    """Return the text of a shipped file with ids of an account, or addresses of a network."""
    return source.read_text().replace("0123456789abcdef", "00fedcba98765432").replace("192.0.2.", "10.0.0.")


def filled_in(home: Path) -> Path:
    path = home / "mine.yaml"
    path.write_text(own(AWS))
    return path


def test_the_shipped_files_have_placeholders_alone(home: Path) -> None:
    found = problems_in(AWS)
    ids = {"ImageId": "ami-{}0", "SubnetIds.0": "subnet-{}0"}
    ids |= {"SubnetIds.1": "subnet-{}1", "SecurityGroupIds.0": "sg-{}0"}
    assert found[:-1] == [  # once for all types, which share them
        f"available_node_types.head.node_config.{field}: {text.format(PLACEHOLDER_ID)} is a placeholder: give your own"
        for field, text in ids.items()
    ]
    assert found[-1].startswith("initialization_commands.3: mountpoint -q /shared ||")
    places = [text.split(":")[0] for text in problems_in(LOCAL)]
    assert places == ["provider.head_ip", "provider.worker_ips.0", "provider.worker_ips.1"]


def test_a_file_that_is_filled_in_has_no_problem(home: Path) -> None:
    for source in (AWS, LOCAL):
        path = home / "mine.yaml"
        path.write_text(own(source))
        assert problems_in(path) == []
        printed = succeeds("cluster", "check", path)
        *unchecked, last = printed.splitlines()
        assert all(line.startswith("not checked: that ") for line in unchecked)
        assert last == f"{path}: no problem in what can be checked here; `ray up {path}` shows the rest"


def test_min_workers_of_machines_of_one_s_own_are_no_problem(home: Path) -> None:
    """`ray up` moves the number to a node type before it looks at Ray's schema."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    path = home / "mine.yaml"
    path.write_text(own(LOCAL).replace("cluster_name:", "min_workers: 1\ncluster_name:"))
    validate_config(prepare_config(read_cluster(path)))
    assert problems_in(path) == []


PLANTED: dict[str, list[tuple[str, str, str]]] = {
    "aws": [
        ("\nmax_workers: 8", "\nmax_worker: 8", "the file: Additional properties are not allowed ('max_worker' was "),
        ("    min_workers: 0\n    max_workers: 8", "    min_workers: many", "gpu.min_workers: 'many' is not of type"),
        ("head_node_type: head", "head_node_type: hed", "head_node_type: got hed, want one of head, gpu, gpu-l4"),
        ("min_workers: 0\n    max_workers: 8", "min_workers: 9", "gpu: min_workers is 9, more than max_workers, 8"),
        (
            "min_workers: 0\n    max_workers: 8",
            "min_workers: 5",
            "max_workers: 8, less than the sum of min_workers, 10",
        ),
        ("\nmax_workers: 8", "\nmin_workers: 1\nmax_workers: 8", "min_workers: Ray ignores it here"),
        ("    max_workers: 8", "    max_workers: 0", "gpu: max_workers is 0: none of it would be started"),
        ("\nmax_workers: 8", "\nmax_workers: 0", "gpu: max_workers is 0: none of it would be started"),
        ("g6.xlarge", "g6.xlage", ".InstanceType: botocore knows no 'g6.xlage'; did you mean g6.xlarge?"),
        ("MarketType: spot", "MarketTyp: spot", ".MarketTyp: EC2 has no such field; did you mean MarketType?"),
        ("MarketType: spot", "MarketType: sport", "MarketType: botocore knows no 'sport'; did you mean spot?"),
        ("VolumeSize: 100", "VolumeSize: large", "0.Ebs.VolumeSize: got 'large', want type integer"),
        ("VolumeSize: 100", "VolumeSize: 8", ".BlockDeviceMappings: 8 GB, want 40 or more"),
        ("[sg-00fed", "[xg-00fed", ".SecurityGroupIds: got xg-00fedcba987654320, want an id that begins with sg-"),
        ("ImageId: ami-00fedcba987654320", "ImageId: ami-00fedcba98", ".ImageId: got ami-00fedcba98, want 8 or 17 hex"),
        ("fs-00fed", "fs-fed", "got fs-fedcba987654320, want an id of 8 or 17 hex digits"),
        ("cluster_name: lr-sweep", "cluster_name: ours", "cluster_name: got ours; the policies in docs/cluster allow "),
        ("        KeyName: lr-sweep", "        EbsOptimized: true", "head.node_config: no KeyName"),
        ("  ssh_private_key", "  #", "auth: no ssh_private_key: Ray would make a key pair"),
        ("type: aws", "type: gcp", "provider.type: got gcp; only files for aws and local can be checked"),
        ("region: us-east-1", "region: us-east-11", "provider.region: botocore knows no 'us-east-11'; did you mean "),
        ("region: us-east-1", "region: eu-west-1", "the file system is in us-east-1, provider.region is eu-west-1"),
        ("      InstanceType: m6i.xlarge\n", "", "head.node_config: no InstanceType"),
        ("      IamInstanceProfile: {Name", "      # {Name", "no IamInstanceProfile: Ray would make one with full "),
        (" SecurityGroupIds:", " # ", "no SecurityGroupIds: Ray would make a group that allows ssh from "),
        ("        SubnetIds:", "        # ", "no SubnetIds: Ray would take any subnet"),
        ("resources: {}", "resources: {CPU: 0, GPU: 1}", "gpu: without a CPU, no trial fits on it"),
        ("-00fedcba987654321]", "-00fedcba987654320]", ".SubnetIds: one is there more than once"),
        ("region: ", "availability_zone: eu-west-1a\n  region: ", "availability_zone: eu-west-1a is not in us-east-1"),
        ("cluster.idle 60", "cluster.idl 60", "there is no lr_sweep.sweep.cluster.idl"),
        ("g5.xlarge", "m6i.xlarge", "not checked: available_node_types.gpu.node_config.InstanceType: m6i.xlarge"),
        ("m6i.xlarge", "m6g.xlarge", "not checked: available_node_types.head.node_config.InstanceType: m6g.xlarge"),
        ("idle_timeout_minutes: 10", "idle_timeout_minutes: 0", "not checked: idle_timeout_minutes: 0"),
        ("ssh_user: ubuntu", "ssh_user: ec2-user", "not checked: that ec2-user may log in by ssh"),
        ("Name: lr-sweep-head", "Name: lr-swep-head", "not checked: available_node_types.head.node_config.IamInstance"),
        ("ami-00fedcba987654320", "ami-11fedcba987654320", "not checked: that ami-11fedcba987654320 is an image of "),
    ],
    "both": [
        ("  ~/.ray/auth_token: ~/", "  # ~/", "file_mounts.~/.ray/auth_token: got None, want ~/.ray/auth_token"),
        (": trainables", ": trainable", "file_mounts.~/lr-sweep/trainables: nothing is at trainable"),
        ("--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0", "listens on 0.0.0.0, want 127.0.0.1"),
        ("sweep/cluster/bin/ray start --head", "; ray start --head", "head_start_ray_commands.1: starts Ray w"),
        ("bin/ray start --addr", ".venv/bin/ray start --addr", "worker_start_ray_commands.1: starts Ray without R"),
        ("$RAY_HEAD_IP", "$RAY_HEAD", "nothing sets $RAY_HEAD; Ray sets $RAY_HEAD_IP"),
        ("until ~/lr-sweep", "until ( ~/lr-sweep", "worker_start_ray_commands.1: bash: -c: line 1: syntax error near "),
        ("mlflow_server --port=5000", "mlflow_server --port=5001", "MLflow has port 5000 and 5001: want one"),
        ("python -P -m lr_sweep.sweep.cluster.mlflow_server", "mlflow server", "starts MLflow without a token"),
        ("cluster.head start", "cluster.heads start", "there is no lr_sweep.sweep.cluster.heads"),
        ("--address=$RAY_HEAD_IP:6379", "--address=$RAY_HEAD_IP", "looks for the head at port None, the head has 6379"),
        ("make env EXTRAS=cluster", "true", "setup_commands: want `cd ~/lr-sweep && make env"),
        ("--port=6379", "--port=6380", "looks for the head at port 6379, the head has 6380"),
        (" --autoscaling-config=~/ray_bootstrap_config.yaml", "", "want --autoscaling-config="),
        ("bin/ray start --head", "bin/ray start", "head_start_ray_commands: want one with `ray start --head`"),
        ("\nworker_start_ray_commands:", "\nworker_start_command:", "Additional properties are not allowed"),
    ],
    "local": [
        ("RAY_enable_autoscaler_v2=0", "RAY_enable_autoscaler_v2=1", "only one worker would start"),
        ("[10.0.0.11, 10.0.0.12]", "[10.0.0.11, 10.0.0.10]", "provider: 10.0.0.10 is there more than once"),
        ("head_ip: 10.0.0.10", "head_ip: 10.0.0.310", "provider: 10.0.0.310 is no address"),
        ("head_ip: 10.0.0.10", "head_ip: 127.0.0.1", "127.0.0.1 is another machine to each: give the address by "),
        ("head_ip: 10.0.0.10", "head_ip: localhost", "localhost is another machine to each"),
        ("head_ip: 10.0.0.10", "head_ip: lab@10.0.0.10", "provider: lab@10.0.0.10 is no address"),
        ("  worker_ips:", "  worker_ip:", "want head_ip, and worker_ips with one machine or more"),
        ("cluster_name:", "max_workers: 1\ncluster_name:", "max_workers: 1, but there are 2 worker_ips"),
        ("cluster_name:", "min_workers: few\ncluster_name:", "min_workers: 'few' is not of type 'integer'"),
    ],
}


@pytest.mark.parametrize(
    ("source", "old", "new", "wanted"),
    [
        (source, *planted)
        for kind, source in (("aws", AWS), ("local", LOCAL), ("both", AWS), ("both", LOCAL))
        for planted in PLANTED[kind]
    ],
)
def test_each_planted_mistake_is_named(home: Path, source: Path, old: str, new: str, wanted: str) -> None:
    """As a problem or, where only the machines or the account could show it, as not checked."""
    text = own(source)
    assert old in text
    path = home / "mine.yaml"
    path.write_text(text.replace(old, new))
    code, printed = said("cluster", "check", path)
    line = next((line for line in printed.splitlines() if wanted.removeprefix("not checked: ") in line), "")
    assert line.startswith("not checked: " if code == 0 else "problem: "), printed
    assert wanted.startswith("not checked: ") <= (code == 0)


def changed(value: Any) -> Iterator[Any]:
    """Yield copies of what a file holds with one setting removed, changed, or in another place of its list."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        rest = dict(value) if isinstance(value, dict) else list(value)
        del rest[key]
        yield rest
        if isinstance(value, list):
            yield [each, *value]
        for other in changed(each):
            copy = value.copy()
            copy[key] = other
            yield copy
    if isinstance(value, str):
        yield f"{value}x"
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1


@pytest.mark.parametrize("source", [AWS, LOCAL])
def test_no_change_of_a_file_goes_unnoticed(home: Path, monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    """Each is a problem, or is named as not checked. Reading a file takes most of the time, and is left out."""
    path, cluster, read = home / "mine.yaml", yaml.safe_load(own(source)), check.read_cluster

    def printed_for(content: Any) -> str:
        is_cluster = {"provider", "auth"} <= content.keys()
        path.write_text("" if is_cluster else yaml.safe_dump(content))
        monkeypatch.setattr(check, "read_cluster", lambda file: content if is_cluster and file == path else read(file))
        _, printed = said("cluster", "check", path)
        assert "Traceback" not in printed
        return printed

    before, others = printed_for(cluster), list(changed(cluster))
    assert len(others) > 40
    unnoticed = [other for other in others if printed_for(other) == before]
    assert unnoticed == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_shipped_file_that_is_edited_itself_is_compared_with_the_commit(
    home: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    checkout = home / "checkout"
    checkout.mkdir()
    path = checkout / "cluster.yaml"
    path.write_text(AWS.read_text())
    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init"], ["add", "."], ["commit", "-m", "a"]) if committed else ():
        subprocess.run([*git, *words], check=True, capture_output=True)
    monkeypatch.setattr(check, "CHECKOUT", checkout)
    monkeypatch.setitem(check.SHIPPED, "aws", path)
    path.write_text(own(AWS).replace("HttpTokens: required", "HttpTokens: optional"))
    found = not_checked(path)
    assert any("HttpTokens: optional, which cluster.yaml lacks" in line for line in found) == committed
    assert any(line.startswith("each other setting: cluster.yaml was edited") for line in found) != committed


def test_files_of_this_machine(home: Path) -> None:
    path = filled_in(home)
    (home / ".ssh" / "lr-sweep.pem").chmod(0o644)
    (home / ".ray" / "auth_token").unlink()
    code, printed = said("cluster", "check", path)
    assert code == 1
    lines = printed.splitlines()
    assert lines[0].startswith("problem: auth.ssh_private_key: ssh refuses ")
    assert lines[1].endswith(
        "nothing is at ~/.ray/auth_token: make it with `ray get-auth-token --generate > /dev/null`"
    )
    assert lines[2] == f"{path}: 2 problems"
    (home / ".ssh" / "lr-sweep.pem").unlink()
    assert problems_in(path)[0] == f"auth.ssh_private_key: no file {home}/.ssh/lr-sweep.pem"


def test_no_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        problems_in(tmp_path / "none.yaml")
