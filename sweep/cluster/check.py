"""`cluster check`: what is wrong in a cluster file, before `ray up` fails late, without a reason, or not at all."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from lr_sweep.common.source_code import CHECKOUT
from lr_sweep.common.yaml_text import load_yaml
from lr_sweep.sweep.cluster.commands import LISTS, command_problems
from lr_sweep.sweep.cluster.tunnels import read_cluster

SHIPPED = {"aws": CHECKOUT / "cluster.yaml", "local": CHECKOUT / "docs" / "cluster" / "local.yaml"}
PLACEHOLDER_ID = "0123456789abcdef"
"""In the ids of AWS that `cluster.yaml` has as it comes, before one more digit."""
PLACEHOLDER_ADDRESSES = ip_network("192.0.2.0/24")
"""Those of documents (RFC 5737), as `docs/cluster/local.yaml` has them."""
POLICY_CLUSTER = "lr-sweep"
"""The `cluster_name` whose machines docs/cluster/account.yaml and user-policy.json are limited to."""
FILE_SYSTEM = re.compile(r"(fs-\w+)\.efs\.([a-z0-9-]+)\.amazonaws\.com")
PREFIXES = {"ImageId": "ami-", "SubnetIds": "subnet-", "SecurityGroupIds": "sg-"}
EC2_TYPES: dict[str, Any] = {"structure": dict, "list": list, "string": str, "integer": int, "boolean": bool}
LEAST_DISK_GB = 40
"""An image with NVIDIA drivers has some 30 GB, the environment 7."""
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
OWN = re.compile(r"(auth|provider\.(region|head_ip|worker_ips))\b|\.(KeyName|ImageId|SubnetIds|SecurityGroupIds)$")
"""Settings that every user has others of."""


def problems_in(cluster_file: Path) -> list[str]:
    """Return what to put right in a cluster file, a line each; raises UserError for a file that describes no cluster.

    Files on this machine that it names are looked at; no machine, and no account, is asked for anything.
    """
    cluster = read_cluster(cluster_file)
    if outside := list(outside_the_schema(cluster)):
        return outside  # other checks rely on it
    if (kind := cluster["provider"]["type"]) not in SHIPPED:
        return [f"provider.type: got {kind}; only files for {' and '.join(SHIPPED)} can be checked"]
    found = [*_node_types(cluster), *_placeholders(cluster), *_key(cluster), *_mounted_files(cluster)]
    found += [*command_problems(cluster), *(_aws(cluster) if kind == "aws" else _local(cluster))]
    once: dict[str, str] = {}
    for problem in found:  # node types share settings
        once.setdefault(problem.partition(".node_config")[2] or problem, problem)
    return list(once.values())


def not_checked(cluster_file: Path) -> list[str]:
    """Return what only the machines or the account can show, and each setting that differs from the shipped file's."""
    cluster = read_cluster(cluster_file)
    auth, kind = cluster["auth"], cluster["provider"]["type"]
    there = [f"that {auth['ssh_user']} may log in by ssh with {auth.get('ssh_private_key', 'the default key')}"]
    if kind == "aws":
        there += [f"that {text}" for text in _account(cluster)]
    else:
        machines = ", ".join([cluster["provider"]["head_ip"], *cluster["provider"]["worker_ips"]])
        there += [f"that {machines} have Python 3.11 or newer with venv, make, and the same disk at /shared"]
    name = str(SHIPPED[kind].relative_to(CHECKOUT))
    if (shipped := _shipped(cluster_file, kind)) is None:
        return [*there, f"each other setting: {name} was edited itself, and no git knows how it was: check a copy"]
    return there + list(_differences(list(_settings(cluster)), list(_settings(shipped)), name))


