"""What Ray starts in an AWS account with cluster.yaml: which machines, with which rights, open to whom."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import yaml

from lr_sweep.sweep.tune.nodes import nodes_to_come
from lr_sweep.tests.support.cluster_files import account, bootstrap, fill_in, load, machines, network_of
from lr_sweep.tests.support.policies import Policy

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def aws() -> Iterator[SimpleNamespace]:
    """An account, a cluster file filled in for it, and what `ray up` makes of that: it takes ten seconds."""
    from ray.autoscaler._private.aws.utils import client_cache, resource_cache

    with account() as ec2, pytest.MonkeyPatch.context() as patch:
        filled, calls = fill_in(load("aws"), ec2), set[str]()
        for cache in (client_cache, resource_cache):  # a cached client would not count its calls
            cache.cache_clear()
        patch.setattr(boto3, "DEFAULT_SESSION", boto3.Session())
        boto3.DEFAULT_SESSION.events.register("before-call.*", lambda model, **_: calls.add(f"ec2:{model.name}"))
        resolved = bootstrap(filled)
        yield SimpleNamespace(ec2=ec2, filled=filled, resolved=resolved, calls=frozenset(calls))
        for cache in (client_cache, resource_cache):
            cache.cache_clear()


def started(aws: SimpleNamespace, *configs: dict[str, Any]) -> list[dict[str, Any]]:
    """Start a machine of each `node_config`."""
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    provider, before = AWSNodeProvider(aws.resolved["provider"], "lr-sweep"), machines(aws.ec2)
    for config in configs:
        provider.create_node(config, {}, 1)
    known = {machine["InstanceId"] for machine in before}
    return [machine for machine in machines(aws.ec2) if machine["InstanceId"] not in known]


def open_ports(ec2: Any) -> list[tuple[str, int, int]]:
    """All that the account's groups let in from addresses: which, from port, to port."""
    return [
        (source["CidrIp"], rule["FromPort"], rule["ToPort"])
        for group in ec2.describe_security_groups()["SecurityGroups"]
        for rule in group["IpPermissions"]
        for source in rule["IpRanges"] + [{"CidrIp": each["CidrIpv6"]} for each in rule["Ipv6Ranges"]]
    ]


def test_it_opens_ssh_alone_and_makes_no_roles(aws: SimpleNamespace) -> None:
    resolved, kinds = aws.resolved, aws.resolved["available_node_types"]
    assert open_ports(aws.ec2) == [("203.0.113.5/32", 22, 22)]
    assert kinds["head"]["node_config"]["IamInstanceProfile"] == {"Name": "lr-sweep-head"}
    for name in ("gpu", "gpu-l4"):
        assert "IamInstanceProfile" not in kinds[name]["node_config"]
        assert kinds[name]["resources"]["GPU"] == 1
    assert resolved["head_node"] == {}  # where Ray puts a role of its own
    assert resolved["head_setup_commands"] == resolved["worker_setup_commands"] == aws.filled["setup_commands"]
    assert boto3.client("iam", region_name="us-east-1").list_roles()["Roles"] == []
    assert kinds["head"]["resources"] | {"GPU": 0, "CPU": 0} == kinds["head"]["resources"]


def test_the_user_of_ray_up_may_make_the_calls_that_come_first(aws: SimpleNamespace) -> None:
    """The user may also do what the head may; `make cluster-test` runs `ray up` and `ray down` with these rights."""
    head, user = Policy("head"), Policy("user")
    assert user.actions("ec2:") == aws.calls | head.actions("ec2:")


@pytest.mark.parametrize("market", ["spot", None])
def test_it_starts_machines_of_both_kinds(aws: SimpleNamespace, market: str | None) -> None:
    """Every setting is one that EC2 knows; without one line the GPU machines are on demand."""
    kinds = copy.deepcopy(aws.resolved["available_node_types"])
    if market is None:
        for name in ("gpu", "gpu-l4"):
            kinds[name]["node_config"].pop("InstanceMarketOptions")
    there = started(aws, *(kind["node_config"] for kind in kinds.values()))
    lifecycles = {machine["InstanceType"]: machine.get("InstanceLifecycle") for machine in there}
    assert lifecycles == {"m6i.xlarge": None, "g5.xlarge": market, "g6.xlarge": market}
    assert {machine["MetadataOptions"]["HttpTokens"] for machine in there} == {"required"}


def test_a_sweep_counts_on_gpu_machines_that_are_not_up_yet(aws: SimpleNamespace, tmp_path: Path) -> None:
    """Otherwise it would end at once, since no machine that is up has a GPU."""
    on_the_head = tmp_path / "ray_bootstrap_config.yaml"
    on_the_head.write_text(yaml.safe_dump(aws.resolved))
    head, gpu = {"CPU": 0.0}, {"CPU": 4.0, "GPU": 1.0}
    coming = nodes_to_come([head], on_the_head)
    assert [(node["CPU"], node["GPU"]) for node in coming] == [(4, 1)] * 8
    assert len(nodes_to_come([head, gpu, gpu, gpu], on_the_head)) == 5  # of both types together
    on_the_head.write_text(yaml.safe_dump(aws.resolved | {"max_workers": 16}))
    assert len(nodes_to_come([head, *[gpu] * 10], on_the_head)) == 6  # each of the ten counts in one of the types
    assert nodes_to_come([head], tmp_path / "none") == []
    local = bootstrap(load("local"))
    on_the_head.write_text(yaml.safe_dump(local))
    assert nodes_to_come([head], on_the_head) == []
    kind = local["available_node_types"]["local.cluster.node"]
    assert (kind["min_workers"], kind["max_workers"]) == (2, 2)


def test_a_spot_machine_may_be_of_another_zone_or_type(aws: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where EC2 has no machine in the first subnet, Ray takes the next."""
    from botocore.exceptions import ClientError
    from ray.autoscaler._private.aws import node_provider

    assert len(load("aws")["available_node_types"]["gpu"]["node_config"]["SubnetIds"]) == 2
    config = aws.filled["available_node_types"]["gpu"]["node_config"]
    (first,) = config["SubnetIds"]
    second = aws.ec2.create_subnet(VpcId=network_of(aws.ec2, first), CidrBlock="10.0.2.0/24")["Subnet"]["SubnetId"]

    def sold_out(params: dict[str, Any], **_: Any) -> None:
        if params["SubnetId"] == first:
            raise ClientError({"Error": {"Code": "InsufficientInstanceCapacity", "Message": ""}}, "RunInstances")

    class SoldOut(node_provider.AWSNodeProvider):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.ec2_fail_fast.meta.client.meta.events.register("provide-client-params.ec2.RunInstances", sold_out)

    monkeypatch.setattr(node_provider, "AWSNodeProvider", SoldOut)
    (machine,) = started(aws, config | {"SubnetIds": [first, second]})
    assert machine["SubnetId"] == second
