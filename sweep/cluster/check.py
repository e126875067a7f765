"""`cluster check`: what is wrong in a cluster file, before `ray up` fails late, without a reason, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from lr_sweep.sweep.cluster.tunnels import read_cluster

PLACEHOLDER_ID = "0123456789abcdef"
"""In the ids of AWS that `cluster.yaml` has as it comes, before one more digit."""
PLACEHOLDER_ADDRESSES = ip_network("192.0.2.0/24")
"""Those of documents (RFC 5737), as `docs/cluster/local.yaml` has them."""
POLICY_CLUSTER = "lr-sweep"
"""The `cluster_name` whose machines docs/cluster/head-policy.json and user-policy.json are limited to."""
FILE_SYSTEM = re.compile(r"\.efs\.([a-z0-9-]+)\.amazonaws\.com")
PREFIXES = {"ImageId": "ami-", "SubnetIds": "subnet-", "SecurityGroupIds": "sg-"}
EC2_TYPES: dict[str, Any] = {"structure": dict, "list": list, "string": str, "integer": int, "boolean": bool}


def problems_in(cluster_file: Path) -> list[str]:
    """Return what to put right in a cluster file, a line each; raises UserError for a file that describes no cluster.

    Files on this machine that it names are looked at; no machine, and no account, is asked for anything.
    """
    cluster = read_cluster(cluster_file)
    if outside := list(_outside_the_schema(cluster)):
        return outside  # other checks rely on it
    found = [*_node_types(cluster), *_placeholders(cluster), *_key(cluster), *_mounted_files(cluster)]
    found += _aws(cluster) if cluster["provider"]["type"] == "aws" else ()
    once: dict[str, str] = {}
    for problem in found:  # node types share settings
        once.setdefault(problem.partition(".node_config")[2] or problem, problem)
    return list(once.values())


def _outside_the_schema(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield what Ray's own schema refuses; `ray up` stops at the first, and prints the whole schema."""
    import ray.autoscaler
    from jsonschema import Draft7Validator

    schema = json.loads(Path(ray.autoscaler.__file__).with_name("ray-schema.json").read_text(encoding="utf-8"))
    for error in Draft7Validator(schema).iter_errors(cluster):
        yield f"{'.'.join(map(str, error.absolute_path)) or 'the file'}: {error.message}"


def _node_types(cluster: Mapping[str, Any]) -> Iterator[str]:
    types = cluster.get("available_node_types") or {}
    if types and cluster.get("head_node_type") not in types:
        yield f"head_node_type: got {cluster.get('head_node_type')}, want one of {', '.join(types)}"
    for name, node_type in types.items():
        least, most = node_type.get("min_workers", 0), node_type.get("max_workers", cluster.get("max_workers", 2))
        if least > most:
            yield f"available_node_types.{name}: min_workers is {least}, more than max_workers, {most}"


def _placeholders(cluster: Mapping[str, Any]) -> Iterator[str]:
    for place, text in _texts(cluster):
        with suppress(ValueError):  # no address
            if PLACEHOLDER_ID in text or ip_address(text) in PLACEHOLDER_ADDRESSES:
                yield f"{place}: {text} is a placeholder: give your own"


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text of the file with its place: `provider.worker_ips.0`."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping | Sequence):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in items:
            yield from _texts(each, f"{place}.{key}" if place else str(key))


def _key(cluster: Mapping[str, Any]) -> Iterator[str]:
    named = cluster["auth"].get("ssh_private_key")
    if named is None:
        return
    path = Path(named).expanduser()
    if not path.is_file():
        yield f"auth.ssh_private_key: no file {path}"
    elif path.stat().st_mode & 0o077:
        yield f"auth.ssh_private_key: ssh refuses {path}, which other users may read: chmod 600 {path}"


def _mounted_files(cluster: Mapping[str, Any]) -> Iterator[str]:
    for there, here in (cluster.get("file_mounts") or {}).items():
        if not Path(here).expanduser().exists():
            is_token = here.endswith("auth_token")
            mend = "make it with `ray get-auth-token --generate > /dev/null`" if is_token else "run in the checkout"
            yield f"file_mounts.{there}: nothing is at {here}: {mend}"


def _aws(cluster: Mapping[str, Any]) -> Iterator[str]:
    if cluster["cluster_name"] != POLICY_CLUSTER:
        yield (
            f"cluster_name: got {cluster['cluster_name']}; the policies in docs/cluster allow machines of "
            f"{POLICY_CLUSTER} alone: keep that name"
        )
    region, head = cluster["provider"].get("region"), cluster.get("head_node_type")
    for name, node_type in (cluster.get("available_node_types") or {}).items():
        config = node_type.get("node_config") or {}
        place = f"available_node_types.{name}.node_config"
        if not config.get("SecurityGroupIds"):
            yield f"{place}: no SecurityGroupIds: Ray would make a group that allows ssh from the whole world"
        if not config.get("SubnetIds"):
            yield f"{place}: no SubnetIds: Ray would take any subnet, which the file system may not be reached from"
        if name == head and not config.get("IamInstanceProfile"):
            yield f"{place}: no IamInstanceProfile: Ray would make one with full rights to EC2 and S3"
        yield from (f"{place}{problem}" for problem in _machine(config))
    elsewhere = {other for _, text in _texts(cluster) for other in FILE_SYSTEM.findall(text) if other != region}
    for other in sorted(elsewhere):
        yield f"initialization_commands: the file system is in {other}, provider.region is {region}"


def _machine(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what EC2 would refuse in a `node_config`, by botocore's description of its calls: `.FIELD: reason`."""
    import botocore.session

    for field, prefix in PREFIXES.items():
        values = config.get(field) or []
        for value in [values] if isinstance(values, str) else values:
            if not str(value).startswith(prefix):
                yield f".{field}: got {value}, want an id that begins with {prefix}"
    call = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances")
    sent = {key: value for key, value in config.items() if key != "SubnetIds"}  # Ray gives EC2 one of them
    yield from _refused(sent, call.input_shape, "")


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


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