def _shipped(cluster_file: Path, kind: str) -> dict[str, Any] | None:
    """Return the content of the shipped file; that of the last commit, if it is the one that was edited."""
    if not SHIPPED[kind].samefile(cluster_file):
        return read_cluster(SHIPPED[kind])
    show = ["git", "show", f"HEAD:{SHIPPED[kind].relative_to(CHECKOUT)}"]
    with suppress(OSError, subprocess.CalledProcessError):
        text = subprocess.run(show, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
        committed: dict[str, Any] = load_yaml(text)
        return committed
    return None


def _differences(mine: Sequence[str], shipped: Sequence[str], name: str) -> Iterator[str]:
    """Yield each setting that the shipped file has otherwise, and each list of commands with another order."""
    yield from (f"{text}, which {name} lacks" for text in sorted(Counter(mine) - Counter(shipped)))
    yield from (f"without {text}, which {name} has" for text in sorted(Counter(shipped) - Counter(mine)))
    for commands in LISTS:
        ours, theirs = ([text for text in texts if text.startswith(f"{commands}:")] for texts in (mine, shipped))
        if [text for text in ours if text in theirs] != [text for text in theirs if text in ours]:
            yield f"the order of {commands}, which is another in {name}"


def _account(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield what must be so in the account."""
    region, configs = cluster["provider"]["region"], [config for _, config in _configs(cluster)]
    named = {
        field: ", ".join(sorted({str(config.get(field)) for config in configs})) for field in ("KeyName", *PREFIXES)
    }
    yield f"{named['ImageId']} is an image of {region} with NVIDIA drivers, Python 3.11 or newer, venv and make"
    yield f"{cluster['auth'].get('ssh_private_key')} is the private half of {named['KeyName']}"
    yield f"{named['SubnetIds']} have public addresses and reach the file system"
    yield f"{named['SecurityGroupIds']} allow ssh from here, and everything from themselves"
    yield "the instance profiles exist and have the rights of docs/cluster/account.yaml, and the quota is enough"


def _configs(cluster: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, node_type.get("node_config") or {})
        for name, node_type in (cluster.get("available_node_types") or {}).items()
    ]


def _settings(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield each setting but the user's own, without the number of list items: `setup_commands: make env`."""
    for place, value in _scalars(cluster):
        if not OWN.search(name := re.sub(r"\.\d+(?=\.|$)", "", place)):
            yield f"{name}: {FILE_SYSTEM.sub('EFS', str(value))}"


def outside_the_schema(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield what Ray's own schema refuses; `ray up` stops at the first, and prints the whole schema.

    `ray up` first moves `min_workers` to a node type in local files, and drops it in others.
    """
    import ray.autoscaler
    from jsonschema import Draft7Validator

    schema = json.loads(Path(ray.autoscaler.__file__).with_name("ray-schema.json").read_text(encoding="utf-8"))
    schema["properties"]["min_workers"] = schema["properties"]["max_workers"]
    for error in Draft7Validator(schema).iter_errors(cluster):
        yield f"{'.'.join(map(str, error.absolute_path)) or 'the file'}: {error.message}"


def _node_types(cluster: Mapping[str, Any]) -> Iterator[str]:
    types, head = cluster.get("available_node_types") or {}, cluster.get("head_node_type")
    if types and head not in types:
        yield f"head_node_type: got {head}, want one of {', '.join(types)}"
    most_of_all = cluster.get("max_workers", 2)
    for name, node_type in types.items():
        least, most = node_type.get("min_workers", 0), node_type.get("max_workers", most_of_all)
        if least > most:
            yield f"available_node_types.{name}: min_workers is {least}, more than max_workers, {most}"
        if name != head and (node_type.get("resources") or {}).get("CPU", 1) < 1:
            yield f"available_node_types.{name}: without a CPU, no trial fits on it"
        if name != head and min(most, most_of_all) < 1:
            yield f"available_node_types.{name}: max_workers is {min(most, most_of_all)}: none of it would be started"
    if (least_of_all := sum(node_type.get("min_workers", 0) for node_type in types.values())) > most_of_all:
        yield f"max_workers: {most_of_all}, less than the sum of min_workers, {least_of_all}"
    if types and set(types) == {head}:
        yield "available_node_types: only the head's type: no worker would be started"


def _placeholders(cluster: Mapping[str, Any]) -> Iterator[str]:
    for place, text in _texts(cluster):
        with suppress(ValueError):  # no address
            if PLACEHOLDER_ID in text or ip_address(text) in PLACEHOLDER_ADDRESSES:
                yield f"{place}: {text} is a placeholder: give your own"


def _scalars(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of the file that holds no others, with its place: `provider.worker_ips.0`."""
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str) and value:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in items:
            yield from _scalars(each, f"{place}.{key}" if place else str(key))
    else:
        yield place, value


def _texts(cluster: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((place, value) for place, value in _scalars(cluster) if isinstance(value, str))


def _key(cluster: Mapping[str, Any]) -> Iterator[str]:
    if "ssh_user" not in cluster["auth"]:
        yield "auth: no ssh_user, as whom the machines are reached"
    named = cluster["auth"].get("ssh_private_key")
    keys = {name: config.get("KeyName") for name, config in _configs(cluster)}
    for name, key in keys.items():
        if key is None:
            yield f"available_node_types.{name}.node_config: no KeyName, whose private half auth.ssh_private_key is"
    if len(set(keys.values())) > 1:
        yield f"available_node_types: KeyName differs ({keys}), and there is one auth.ssh_private_key"
    if named is None:
        if keys:
            yield "auth: no ssh_private_key: Ray would make a key pair, which the policies in docs/cluster do not allow"
        return
    path = Path(named).expanduser()
    if not path.is_file():
        yield f"auth.ssh_private_key: no file {path}"
    elif path.stat().st_mode & 0o077:
        yield f"auth.ssh_private_key: ssh refuses {path}, which other users may read: chmod 600 {path}"
    elif "PRIVATE KEY" not in path.read_text(errors="replace"):
        yield f"auth.ssh_private_key: {path} holds no private key"


def _mounted_files(cluster: Mapping[str, Any]) -> Iterator[str]:
    mounts = cluster.get("file_mounts") or {}
    for there, here in mounts.items():
        if not Path(here).expanduser().exists():
            is_token = here.endswith("auth_token")
            mend = "make it with `ray get-auth-token --generate > /dev/null`" if is_token else "run in the checkout"
            yield f"file_mounts.{there}: nothing is at {here}: {mend}"
    for there, here in read_cluster(SHIPPED["local"])["file_mounts"].items():
        if Path(str(mounts.get(there))).expanduser().resolve() != Path(here).expanduser().resolve():
            yield f"file_mounts.{there}: got {mounts.get(there)}, want {here}, which the machines need"


def _local(cluster: Mapping[str, Any]) -> Iterator[str]:
    provider = cluster["provider"]
    addresses = [provider.get("head_ip"), *(provider.get("worker_ips") or [])]
    if None in addresses or len(addresses) < 2:
        yield "provider: want head_ip, and worker_ips with one machine or more"
    for address in sorted({str(each) for each in addresses if addresses.count(each) > 1}):
        yield f"provider: {address} is there more than once"
    if (most := cluster.get("max_workers", len(addresses) - 1)) < len(addresses) - 1:
        yield f"max_workers: {most}, but there are {len(addresses) - 1} worker_ips: the others would do nothing"
    for address in map(str, addresses):
        try:
            local = address == "localhost" or ip_address(address).is_loopback
        except ValueError:
            local = False
            if re.fullmatch(r"[\d.]+", address) or not HOST.fullmatch(address):
                yield f"provider: {address} is no address"
        if local:
            yield f"provider: {address} is another machine to each: give the address by which all reach it"


def _aws(cluster: Mapping[str, Any]) -> Iterator[str]:
    if cluster["cluster_name"] != POLICY_CLUSTER:
        yield (
            f"cluster_name: got {cluster['cluster_name']}; the policies in docs/cluster allow machines of "
            f"{POLICY_CLUSTER} alone: keep that name"
        )
    region, head = cluster["provider"].get("region"), cluster.get("head_node_type")
    if "min_workers" in cluster:
        yield "min_workers: Ray ignores it here: give it to each of the available_node_types"
    regions = _botocore().get_available_regions("ec2")
    if region not in regions:
        yield f"provider.region: botocore knows no {region!r}{_meant(region, regions)}"
    for zone in str(cluster["provider"].get("availability_zone") or "").split(","):
        if zone and not zone.strip().startswith(str(region)):
            yield f"provider.availability_zone: {zone.strip()} is not in {region}"
    for name, config in _configs(cluster):
        place = f"available_node_types.{name}.node_config"
        if not config.get("SecurityGroupIds"):
            yield f"{place}: no SecurityGroupIds: Ray would make a group that allows ssh from the whole world"
        if not config.get("SubnetIds"):
            yield f"{place}: no SubnetIds: Ray would take any subnet, which the file system may not be reached from"
        if name == head and not config.get("IamInstanceProfile"):
            yield f"{place}: no IamInstanceProfile: Ray would make one with full rights to EC2 and S3"
        yield from (f"{place}{problem}" for problem in _machine(config))
    found = {match for _, text in _texts(cluster) for match in FILE_SYSTEM.findall(text)}
    for file_system, other in sorted(found):
        if other != region:
            yield f"initialization_commands: the file system is in {other}, provider.region is {region}"
        if not re.fullmatch(r"fs-([0-9a-f]{8}|[0-9a-f]{17})", file_system):
            yield f"initialization_commands: got {file_system}, want an id of 8 or 17 hex digits after fs-"


def _machine(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what EC2 would refuse in a `node_config`, by botocore's description of its calls: `.FIELD: reason`."""
    for field, prefix in PREFIXES.items():
        values = config.get(field) or []
        if isinstance(values, list) and len({*map(str, values)}) < len(values):
            yield f".{field}: one is there more than once"
        for value in [values] if isinstance(values, str) else values:
            if not str(value).startswith(prefix):
                yield f".{field}: got {value}, want an id that begins with {prefix}"
            elif not re.fullmatch(r"([0-9a-f]{8}|[0-9a-f]{17})", str(value).removeprefix(prefix)):
                yield f".{field}: got {value}, want 8 or 17 hex digits after {prefix}"
    if "InstanceType" not in config:
        yield ": no InstanceType"
    for disk in config.get("BlockDeviceMappings") or []:
        size = (disk.get("Ebs") or {}).get("VolumeSize") if isinstance(disk, dict) else None
        if isinstance(size, int) and size < LEAST_DISK_GB:
            yield f".BlockDeviceMappings: {size} GB, want {LEAST_DISK_GB} or more for image and environment"
    sent = {key: value for key, value in config.items() if key != "SubnetIds"}  # Ray gives EC2 one of them
    yield from _refused(sent, _ec2().operation_model("RunInstances").input_shape, "")


@cache
def _botocore() -> Any:
    import botocore.session

    return botocore.session.get_session()


@cache
def _ec2() -> Any:
    return _botocore().get_service_model("ec2")


def _refused(value: Any, shape: Any, place: str) -> Iterator[str]:
    """Yield unknown fields, values of another type, and values that are none of those that a field may have."""
    if not isinstance(value, EC2_TYPES.get(shape.type_name, object)):
        yield f"{place}: got {value!r}, want type {shape.type_name}"
    elif shape.type_name == "structure":
        for name, each in value.items():
            if name in shape.members:
                yield from _refused(each, shape.members[name], f"{place}.{name}")
            else:
                yield f"{place}.{name}: EC2 has no such field{_meant(name, shape.members)}"
    elif shape.type_name == "list":
        for index, each in enumerate(value):
            yield from _refused(each, shape.member, f"{place}.{index}")
    elif (allowed := getattr(shape, "enum", None)) and value not in allowed:
        yield f"{place}: botocore knows no {value!r}{_meant(value, allowed)}"


def _meant(name: Any, known: Iterable[str]) -> str:
    close = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
