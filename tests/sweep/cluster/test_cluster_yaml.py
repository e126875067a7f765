"""Cluster files: valid by Ray's own code, and what they start is reachable by ssh alone."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = {"aws": ROOT / "cluster.yaml", "local": ROOT / "docs" / "cluster" / "local.yaml"}
PATIENCE_S = 180.0
"""How long MLflow's server may take to answer: 5 seconds on two idle cores, a minute on two busy ones."""


@pytest.fixture(params=FILES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(name: str) -> dict[str, Any]:
    return load(name)


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILES[name].read_text())
    return loaded


def starts(cluster: dict[str, Any]) -> list[str]:
    return [*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An account in memory, with a network of its own; gives its EC2 client."""
    import boto3
    from moto import mock_aws

    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    with mock_aws():
        yield boto3.client("ec2", region_name="us-east-1")


def fill_in(cluster: dict[str, Any], ec2: Any) -> dict[str, Any]:
    """Do what a user does with the marked lines: make a network, a group that lets in ssh, a key, and name them."""
    import boto3

    cluster = copy.deepcopy(cluster)
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    group = ec2.create_security_group(GroupName="lr-sweep", Description="ssh", VpcId=vpc)["GroupId"]
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
    """Do with a cluster file what `ray up` does before it starts anything."""
    from ray.autoscaler._private.commands import _bootstrap_config

    resolved: dict[str, Any] = _bootstrap_config(cluster, no_config_cache=True)
    return resolved


def open_ports(ec2: Any) -> list[tuple[str, int, int]]:
    """All that the account's groups let in from addresses: which, from port, to port."""
    return [
        (source["CidrIp"], rule["FromPort"], rule["ToPort"])
        for group in ec2.describe_security_groups()["SecurityGroups"]
        for rule in group["IpPermissions"]
        for source in rule["IpRanges"] + [{"CidrIp": each["CidrIpv6"]} for each in rule["Ipv6Ranges"]]
    ]


@pytest.mark.cluster
def test_is_valid_by_ray_s_own_schema(cluster: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(cluster))


@pytest.mark.cluster
def test_aws_opens_ssh_alone_and_makes_no_roles(aws: Any) -> None:
    import boto3

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


@pytest.mark.cluster
@pytest.mark.parametrize("spot", [True, False])
def test_aws_starts_machines_of_both_kinds(aws: Any, spot: bool) -> None:
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
    machines = [machine for group in aws.describe_instances()["Reservations"] for machine in group["Instances"]]
    lifecycles = {machine["InstanceType"]: machine.get("InstanceLifecycle") for machine in machines}
    market = "spot" if spot else None
    assert lifecycles == {"m6i.xlarge": None, "g5.xlarge": market, "g6.xlarge": market}
    assert {machine["MetadataOptions"]["HttpTokens"] for machine in machines} == {"required"}


@pytest.mark.cluster
def test_a_sweep_counts_on_gpu_machines_that_are_not_up_yet(aws: Any, tmp_path: Path) -> None:
    """Otherwise it would end at once, since no machine that is up has a GPU."""
    from lr_sweep.sweep.tune.nodes import nodes_to_come

    on_the_head = tmp_path / "ray_bootstrap_config.yaml"
    on_the_head.write_text(yaml.safe_dump(bootstrap(fill_in(load("aws"), aws))))
    head, gpu = {"CPU": 0.0}, {"CPU": 4.0, "GPU": 1.0}
    coming = nodes_to_come([head], on_the_head)
    assert [(node["CPU"], node["GPU"]) for node in coming] == [(4, 1)] * 8
    assert len(nodes_to_come([head, gpu, gpu, gpu], on_the_head)) == 5  # of both types together
    assert nodes_to_come([head], tmp_path / "none") == []
    on_the_head.write_text(yaml.safe_dump(bootstrap(load("local"))))
    assert nodes_to_come([head], on_the_head) == []


@pytest.mark.cluster
def test_local_knows_all_its_machines() -> None:
    kind = bootstrap(load("local"))["available_node_types"]["local.cluster.node"]
    assert (kind["min_workers"], kind["max_workers"]) == (2, 2)


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
    (first,), (second,) = ([line for line in starts(load(name)) if "mlflow server" in line] for name in FILES)
    assert first == second


def test_what_is_served_listens_on_the_head_alone(name: str, cluster: dict[str, Any]) -> None:
    (head,) = [line for line in cluster["head_start_ray_commands"] if "ray start" in line]
    (mlflow,) = [line for line in starts(cluster) if "mlflow server" in line]
    assert "--dashboard-host=127.0.0.1" in head
    assert "--host 127.0.0.1" in mlflow
    assert "0.0.0.0" not in FILES[name].read_text()


def test_every_ray_asks_for_the_token(cluster: dict[str, Any]) -> None:
    commands = [line for line in starts(cluster) if re.search(r"\bray (start|stop)\b", line)]
    assert len(commands) == 4
    for command in commands:
        before, _, _ = command.partition("ray st")
        assert re.search(r"export ([^;]* )?RAY_AUTH_MODE=token\b", before), command
    # Ray's default path, on this machine and on the cluster's.
    assert cluster["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "chmod 600 ~/.ray/auth_token" in cluster["setup_commands"]


def test_the_environment_is_the_project_s(cluster: dict[str, Any]) -> None:
    assert any("make env EXTRAS=cluster" in line for line in cluster["setup_commands"])
    assert cluster.get("head_setup_commands", []) == []
    for source in cluster["file_mounts"].values():
        assert source.startswith("~") or (ROOT / source).exists()


def test_few_lines_are_to_be_changed_and_each_says_so(name: str) -> None:
    marked = [line for line in FILES[name].read_text().splitlines() if "  # CHANGE" in line or "# CHANGE:" in line]
    assert len(marked) == {"aws": 8, "local": 4}[name]
    assert f"the {['four', 'eight'][name == 'aws']} lines marked CHANGE" in FILES[name].read_text()


class Head:
    """A machine's home folder in which a file's start commands run, with Ray left out of it."""

    def __init__(self, folder: Path, cluster: dict[str, Any]) -> None:
        self.home, self.shared = folder / "home", folder / "shared"
        self.shared.mkdir()
        programs = self.home / "lr-sweep" / ".venv" / "bin"
        programs.mkdir(parents=True)
        self._write(programs / "ray", f'#!/bin/sh\necho "$RAY_AUTH_MODE $*" >> {folder}/ray.log\n')  # ends no real Ray
        self._write(programs / "mlflow", f'#!/bin/sh\nexec {sys.executable} -m mlflow "$@"\n')
        self.calls = folder / "ray.log"
        self.port = free_port()
        self.commands = [
            line.replace("5000", str(self.port)).replace("/shared/", f"{self.shared}/")
            for line in cluster["head_start_ray_commands"]
        ]

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def up(self) -> None:
        """Run the start commands as `ray up` does, each in a shell of its own."""
        environment = os.environ | {"HOME": str(self.home)}
        for command in self.commands:
            subprocess.run(["bash", "-c", command], env=environment, check=True, timeout=30)

    def servers(self) -> set[int]:
        """The process ids of MLflow servers on the port, parents first."""
        needle = ["--port", str(self.port)]
        found = set()
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if any(line[i : i + 2] == needle for i in range(len(line))):
                found.add(process.pid)
        return found

    def wait_until_served(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.home / "mlflow" / "server.log").read_text()
                time.sleep(0.3)

    def end(self) -> None:
        for pid in self.servers():
            process = psutil.Process(pid)
            for each in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):  # they end with their parent, too
                    each.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def head(tmp_path: Path, cluster: dict[str, Any]) -> Iterator[Head]:
    head = Head(tmp_path, cluster)
    yield head
    head.end()


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["local", pytest.param("aws", marks=pytest.mark.slow)])
def test_a_second_ray_up_leaves_the_mlflow_server_alone(head: Head, name: str, tmp_path: Path) -> None:
    """The server's store is one setting, kept off the command line: a database's address has a password in it."""
    store = head.home / "mlflow" / "mlflow.db"
    if name == "local":  # the two files have one command
        store = tmp_path / "elsewhere.db"
        (head.shared / "mlflow-store").write_text(f"sqlite:///{store}\n")
    head.up()
    head.up()  # while the first is still on its way
    head.wait_until_served()
    before = head.servers()
    assert before
    head.up()
    time.sleep(1)
    assert head.servers() == before
    assert addresses_listened_on(head) == {"127.0.0.1"}
    assert store.exists()
    assert not any(store.name in word for pid in before for word in psutil.Process(pid).cmdline())
    assert head.calls.read_text().count("token stop\n") == head.calls.read_text().count("token start --head") == 3


