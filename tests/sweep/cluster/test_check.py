"""`cluster check`: placeholders and mistakes of the shipped cluster files, and what a user may leave out of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.cluster.check import PLACEHOLDER_ID, problems_in
from lr_sweep.tests.support.tiny_study import ROOT

AWS, LOCAL = ROOT / "cluster.yaml", ROOT / "docs" / "cluster" / "local.yaml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with a token and a key, and the checkout as the folder of commands."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for name in (".ray/auth_token", ".ssh/lr-sweep.pem", ".ssh/id_ed25519"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        path.chmod(0o600)
    return tmp_path


def filled_in(home: Path, **changes: Any) -> Path:
    """Write cluster.yaml with ids of an account; `changes` replace fields of the head's node_config, None removes."""
    cluster = yaml.safe_load(AWS.read_text().replace("0123456789abcdef", "00fedcba98765432"))
    config = cluster["available_node_types"]["head"]["node_config"]
    config |= changes
    for name in [name for name, value in changes.items() if value is None]:
        del config[name]
    path = home / "mine.yaml"
    path.write_text(yaml.safe_dump(cluster))
    return path


def test_the_shipped_files_have_placeholders_alone(home: Path) -> None:
    found = problems_in(AWS)
    ids = {
        "ImageId": "ami-{}0",
        "SubnetIds.0": "subnet-{}0",
        "SubnetIds.1": "subnet-{}1",
        "SecurityGroupIds.0": "sg-{}0",
    }
    assert found[:-1] == [  # once for all types, which share them
        f"available_node_types.head.node_config.{field}: {text.format(PLACEHOLDER_ID)} is a placeholder: give your own"
        for field, text in ids.items()
    ]
    assert found[-1].startswith("initialization_commands.2: mountpoint -q /shared ||")
    places = [text.split(":")[0] for text in problems_in(LOCAL)]
    assert places == ["provider.head_ip", "provider.worker_ips.0", "provider.worker_ips.1"]


def test_a_file_that_is_filled_in_has_no_problem(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = filled_in(home)
    assert problems_in(path) == []
    assert main(["cluster", "check", str(path)]) == 0
    assert capfd.readouterr().out == f"{path}: no problems; `ray up {path}` starts it\n"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("IamInstanceProfile", "no IamInstanceProfile: Ray would make one with full rights"),
        ("SecurityGroupIds", "no SecurityGroupIds: Ray would make a group that allows ssh from the whole world"),
        ("SubnetIds", "no SubnetIds"),
    ],
)
def test_what_is_left_out(home: Path, name: str, wanted: str) -> None:
    (problem,) = problems_in(filled_in(home, **{name: None}))
    assert problem.startswith(f"available_node_types.head.node_config: {wanted}")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("\nmax_workers: 8", "\nmax_worker: 8", "the file: Additional properties are not allowed ('max_worker' was "),
        ("min_workers: 0", "min_workers: many", "gpu.min_workers: 'many' is not of type 'integer'"),
        ("head_node_type: head", "head_node_type: hed", "head_node_type: got hed, want one of gpu, gpu-l4, head"),
        ("min_workers: 0", "min_workers: 9", "available_node_types.gpu: min_workers is 9, more than max_workers, 8"),
        ("g6.xlarge", "g6.xlage", ".InstanceType: botocore knows no 'g6.xlage'; did you mean g6.xlarge?"),
        ("MarketType: spot", "MarketTyp: spot", ".MarketTyp: EC2 has no such field; did you mean MarketType?"),
        ("MarketType: spot", "MarketType: sport", "MarketType: botocore knows no 'sport'; did you mean spot?"),
        ("VolumeSize: 100", "VolumeSize: large", "0.Ebs.VolumeSize: got 'large', want type integer"),
        ("sg-00fed", "xg-00fed", ".SecurityGroupIds: got xg-00fedcba987654320, want an id that begins with sg-"),
        ("cluster_name: lr-sweep", "cluster_name: ours", "cluster_name: got ours; the policies in docs/cluster allow "),
    ],
)
def test_each_mistake_is_named(home: Path, old: str, new: str, wanted: str) -> None:
    path = filled_in(home)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert any(wanted in problem for problem in problems_in(path)), problems_in(path)


def test_files_of_this_machine(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = filled_in(home)
    (home / ".ssh" / "lr-sweep.pem").chmod(0o644)
    (home / ".ray" / "auth_token").unlink()
    assert main(["cluster", "check", str(path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("problem: auth.ssh_private_key: ssh refuses ")
    assert lines[1].endswith(
        "nothing is at ~/.ray/auth_token: make it with `ray get-auth-token --generate > /dev/null`"
    )
    assert lines[2] == f"{path}: 2 problems"
    (home / ".ssh" / "lr-sweep.pem").unlink()
    assert problems_in(path)[0] == f"auth.ssh_private_key: no file {home}/.ssh/lr-sweep.pem"


def test_a_file_system_of_another_region(home: Path) -> None:
    path = filled_in(home)
    path.write_text(path.read_text().replace("region: us-east-1", "region: eu-west-1"))
    assert problems_in(path) == [
        "initialization_commands: the file system is in us-east-1, provider.region is eu-west-1"
    ]


def test_no_cluster_file(home: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        problems_in(home / "none.yaml")
