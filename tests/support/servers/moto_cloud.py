"""A cloud on one machine: moto stands in for AWS, and each instance that it starts becomes an ssh host.

moto also enforces rights: the laptop has the actions of docs/cluster/user-policy.json, the head those of
account.yaml, and workers have none. tests/sweep/cluster/test_policies.py checks resources and conditions.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import boto3
from moto import settings
from moto.server import ThreadedMotoServer

from lr_sweep.tests.support.policies import Policy
from lr_sweep.tests.support.servers.metadata_service import ADDRESS, MetadataService
from lr_sweep.tests.support.servers.ssh_hosts import OUTSIDE, SUBNET, Hosts, call, write_changed
from lr_sweep.tests.support.tiny_study import ROOT

PORT = 5555
URL = f"http://{OUTSIDE}:{PORT}"
REGION = "us-east-1"
STRANGER = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
CREDENTIALS = {
    "aws_access_key_id": "AccessKeyId",
    "aws_secret_access_key": "SecretAccessKey",
    "aws_session_token": "SessionToken",
}
BOOT = """
umount /shared
mount --bind {programs} /usr/local/sbin
"""
"""A machine at AWS has no shared disk until `initialization_commands` have mounted it."""

PROGRAMS = {
    "sudo": 'exec "$@"',
    "apt-get": "exit 0",
    "mount": 'test "$1 $2" = "-t nfs4" && exec {mount} --bind {disk} "$6"; exec {mount} "$@"',
}
"""Programs that replace the machines' own: all users are root already, and the shared file system is a folder."""


