"""The shipped cluster files, an AWS account in memory, and what `ray up` makes of a file there."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from lr_sweep.tests.support.tiny_study import ROOT

FIRST_SWEEP = re.compile(r"^## Try it without a cloud\n(.*?)^## ", re.DOTALL | re.MULTILINE)
"""A section of docs/cluster.md."""
FILES = {"aws": ROOT / "cluster.yaml", "local": ROOT / "docs" / "cluster" / "local.yaml"}


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILES[name].read_text())
    return loaded


def template() -> dict[str, Any]:
    """Return account.yaml with `["Ref", NAME]`, `["Sub", TEXT]` and such in the places of CloudFormation's tags."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, tag, node: [tag, node.value])
    loaded: dict[str, Any] = yaml.load((ROOT / "docs" / "cluster" / "account.yaml").read_text(), Loader)
    return loaded


@contextmanager
def account() -> Iterator[Any]:
    """An account in memory; gives its EC2 client."""
    import boto3
    from moto import mock_aws

    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(variable, "testing")
        yield boto3.client("ec2", region_name="us-east-1")


def make_subnet(ec2: Any) -> str:
    """Make a network whose machines have public addresses; return the id of its subnet."""
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    return str(subnet)


def network_of(ec2: Any, subnet: str) -> str:
    return str(ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"])


def machines(ec2: Any) -> list[dict[str, Any]]:
    return [machine for group in ec2.describe_instances()["Reservations"] for machine in group["Instances"]]


def fill_in(cluster: dict[str, Any], ec2: Any) -> dict[str, Any]:
    """Do what a user does with the marked lines: make a network, a group that lets in ssh, a key, and name them."""
    import boto3

    cluster, subnet = copy.deepcopy(cluster), make_subnet(ec2)
    group = ec2.create_security_group(GroupName="lr-sweep", Description="ssh", VpcId=network_of(ec2, subnet))["GroupId"]
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "203.0.113.5/32"}]}
    itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[ssh, itself])
    ec2.create_key_pair(KeyName="lr-sweep")
    boto3.client("iam", region_name="us-east-1").create_instance_profile(InstanceProfileName="lr-sweep-head")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    for kind in cluster["available_node_types"].values():
        kind["node_config"] |= {"SubnetIds": [subnet], "SecurityGroupIds": [group], "ImageId": image}
    return cluster


def bootstrap(cluster: dict[str, Any]) -> dict[str, Any]:
    """Do with a cluster file what `ray up` does before it starts anything: check it, and fill in what it leaves out."""
    from ray.autoscaler._private.commands import _bootstrap_config

    resolved: dict[str, Any] = _bootstrap_config(cluster, no_config_cache=True)
    return resolved
