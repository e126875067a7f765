"""The policies in docs/cluster: the calls that Ray makes are allowed on the cluster's machines, and on no others."""

from __future__ import annotations

from typing import Any

import pytest

from lr_sweep.tests.support.cluster_files import account, load
from lr_sweep.tests.support.policies import Policy
from lr_sweep.tests.support.tiny_study import ROOT

HEAD, USER, S3 = map(Policy, ("head", "user", "s3"))
MACHINE = "arn:aws:ec2:us-east-1:123456789012:instance/i-1"
ROLE = "arn:aws:iam::123456789012:role/"
BESIDE = ("image/ami-1", "key-pair/k", "network-interface/e", "security-group/s", "subnet/s", "volume/v")

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def calls() -> list[tuple[str, dict[str, Any]]]:
    """Names and parameters of the calls that Ray's autoscaler makes to start and end a machine."""
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    with account() as aws:
        cluster = load("aws")
        provider = AWSNodeProvider(cluster["provider"], cluster["cluster_name"])
        made: list[tuple[str, dict[str, Any]]] = []
        for client in (provider.ec2.meta.client, provider.ec2_fail_fast.meta.client):
            client.meta.events.register(
                "provide-client-params.ec2", lambda params, model, **_: made.append((f"ec2:{model.name}", params))
            )
        image = aws.describe_images()["Images"][0]["ImageId"]
        subnet = aws.describe_subnets()["Subnets"][0]["SubnetId"]
        provider.create_node({"ImageId": image, "InstanceType": "g5.xlarge", "SubnetIds": [subnet]}, {}, 1)
        (machine,) = provider.non_terminated_nodes({})
        provider.set_node_tags(machine, {"ray-node-status": "up-to-date"})
        provider.internal_ip(machine)
        provider.terminate_nodes([machine])
        assert provider.non_terminated_nodes({}) == []
    return made


def test_the_head_may_make_the_calls_that_it_makes_and_no_others(calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert HEAD.actions("ec2:") == {name for name, _ in calls}
    assert HEAD.actions() - HEAD.actions("ec2:") == {"iam:PassRole", "iam:CreateServiceLinkedRole"}


def test_machines_have_the_tag_of_the_policies_from_the_start(calls: list[tuple[str, dict[str, Any]]]) -> None:
    (start,) = [params for name, params in calls if name == "ec2:RunInstances"]
    (of_machines,) = start["TagSpecifications"]
    assert of_machines["ResourceType"] == "instance"
    tags = {f"aws:RequestTag/{tag['Key']}": tag["Value"] for tag in of_machines["Tags"]}
    for policy in (HEAD, USER):
        assert policy.allows("ec2:RunInstances", MACHINE, tags)
        assert policy.allows("ec2:CreateTags", MACHINE, tags | {"ec2:CreateAction": "RunInstances"})
        for beside in BESIDE:
            owner = "" if beside.startswith("image") else "123456789012"
            assert policy.allows("ec2:RunInstances", f"arn:aws:ec2:us-east-1:{owner}:{beside}", {})


@pytest.mark.parametrize("policy", [HEAD, USER])
@pytest.mark.parametrize(("tag", "allowed"), [("lr-sweep", True), ("another", False), (None, False)])
def test_only_the_cluster_s_own_machines_are_tagged_and_ended(policy: Policy, tag: str | None, allowed: bool) -> None:
    context = {"aws:ResourceTag/ray-cluster-name": tag} if tag else {}
    for action in ("ec2:CreateTags", "ec2:TerminateInstances"):
        assert policy.allows(action, MACHINE, context) == allowed
    request = {"aws:RequestTag/ray-cluster-name": tag} if tag else {}
    assert policy.allows("ec2:RunInstances", MACHINE, request) == allowed


@pytest.mark.parametrize(("policy", "own", "other"), [(HEAD, "worker", "head"), (USER, "head", "worker")])
def test_each_may_pass_one_role_to_machines_alone(policy: Policy, own: str, other: str) -> None:
    to_machines = {"iam:PassedToService": "ec2.amazonaws.com"}
    assert policy.allows("iam:PassRole", f"{ROLE}lr-sweep-{own}", to_machines)
    assert not policy.allows("iam:PassRole", f"{ROLE}lr-sweep-{own}", {"iam:PassedToService": "lambda.amazonaws.com"})
    assert not policy.allows("iam:PassRole", f"{ROLE}lr-sweep-{other}", to_machines)
    assert not policy.allows("iam:PassRole", f"{ROLE}admin", to_machines)


def test_the_worker_profile_in_the_cluster_file_is_that_of_the_head_s_policy() -> None:
    assert "# IamInstanceProfile: {Name: lr-sweep-worker}\n" in (ROOT / "cluster.yaml").read_text()
    assert load("aws")["cluster_name"] == "lr-sweep"


def test_results_in_s3_are_read_and_written_below_the_prefix_alone() -> None:
    below = "arn:aws:s3:::BUCKET/PREFIX/runs/1.parquet"
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert S3.allows(action, below, {})
        assert not S3.allows(action, "arn:aws:s3:::BUCKET/other", {})
    assert S3.allows("s3:ListBucket", "arn:aws:s3:::BUCKET", {})