class Cloud:
    """An account with a network, a key, a profile and a group, and hosts on the bridge for its instances.

    Args:
        folder: for the homes and logs of all hosts.
    """

    def __init__(self, folder: Path) -> None:
        self.hosts = Hosts(folder, boot=BOOT.format(programs=_write_programs(folder)))
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._server = ThreadedMotoServer(ip_address=OUTSIDE, port=PORT, verbose=False)
        self._server.start()
        call("ip", "addr", "add", f"{ADDRESS}/32", "dev", "br0")
        self._metadata = MetadataService(ADDRESS, 80)
        self._make_people()
        self._make_network()
        self._requests_without_rights = settings.INITIAL_NO_AUTH_ACTION_COUNT
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # from here on rights are enforced
        self._up: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="cloud", daemon=True)
        self._thread.start()

    def _make_people(self) -> None:
        """Create the owner, who may do anything, the user of the laptop, and the role of the head."""
        iam, sts = _client("iam", STRANGER), _client("sts", STRANGER)
        self.ec2 = _client("ec2", _user(iam, "owner", _policy("*")))
        laptop = _user(iam, "laptop", actions_alone("user"))
        self.laptop_settings = {name.upper(): value for name, value in laptop.items()}
        self.laptop_settings |= {"AWS_ENDPOINT_URL": URL, "AWS_DEFAULT_REGION": REGION}
        name = "lr-sweep-head"
        trust = _policy("sts:AssumeRole", Principal={"Service": "ec2.amazonaws.com"})
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        iam.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=actions_alone("head"))
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        self._role_s = sts.assume_role(RoleArn=role, RoleSessionName="head")["Credentials"]

    def _make_network(self) -> None:
        """Create a network with the bridge's addresses."""
        key = self.hosts.key.with_suffix(".pub").read_bytes()
        self.ec2.import_key_pair(KeyName="lr-sweep", PublicKeyMaterial=key)
        vpc = self.ec2.create_vpc(CidrBlock=f"{SUBNET}.0/24")["Vpc"]["VpcId"]
        self._subnet = self.ec2.create_subnet(VpcId=vpc, CidrBlock=f"{SUBNET}.0/24")["Subnet"]["SubnetId"]
        self.ec2.modify_subnet_attribute(SubnetId=self._subnet, MapPublicIpOnLaunch={"Value": True})
        self._group = self.ec2.create_security_group(GroupName="lr-sweep", Description="ssh", VpcId=vpc)["GroupId"]
        self._image = self.ec2.describe_images()["Images"][0]["ImageId"]

    def instances(self, kind: str = "") -> dict[str, dict[str, Any]]:
        """Return the running instances by id: of the node types whose names begin with `kind`, or all."""
        groups = self.ec2.describe_instances()["Reservations"]
        return {
            each["InstanceId"]: each
            for group in groups
            for each in group["Instances"]
            if each["State"]["Name"] == "running" and _tags(each).get("ray-user-node-type", "").startswith(kind)
        }

    def warn(self, instance: str) -> None:
        """Give the notice that a spot machine gets."""
        self._metadata.warned.add(self.instances()[instance]["PrivateIpAddress"])

    def take_away(self, instance: str) -> None:
        """End an instance as AWS does when it wants a spot machine back."""
        self.ec2.terminate_instances(InstanceIds=[instance])

    def _follow(self) -> None:
        """Switch hosts on and off as instances come and go."""
        while not self._ended.wait(1.0):
            running = self.instances()
            for ended in self._up.keys() - running.keys():
                self.hosts.remove(self._up.pop(ended))
            for name, instance in running.items():
                if name not in self._up:
                    self._up[name] = instance["PrivateIpAddress"]
                    self.hosts.add(instance["PrivateIpAddress"], instance["PublicIpAddress"])
                if "IamInstanceProfile" in instance:  # moto ties it to an instance that is there already
                    self._give_rights(self.hosts.home(instance["PrivateIpAddress"]))

    def _give_rights(self, home: Path) -> None:
        """Put the rights of the profile's role into a home; at AWS a machine asks its metadata service for them."""
        (home / ".aws").mkdir(exist_ok=True)
        (home / ".aws" / "config").write_text(f"[default]\nendpoint_url = {URL}\n")
        lines = [f"{name} = {self._role_s[key]}" for name, key in CREDENTIALS.items()]
        (home / ".aws" / "credentials").write_text("\n".join(["[default]", *lines, ""]))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._server.stop()
        self._metadata.end()
        settings.INITIAL_NO_AUTH_ACTION_COUNT = self._requests_without_rights
        self.hosts.end()

    def cluster_file(self, max_workers: int) -> Path:
        """Write cluster.yaml for this cloud: what it marks CHANGE, fewer and smaller machines that soon are idle.

        The environment is not installed on each host: it is a link to this one.
        """
        key = self.hosts.folder / "laptop" / ".ssh" / "lr-sweep.pem"
        key.parent.mkdir()
        shutil.copy(self.hosts.key, key)
        changes = {
            "ami-0123456789abcdef0": self._image,
            "subnet-0123456789abcdef0, subnet-0123456789abcdef1": self._subnet,
            "sg-0123456789abcdef0": self._group,
            "\nmax_workers: 8": f"\nmax_workers: {max_workers}",
            "    max_workers: 8": f"    max_workers: {max_workers}",
            "idle_timeout_minutes: 10": "idle_timeout_minutes: 0.5",
            "resources: {}": "resources: {CPU: 1, GPU: 0}",
            "cd ~/lr-sweep && make env EXTRAS=cluster": f"ln -sfn {sys.prefix} ~/lr-sweep/.venv",
            "ray start --head": "ray start --head --object-store-memory=100000000",
            "ray start --address": "ray start --object-store-memory=100000000 --address",
        }
        return write_changed(ROOT / "cluster.yaml", self.hosts.folder, changes)


def _write_programs(folder: Path) -> Path:
    programs = folder / "programs"
    programs.mkdir()
    for name, does in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{does.format(mount=shutil.which('mount'), disk=folder / 'shared')}\n")
        (programs / name).chmod(0o755)
    return programs


def _client(name: str, credentials: dict[str, str]) -> Any:
    return boto3.client(name, region_name=REGION, endpoint_url=URL, **credentials)


def _user(iam: Any, name: str, policy: str) -> dict[str, str]:
    """Make a user with the rights of a policy; return how it is known."""
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}


def actions_alone(who: str) -> str:
    """Return a policy's actions on every resource: moto (5) denies what has a resource or a condition."""
    return _policy(*sorted(Policy(who).actions()))


def _policy(*actions: str, **more: Any) -> str:
    statement = {"Effect": "Allow", "Action": list(actions), **(more or {"Resource": "*"})}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _tags(instance: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
