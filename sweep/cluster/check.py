"""`cluster check`: mistakes in a cluster file that cost money or an hour, and that `ray up` does not report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.sweep.cluster.tunnels import read_cluster
from lr_sweep.trainables.worker.ray_internals import refused_by_ray_up

PLACEHOLDER = re.compile(r"0123456789abcdef|\b192\.0\.2\.\d")
"""In the ids of `cluster.yaml`, and the addresses of `docs/cluster/local.yaml` (RFC 5737), as they are shipped."""


class Mistake(NamedTuple):
    """What `ray up` accepts and this program must not have: `wanted` is found in the text of each setting at `path`.

    In `path`, `*` matches any key and HEAD the head's node type; the text of a missing setting is empty.
    """

    path: str
    wanted: str
    reason: str


COMMON = (
    Mistake(
        "*_commands.*",
        r"\A(?!.*\bray start\b)|RAY_AUTH_MODE=token\b|sweep/cluster/bin(/ray start\b|:\$PATH)",
        "want ~/lr-sweep/sweep/cluster/bin/ray: this Ray has no token, and is open to all who reach its ports",
    ),
    Mistake("*_commands.*", r"\A(?!.*-host[= ](?!127\.0\.0\.1|localhost))", "want 127.0.0.1, which tunnels reach"),
    Mistake(
        "head_start_ray_commands",
        r"\bray start --head\b.*--autoscaling-config=~/ray_bootstrap_config\.yaml",
        "want `ray start --head` with --autoscaling-config=~/ray_bootstrap_config.yaml: else no worker starts",
    ),
    Mistake(
        "",
        r"\bray start --head[^\n]* --port=(\d+).*\bray start [^\n]*--address=\$RAY_HEAD_IP:\1\b",
        "want one port in `ray start --head --port=6379` and `ray start --address=$RAY_HEAD_IP:6379`",
    ),
    Mistake("initialization_commands", "/shared", "want a command that mounts, or looks for, the disk at /shared"),
)
NODE = "available_node_types.*.node_config"
HEAD = "available_node_types.HEAD.node_config"
AWS = (
    Mistake("min_workers", r"\A\Z", "want it in each of the available_node_types: Ray ignores it here"),
    Mistake(f"{HEAD}.IamInstanceProfile", ".", "want lr-sweep-head: Ray's own has full rights to EC2 and S3"),
    Mistake(f"{NODE}.SecurityGroupIds", "sg-", "want ids, sg-...: Ray's own group allows ssh from everywhere"),
    Mistake(f"{NODE}.SubnetIds", "subnet-", "want ids, subnet-...: Ray would take one without the file system"),
    Mistake(f"{NODE}.BlockDeviceMappings.*.Ebs.VolumeSize", r"\A([4-9]\d|\d{3,})\Z", "want 40 GB for the environment"),
)
ONE_WORKER = "want RAY_enable_autoscaler_v2=0 for `ray start`: else only one worker starts (Ray 2.60)"
LOCAL = (Mistake("head_start_ray_commands", r"\bRAY_enable_autoscaler_v2=0\b.*\bray start\b", ONE_WORKER),)


def problems_in(cluster_file: Path) -> list[str]:
    """Return what to correct in a cluster file, a line each; raises UserError for one that describes no cluster."""
    cluster = read_cluster(cluster_file)
    if refused := refused_by_ray_up(cluster):
        return [refused]  # the other checks rely on its types
    mistakes = (*COMMON, *{"aws": AWS, "local": LOCAL}.get(cluster["provider"]["type"], ()))
    unfilled = {str(value): place for place, value in _scalars(cluster) if PLACEHOLDER.search(str(value))}
    found = [f"{place}: {value} is a placeholder: give your own" for value, place in unfilled.items()]
    return found + [problem for mistake in mistakes for problem in _made(mistake, cluster)]


def _made(mistake: Mistake, cluster: Mapping[str, Any]) -> Iterator[str]:
    path = mistake.path.replace("HEAD", str(cluster.get("head_node_type")))
    for place, value in _settings(cluster, path.split(".") if path else []):
        text = "\n".join(f"{each}: {item}" for each, item in _scalars(value)) or str("" if value is None else value)
        if not re.search(mistake.wanted, text, re.DOTALL | re.MULTILINE):
            yield f"{place or 'the file'}: {mistake.reason}"


def _settings(value: Any, path: Sequence[str], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that a path names, with their places; one that is missing has the value None."""
    if not path:
        yield place, value
        return
    items = dict(enumerate(value)) if isinstance(value, list) else value if isinstance(value, Mapping) else {}
    named = {str(key): item for key, item in items.items() if fnmatchcase(str(key), path[0])}
    for name, item in (named if "*" in path[0] else {path[0]: named.get(path[0])}).items():
        yield from _settings(item, path[1:], f"{place}.{name}".removeprefix("."))


def _scalars(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that holds no others, with its place: `provider.worker_ips.0`."""
    for name, item in _settings(value, ["*"], place):
        yield from _scalars(item, name) if isinstance(item, Mapping | list) else [(name, item)]