def addresses_listened_on(head: Head) -> set[str]:
    found = set()
    for pid in head.servers():
        for each in psutil.Process(pid).net_connections(kind="tcp"):
            if each.status == psutil.CONN_LISTEN:
                found.add(each.laddr.ip)
    return found


def test_an_idle_head_shuts_itself_down_and_is_terminated_then() -> None:
    cluster = load("aws")
    (command,) = [line for line in cluster["head_start_ray_commands"] if "cluster.idle" in line]
    assert "-m lr_sweep.sweep.cluster.idle 60 sudo shutdown -h now" in command
    assert cluster["available_node_types"]["head"]["node_config"]["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert cluster["idle_timeout_minutes"] < 60  # workers end before the head, which ends them
    assert not any("cluster.idle" in line for line in starts(load("local")))


def test_a_spot_machine_may_be_of_another_zone_or_type(aws: Any) -> None:
    """Where EC2 has no machine in the first subnet, Ray takes the next."""
    import boto3
    from botocore.exceptions import ClientError
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    cluster = load("aws")
    assert len(cluster["available_node_types"]["gpu"]["node_config"]["SubnetIds"]) == 2
    config = fill_in(cluster, aws)["available_node_types"]["gpu"]["node_config"]
    (first,) = config["SubnetIds"]
    network = aws.describe_subnets(SubnetIds=[first])["Subnets"][0]["VpcId"]
    second = aws.create_subnet(VpcId=network, CidrBlock="10.0.2.0/24")["Subnet"]["SubnetId"]
    provider = AWSNodeProvider(cluster["provider"], "lr-sweep")

    def sold_out(params: dict[str, Any], **_: Any) -> None:
        if params["SubnetId"] == first:
            raise ClientError({"Error": {"Code": "InsufficientInstanceCapacity", "Message": ""}}, "RunInstances")

    provider.ec2_fail_fast.meta.client.meta.events.register("provide-client-params.ec2.RunInstances", sold_out)
    provider.create_node(config | {"SubnetIds": [first, second]}, {}, 1)
    (machine,) = boto3.resource("ec2", region_name="us-east-1").instances.all()
    assert machine.subnet_id == second


@pytest.mark.parametrize(("failures", "code", "calls"), [(2, 0, 3), (99, 1, 10)])
def test_a_worker_s_start_is_tried_again(name: str, tmp_path: Path, failures: int, code: int, calls: int) -> None:
    """With a `ray` that fails so often, and a `sleep` that does not wait."""
    (command,) = [line for line in load(name)["worker_start_ray_commands"] if "ray start" in line]
    programs = tmp_path / "lr-sweep" / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "ray").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ $(wc -l < {tmp_path}/calls) -gt {failures} ]\n'
    )
    (programs / "sleep").write_text("#!/bin/sh\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    env = os.environ | {"HOME": str(tmp_path), "RAY_HEAD_IP": "192.0.2.10"}
    assert subprocess.run(["bash", "-c", command], env=env).returncode == code
    assert (tmp_path / "calls").read_text().splitlines() == ["start --address=192.0.2.10:6379"] * calls
