"""What Ray starts in an AWS account with cluster.yaml: which machines, with which rights, open to whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from lr_sweep.sweep.tune.nodes import nodes_to_come
from lr_sweep.tests.support.cluster_files import account, bootstrap, fill_in, load, machines, network_of

pytestmark = pytest.mark.cluster


@pytest.fixture
def aws() -> Iterator[Any]:
    with account() as ec2:
        yield ec2


def open_ports(ec2: Any) -> list[tuple[str, int, int]]:
    """All that the account's groups let in from addresses: which, from port, to port."""
    return [
        (source["CidrIp"], rule["FromPort"], rule["ToPort"])
        for group in ec2.describe_security_groups()["SecurityGroups"]
        for rule in group["IpPermissions"]
        for source in rule["IpRanges"] + [{"CidrIp": each["CidrIpv6"]} for each in rule["Ipv6Ranges"]]
    ]


def test_it_opens_ssh_alone_and_makes_no_roles(aws: Any) -> None:
    cluster = fill_in(load("aws"), aws)
    resolved = bootstrap(cluster)
    kinds = resolved["available_node_types"]
    assert open_ports(aws) == [("203.0.113.5/32", 22, 22)]
    assert kinds["head"]["node_config"]["IamInstanceProfile"] == {"Name": "lr-sweep-head"}
    for name in ("gpu", "gpu-l4"):
        assert "IamInstanceProfile" not in kinds[name]["node_config"]
        assert kinds[name]["resources"]["GPU"] == 1
    assert resolved["head_node"] == {}  # where Ray puts a role of its own
    assert resolved["head_setup_commands"] == resolved["worker_setup_commands"] == cluster["setup_commands"]
    assert boto3.client("iam", region_name="us-east-1").list_roles()["Roles"] == []
    assert kinds["head"]["resources"] | {"GPU": 0, "CPU": 0} == kinds["head"]["resources"]


@pytest.mark.parametrize("spot", [True, False])
def test_it_starts_machines_of_both_kinds(aws: Any, spot: bool) -> None:
    """Every setting is one that EC2 knows; without one line the GPU machines are on demand."""
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    cluster = fill_in(load("aws"), aws)
    if not spot:
        for kind in ("gpu", "gpu-l4"):
            cluster["available_node_types"][kind]["node_config"].pop("InstanceMarketOptions")
    resolved = bootstrap(cluster)
    provider = AWSNodeProvider(resolved["provider"], "lr-sweep")
    for kind in resolved["available_node_types"].values():
        provider.create_node(kind["node_config"], {}, 1)
    lifecycles = {machine["InstanceType"]: machine.get("InstanceLifecycle") for machine in machines(aws)}
    market = "spot" if spot else None
    assert lifecycles == {"m6i.xlarge": None, "g5.xlarge": market, "g6.xlarge": market}
    assert {machine["MetadataOptions"]["HttpTokens"] for machine in machines(aws)} == {"required"}


def test_a_sweep_counts_on_gpu_machines_that_are_not_up_yet(aws: Any, tmp_path: Path) -> None:
    """Otherwise it would end at once, since no machine that is up has a GPU."""
    on_the_head = tmp_path / "ray_bootstrap_config.yaml"
    on_the_head.write_text(yaml.safe_dump(bootstrap(fill_in(load("aws"), aws))))
    head, gpu = {"CPU": 0.0}, {"CPU": 4.0, "GPU": 1.0}
    coming = nodes_to_come([head], on_the_head)
    assert [(node["CPU"], node["GPU"]) for node in coming] == [(4, 1)] * 8
    assert len(nodes_to_come([head, gpu, gpu, gpu], on_the_head)) == 5  # of both types together
    assert nodes_to_come([head], tmp_path / "none") == []
    local = bootstrap(load("local"))
    on_the_head.write_text(yaml.safe_dump(local))
    assert nodes_to_come([head], on_the_head) == []
    kind = local["available_node_types"]["local.cluster.node"]
    assert (kind["min_workers"], kind["max_workers"]) == (2, 2)


def test_a_spot_machine_may_be_of_another_zone_or_type(aws: Any) -> None:
    """Where EC2 has no machine in the first subnet, Ray takes the next."""
    from botocore.exceptions import ClientError
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    cluster = load("aws")
    assert len(cluster["available_node_types"]["gpu"]["node_config"]["SubnetIds"]) == 2
    config = fill_in(cluster, aws)["available_node_types"]["gpu"]["node_config"]
    (first,) = config["SubnetIds"]
    second = aws.create_subnet(VpcId=network_of(aws, first), CidrBlock="10.0.2.0/24")["Subnet"]["SubnetId"]
    provider = AWSNodeProvider(cluster["provider"], "lr-sweep")

    def sold_out(params: dict[str, Any], **_: Any) -> None:
        if params["SubnetId"] == first:
            raise ClientError({"Error": {"Code": "InsufficientInstanceCapacity", "Message": ""}}, "RunInstances")

    provider.ec2_fail_fast.meta.client.meta.events.register("provide-client-params.ec2.RunInstances", sold_out)
    provider.create_node(config | {"SubnetIds": [first, second]}, {}, 1)
    (machine,) = machines(aws)
    assert machine["SubnetId"] == second
