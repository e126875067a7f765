"""`python -m lr_sweep.sweep.cluster.account create REGION PUBLIC_KEY ADDRESS`: makes what cluster.yaml needs at AWS.

`... remove REGION FILE_SYSTEM` removes it, with the results on the file system. Everything is named or tagged lr-sweep.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lr_sweep.common.errors import UserError
from lr_sweep.common.source_code import CHECKOUT

NAME = "lr-sweep"
HEAD = f"{NAME}-head"
"""The role and instance profile of docs/cluster/user-policy.json."""
IMAGE_NAME = "Deep Learning Base OSS Nvidia Driver GPU AMI*Ubuntu 24.04*"
"""Amazon's images for x86-64 with NVIDIA drivers; Ubuntu 24.04 has Python 3.12."""
PATIENCE_S = 600.0
TAGS = [{"Key": "Name", "Value": NAME}]
TAGGED = [{"Name": "tag:Name", "Values": [NAME]}]


class Account:
    """A region of an AWS account, by the credentials that boto3 finds."""

    def __init__(self, region: str) -> None:
        import boto3

        self.region = region
        self.ec2, self.efs, self.iam = (boto3.client(service, region_name=region) for service in ("ec2", "efs", "iam"))

    def create(self, public_key: Path, address: str) -> dict[str, str]:
        """Make everything, and return the values of the lines of cluster.yaml that are marked CHANGE.

        `address`: from where ssh is allowed, such as 203.0.113.5.
        """
        if self._of("vpcs"):
            raise UserError(f"{self.region} has a network tagged {NAME} already; `remove` it first.")
        image = self._image()
        vpc, subnets = self._network()
        group = self._group(vpc, address)
        self.ec2.import_key_pair(KeyName=NAME, PublicKeyMaterial=public_key.read_bytes())
        self._profile()
        return {
            "region": self.region,
            "ssh_private_key": str(public_key.with_suffix("")),
            "KeyName": NAME,
            "ImageId": image,
            "SubnetIds": f"[{', '.join(subnets)}]",
            "SecurityGroupIds": f"[{group}]",
            "IamInstanceProfile": f"{{Name: {HEAD}}}",
            "file system": f"{self._file_system(subnets, group)}.efs.{self.region}.amazonaws.com",
        }

    def _image(self) -> str:
        filters = [{"Name": "name", "Values": [IMAGE_NAME]}]
        images = self.ec2.describe_images(Owners=["amazon"], Filters=filters)["Images"]
        if not images:
            raise UserError(f"{self.region} has no image named {IMAGE_NAME!r}: choose another region.")
        return str(max(images, key=lambda image: image["CreationDate"])["ImageId"])

    def _network(self) -> tuple[str, list[str]]:
        """Make a network with a subnet in each of two zones, whose machines have public addresses."""
        vpc = self.ec2.create_vpc(CidrBlock="10.77.0.0/16", TagSpecifications=_tagged("vpc"))["Vpc"]["VpcId"]
        self.ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})  # EFS is mounted by its name
        gateway = self.ec2.create_internet_gateway(TagSpecifications=_tagged("internet-gateway"))["InternetGateway"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=vpc)
        (table,) = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        out = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": gateway["InternetGatewayId"]}
        self.ec2.create_route(RouteTableId=table["RouteTableId"], **out)
        zones = self.ec2.describe_availability_zones(Filters=[{"Name": "state", "Values": ["available"]}])
        subnets = []
        for number, zone in enumerate(zones["AvailabilityZones"][:2]):
            place = {"CidrBlock": f"10.77.{number}.0/24", "AvailabilityZone": zone["ZoneName"]}
            made = self.ec2.create_subnet(VpcId=vpc, **place, TagSpecifications=_tagged("subnet"))["Subnet"]["SubnetId"]
            self.ec2.modify_subnet_attribute(SubnetId=made, MapPublicIpOnLaunch={"Value": True})
            subnets.append(made)
        return vpc, subnets

    def _group(self, vpc: str, address: str) -> str:
        """Make a group that allows ssh from the address, and everything from itself, NFS included."""
        about = {"GroupName": NAME, "Description": "ssh from outside, all from itself"}
        group = self.ec2.create_security_group(**about, VpcId=vpc, TagSpecifications=_tagged("security-group"))
        ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": f"{address}/32"}]}
        itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}
        self.ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[ssh, itself])
        return str(group["GroupId"])

    def _profile(self) -> None:
        trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        self.iam.create_role(RoleName=HEAD, AssumeRolePolicyDocument=document)
        policy = (CHECKOUT / "docs" / "cluster" / "head-policy.json").read_text(encoding="utf-8")
        self.iam.put_role_policy(RoleName=HEAD, PolicyName=NAME, PolicyDocument=policy)
        self.iam.create_instance_profile(InstanceProfileName=HEAD)
        self.iam.add_role_to_instance_profile(InstanceProfileName=HEAD, RoleName=HEAD)

    def _file_system(self, subnets: Iterable[str], group: str) -> str:
        made = self.efs.create_file_system(CreationToken=NAME, Encrypted=True, Tags=TAGS)["FileSystemId"]
        look = lambda: self.efs.describe_file_systems(FileSystemId=made)["FileSystems"][0]["LifeCycleState"]  # noqa: E731
        _wait(lambda: look() == "available", made)
        for subnet in subnets:
            self.efs.create_mount_target(FileSystemId=made, SubnetId=subnet, SecurityGroups=[group])
        return str(made)

    def remove(self, file_system: str) -> None:
        """Remove everything that `create` made; `file_system` is named, because results are lost with it."""
        self._check(file_system)
        for target in self._targets(file_system):
            self.efs.delete_mount_target(MountTargetId=target)
        _wait(lambda: not self._targets(file_system), "the mount targets' end")
        self.efs.delete_file_system(FileSystemId=file_system)
        for group in self._of("security_groups"):
            self.ec2.delete_security_group(GroupId=group["GroupId"])
        for subnet in self._of("subnets"):
            self.ec2.delete_subnet(SubnetId=subnet["SubnetId"])
        for gateway in self._of("internet_gateways"):
            for attached in gateway["Attachments"]:
                self.ec2.detach_internet_gateway(
                    InternetGatewayId=gateway["InternetGatewayId"], VpcId=attached["VpcId"]
                )
            self.ec2.delete_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"])
        for vpc in self._of("vpcs"):
            self.ec2.delete_vpc(VpcId=vpc["VpcId"])
        self.ec2.delete_key_pair(KeyName=NAME)
        self.iam.remove_role_from_instance_profile(InstanceProfileName=HEAD, RoleName=HEAD)
        self.iam.delete_instance_profile(InstanceProfileName=HEAD)
        self.iam.delete_role_policy(RoleName=HEAD, PolicyName=NAME)
        self.iam.delete_role(RoleName=HEAD)

    def _check(self, file_system: str) -> None:
        ours = [each["FileSystemId"] for each in self.efs.describe_file_systems(CreationToken=NAME)["FileSystems"]]
        if file_system not in ours:
            raise UserError(f"got {file_system}, want the file system that `create` made: {', '.join(ours) or 'none'}.")
        tagged = [{"Name": "tag:ray-cluster-name", "Values": [NAME]}]
        running = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        if self.ec2.describe_instances(Filters=[*tagged, *running])["Reservations"]:
            raise UserError("machines of the cluster are up: `ray down cluster.yaml` first.")

    def _targets(self, file_system: str) -> list[str]:
        found = self.efs.describe_mount_targets(FileSystemId=file_system)["MountTargets"]
        return [target["MountTargetId"] for target in found]

    def _of(self, kind: str) -> list[dict[str, Any]]:
        name = "".join(word.title() for word in kind.split("_"))
        found: list[dict[str, Any]] = getattr(self.ec2, f"describe_{kind}")(Filters=TAGGED)[name]
        return found


def _tagged(kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": TAGS}]


def _wait(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise UserError(f"waited {PATIENCE_S:.0f} s for {what}: look at it in the console.")
        time.sleep(2.0)


def main(action: str, region: str, *others: str) -> int:
    """Create or remove; return the exit code."""
    account = Account(region)
    try:
        if action == "remove":
            account.remove(*others)
        else:
            key, address = others
            print("".join(f"{name}: {value}\n" for name, value in account.create(Path(key), address).items()), end="")
    except UserError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
