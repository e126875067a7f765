"""What `cluster.account` makes is all that cluster.yaml needs, and it removes all of it; moto stands for AWS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.ec2.models import ec2_backends

from lr_sweep.sweep.cluster.account import main
from lr_sweep.sweep.cluster.check import problems_in
from lr_sweep.tests.support.cluster_files import account
from lr_sweep.tests.support.tiny_study import ROOT

pytestmark = pytest.mark.cluster
REGION, ADDRESS = "us-east-1", "203.0.113.5"


@pytest.fixture
def ec2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An account that has the image, and a user with a key and a token."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for name, text in ((".ray/auth_token", "x"), ("key", "-----BEGIN OPENSSH PRIVATE KEY-----"), ("key.pub", PUBLIC)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    with account() as client:
        name = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20260101"
        image = client.register_image(Name=name, Architecture="x86_64", RootDeviceName="/dev/sda1")["ImageId"]
        ec2_backends["123456789012"][REGION].amis[image].owner_alias = "amazon"
        yield client


PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL0vyYCg0yZb8jOgdZ3lJqkNkmLxwGyYe6dSzGk1Rj5v lab"


def inventory(ec2: Any) -> dict[str, int]:
    """Count what an account has, by kind."""
    iam, efs = (boto3.client(name, region_name=REGION) for name in ("iam", "efs"))
    return {
        "networks": len(ec2.describe_vpcs()["Vpcs"]),
        "subnets": len(ec2.describe_subnets()["Subnets"]),
        "gateways": len(ec2.describe_internet_gateways()["InternetGateways"]),
        "groups": len(ec2.describe_security_groups()["SecurityGroups"]),
        "keys": len(ec2.describe_key_pairs()["KeyPairs"]),
        "roles": len(iam.list_roles()["Roles"]),
        "profiles": len(iam.list_instance_profiles()["InstanceProfiles"]),
        "file systems": len(efs.describe_file_systems()["FileSystems"]),
    }


def test_it_creates_what_the_cluster_file_needs_and_removes_it(ec2: Any, tmp_path: Path, capfd: Any) -> None:
    before = inventory(ec2)
    assert main("create", REGION, str(tmp_path / "key.pub"), ADDRESS) == 0, capfd.readouterr()
    values = dict(line.split(": ", 1) for line in capfd.readouterr().out.splitlines())
    assert len(values) == 8
    cluster = filled_in((ROOT / "cluster.yaml").read_text(), values)
    (tmp_path / "mine.yaml").write_text(cluster)
    assert problems_in(tmp_path / "mine.yaml") == []
    after = inventory(ec2)
    assert {kind: after[kind] - before[kind] for kind in after} == {
        **dict.fromkeys(("networks", "gateways", "keys", "roles", "profiles", "file systems"), 1),
        **dict.fromkeys(("subnets", "groups"), 2),  # a network comes with a group
    }
    assert main("create", REGION, str(tmp_path / "key.pub"), ADDRESS) == 2
    assert main("remove", REGION, "fs-0123") == 2
    assert "want the file system that `create` made" in capfd.readouterr().err
    assert main("remove", REGION, values["file system"].partition(".")[0]) == 0
    assert inventory(ec2) == before


def filled_in(text: str, values: dict[str, str]) -> str:
    """Return cluster.yaml with the values in the places of what is marked CHANGE."""
    changes = {
        "region: us-east-1  #": f"region: {values['region']}  #",
        "~/.ssh/lr-sweep.pem": values["ssh_private_key"],
        "KeyName: lr-sweep ": f"KeyName: {values['KeyName']} ",
        "ami-0123456789abcdef0": values["ImageId"],
        "[subnet-0123456789abcdef0, subnet-0123456789abcdef1]": values["SubnetIds"],
        "[sg-0123456789abcdef0]": values["SecurityGroupIds"],
        "IamInstanceProfile: {Name: lr-sweep-head}": f"IamInstanceProfile: {values['IamInstanceProfile']}",
        "fs-0123456789abcdef0.efs.us-east-1.amazonaws.com": values["file system"],
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text
