"""account.yaml: AWS's linter accepts it, moto makes and removes it, and its outputs are what cluster.yaml asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from lr_sweep.sweep.cluster.check import problems_in
from lr_sweep.tests.support.cluster_files import account, template
from lr_sweep.tests.support.tiny_study import ROOT

TEMPLATE = ROOT / "docs" / "cluster" / "account.yaml"
PARAMETERS = {"PublicKey": "ssh-ed25519 AAAA", "SshFrom": "203.0.113.5/32", "Image": "ami-00fedcba987654321"}
MADE = {
    ("ec2", "vpcs"): 1,
    ("ec2", "internet_gateways"): 1,
    ("ec2", "route_tables"): 2,  # a network has one from the start, and a group
    ("ec2", "subnets"): 2,
    ("ec2", "security_groups"): 2,
    ("ec2", "network_interfaces"): 2,  # of the file system
    ("efs", "file_systems"): 1,
    ("iam", "roles"): 1,
    ("iam", "instance_profiles"): 1,
}
"""How many of each kind the stack makes, the key pair aside."""
PLACES = {
    "Region": "us-east-1  # CHANGE",
    "SshPrivateKey": "~/.ssh/lr-sweep.pem",
    "KeyName": "lr-sweep  # CHANGE",
    "ImageId": "ami-0123456789abcdef0",
    "SubnetIds": "[subnet-0123456789abcdef0, subnet-0123456789abcdef1]",
    "SecurityGroupIds": "[sg-0123456789abcdef0]",
    "IamInstanceProfile": "{Name: lr-sweep-head}",
    "FileSystem": "fs-0123456789abcdef0.efs.us-east-1.amazonaws.com",
}
"""Where each output belongs in cluster.yaml."""


def test_aws_s_linter_accepts_it() -> None:
    api = pytest.importorskip("cfnlint.api")
    assert [str(match) for match in api.lint_file(TEMPLATE)] == []


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CloudFormation of moto, which makes no key pair, knows no image by name, and removes no routes and gateways."""
    pytest.importorskip("moto.cloudformation")
    from moto.ec2.models import ec2_backends
    from moto.ec2.models.internet_gateways import InternetGateway
    from moto.ec2.models.route_tables import RouteTable
    from moto.ec2.models.vpn_gateway import VPCGatewayAttachment

    removals: dict[type, Callable[[Any, Any], None]] = {
        RouteTable: lambda ec2, table: ec2.delete_route_table(table.id),
        VPCGatewayAttachment: lambda ec2, attached: ec2.detach_internet_gateway(attached.gateway_id, attached.vpc_id),
        InternetGateway: lambda ec2, gateway: ec2.delete_internet_gateway(gateway.id),
    }
    for kind, remove in removals.items():
        monkeypatch.setattr(
            kind,
            "delete",
            lambda made, account, region, remove=remove: remove(ec2_backends[account][region], made),
            raising=False,
        )
    with account():
        yield boto3.client("cloudformation", "us-east-1")


def make_stack(stacks: Any) -> None:
    text = TEMPLATE.read_text().replace("AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "String")
    given = [{"ParameterKey": key, "ParameterValue": value} for key, value in PARAMETERS.items()]
    stacks.create_stack(
        StackName="lr-sweep", TemplateBody=text, Parameters=given, Capabilities=["CAPABILITY_NAMED_IAM"]
    )


def holdings() -> dict[tuple[str, str], list[Any]]:
    """Return all that the account has of the kinds that the stack makes."""
    found = {}
    for service, kind in MADE:
        call = getattr(boto3.client(service, "us-east-1"), f"{'list' if service == 'iam' else 'describe'}_{kind}")
        found[service, kind] = call()[kind.title().replace("_", "")]
    return found


def test_a_stack_makes_what_the_cluster_needs_and_leaves_nothing_when_it_is_removed(stacks: Any) -> None:
    before = holdings()
    make_stack(stacks)
    made = {kind: len(there) - len(before[kind]) for kind, there in holdings().items()}
    assert made == MADE
    stacks.delete_stack(StackName="lr-sweep")
    assert holdings() == before


def test_its_outputs_fill_in_the_cluster_file(stacks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for name in (".ray/auth_token", ".ssh/lr-sweep.pem"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
        (tmp_path / name).chmod(0o600)
    make_stack(stacks)
    (stack,) = stacks.describe_stacks()["Stacks"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
    outputs["KeyName"] = template()["Resources"]["Key"]["Properties"]["KeyName"]
    text = (ROOT / "cluster.yaml").read_text()
    assert text.count("# CHANGE") == len(outputs) == 8
    assert list(template()["Outputs"]) == list(PLACES)
    for name, value in outputs.items():
        assert text.count(PLACES[name]) == 1, name
        text = text.replace(PLACES[name], value)
    (tmp_path / "mine.yaml").write_text(text)
    assert problems_in(tmp_path / "mine.yaml") == []


def test_no_resource_outlives_the_stack() -> None:
    """Neither is the key pair kept, which moto does not make."""
    kept = [name for name, each in template()["Resources"].items() if each.get("DeletionPolicy", "Delete") != "Delete"]
    assert kept == []
