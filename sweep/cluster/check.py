"""`cluster check`: mistakes in a cluster file that Ray accepts, and that `ray up` reports late or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from lr_sweep.common.source_code import CHECKOUT
from lr_sweep.sweep.cluster.tunnels import read_cluster
from lr_sweep.trainables.worker.ray_internals import refused_by_ray_up

PLACEHOLDER_ID = "0123456789abcdef"
"""The digits of each AWS id in `cluster.yaml` as it is shipped, before one more digit."""
PLACEHOLDER_ADDRESSES = ip_network("192.0.2.0/24")
"""The range for examples (RFC 5737), from which `docs/cluster/local.yaml` takes its addresses."""
SHIPPED = CHECKOUT / "docs" / "cluster" / "local.yaml"
"""The file whose `file_mounts` all cluster files share."""


class Mistake(NamedTuple):
    """A setting that `ray up` accepts and that a cluster of this program must not have."""

    path: str
    """Keys, joined by dots; `*` matches any, HEAD is the name of the head's node type. Empty: the whole file."""
    wanted: str
    """A pattern that is found in the setting's text; that of a missing one is empty. `^` and `$` match at lines."""
    reason: str
    """What is wanted instead, and why."""


COMMON = (
    Mistake("auth.ssh_user", ".", "want the user that ssh logs in as"),
    Mistake(
        "*_commands.*",
        r"\A(?!.*\bray start\b)|RAY_AUTH_MODE=token\b|sweep/cluster/bin(/ray start\b|:\$PATH)",
        "want ~/lr-sweep/sweep/cluster/bin/ray: this Ray has no token, and is open to all who reach its ports",
    ),
    Mistake(
        "*_commands.*",
        r"\A(?!.*\bmlflow (server|ui)\b)",
        "want -m lr_sweep.sweep.cluster.mlflow_server: `mlflow server` has no token, and is open to the head's users",
    ),
    Mistake(
        "*_commands.*",
        r"\A(?!.*--(dashboard-)?host[= ](?!127\.0\.0\.1|localhost))",
        "want 127.0.0.1 as the host: tunnels reach it there, and others should not",
    ),
    Mistake("*_commands.*", r"\A(?!.*\$\{?RAY_HEAD\b)", "want $RAY_HEAD_IP: nothing sets $RAY_HEAD"),
    Mistake("*_commands.*", r"\A(?!.*cluster\.idle\b)", "want cluster.head idle, as it is called now"),
    Mistake(
        "head_start_ray_commands",
        r"\bray start --head\b.*--autoscaling-config=~/ray_bootstrap_config\.yaml",
        "want `ray start --head` with --autoscaling-config=~/ray_bootstrap_config.yaml: else no worker starts",
    ),
    Mistake(
        "head_start_ray_commands",
        r"http://127\.0\.0\.1:5000/mlflow.*mlflow_server --port=5000",
        "want MLflow at port 5000 of the head, for sweeps and for the tunnels of `ui --cluster`",
    ),
    Mistake(
        "head_start_ray_commands",
        r"-m lr_sweep\.sweep\.cluster\.head start\b",
        "want -m lr_sweep.sweep.cluster.head start: it resumes sweeps when the head comes back",
    ),
    Mistake(
        "",
        r"\bray start --head[^\n]* --port=(\d+).*\bray start [^\n]*--address=\$RAY_HEAD_IP:\1\b",
        "want one port in `ray start --head --port=6379` and `ray start --address=$RAY_HEAD_IP:6379`",
    ),
    Mistake(
        "setup_commands",
        r"make env|\.venv\b",
        "want `cd ~/lr-sweep && make env EXTRAS=cluster`, which makes the environment",
    ),
    Mistake("initialization_commands", "/shared", "want a command that mounts, or looks for, the disk at /shared"),
)
AWS = (
    Mistake("cluster_name", r"\Alr-sweep\Z", "want lr-sweep: the policies in docs/cluster allow its machines alone"),
    Mistake("min_workers", r"\A\Z", "want it in each of the available_node_types: Ray ignores it here"),
    Mistake(
        "available_node_types.HEAD.node_config.IamInstanceProfile",
        ".",
        "want the profile lr-sweep-head: Ray would make one with full rights to EC2 and S3",
    ),
    Mistake("available_node_types.*.node_config.InstanceType", ".", "want a type: EC2 would take a small old one"),
    Mistake("available_node_types.*.node_config.ImageId", r"\Aami-\w+\Z", "want the id of an image, ami-..."),
    Mistake(
        "available_node_types.*.node_config.SecurityGroupIds",
        r"\A(\d+: sg-\w+\n?)+\Z",
        "want a list of ids, sg-...: Ray would make a group that allows ssh from the whole world",
    ),
    Mistake(
        "available_node_types.*.node_config.SubnetIds",
        r"\A(\d+: subnet-\w+\n?)+\Z",
        "want a list of ids, subnet-...: Ray would take one that may not reach the file system",
    ),
    Mistake(
        "available_node_types.*.node_config.KeyName",
        ".",
        "want the name of the key pair: Ray would make one, which the policies in docs/cluster do not allow",
    ),
    Mistake("auth.ssh_private_key", ".", "want the file with the private half of KeyName"),
    Mistake(
        "available_node_types.*.node_config.BlockDeviceMappings.*.Ebs.VolumeSize",
        r"\A([4-9]\d|\d{3,})\Z",
        "want 40 GB or more: an image with NVIDIA drivers has some 30, the environment 7",
    ),
)
LOCAL = (
    Mistake(
        "head_start_ray_commands",
        r"\bRAY_enable_autoscaler_v2=0\b.*\bray start\b",
        "want RAY_enable_autoscaler_v2=0 for `ray start`: else only one worker starts (Ray 2.60)",
    ),
    Mistake(
        "provider",
        r"\A(?!.*^(?:head_ip|worker_ips\.\d+): (\S+)$.*^worker_ips\.\d+: \1$)",
        "want each machine once: a worker's start ends the Ray that is there",
    ),
    Mistake(
        "provider",
        r"\A(?!.*_ips?(\.\d+)?: (localhost|127\.))",
        "want addresses by which all machines reach each other: localhost is another machine on each",
    ),
)


def problems_in(cluster_file: Path) -> list[str]:
    """Return what to correct in a cluster file, a line each; raises UserError for a file that describes no cluster.

    No machine and no account is asked for anything; of this machine's files those are looked for that the file names.
    """
    cluster = read_cluster(cluster_file)
    if refused := refused_by_ray_up(cluster):
        return [refused]  # the other checks rely on its types
    mistakes = (*COMMON, *{"aws": AWS, "local": LOCAL}.get(cluster["provider"]["type"], ()))
    found = [problem for mistake in mistakes for problem in _made(mistake, cluster)]
    once: dict[str, str] = {}
    for problem in [*_placeholders(cluster), *_files(cluster), *found]:  # node types share settings
        once.setdefault(problem.partition(".node_config")[2] or problem, problem)
    return list(once.values())


def _made(mistake: Mistake, cluster: Mapping[str, Any]) -> Iterator[str]:
    path = mistake.path.replace("HEAD", str(cluster.get("head_node_type")))
    for place, value in _settings(cluster, path.split(".") if path else []):
        text = "\n".join(f"{each}: {item}" for each, item in sorted(_scalars(value))) if _holds(value) else str(value)
        if not re.search(mistake.wanted, "" if value is None else text, re.DOTALL | re.MULTILINE):
            got = "nothing" if value is None else "..." if _holds(value) else shorten(text, 60, placeholder=" ...")
            yield f"{place or 'the file'}: got {got}, {mistake.reason}"


def _settings(value: Any, path: Sequence[str], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that a path names, with their places; one that is missing has the value None."""
    if not path:
        yield place, value
        return
    items: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    if isinstance(value, list):
        items = {str(index): item for index, item in enumerate(value)}
    names = [name for name in items if fnmatchcase(name, path[0])] if "*" in path[0] else [path[0]]
    for name in names:
        yield from _settings(items.get(name), path[1:], f"{place}.{name}".removeprefix("."))


def _holds(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def _scalars(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that holds no others, with its place: `provider.worker_ips.0`."""
    for name, item in _settings(value, ["*"], place):
        yield from _scalars(item, name) if _holds(item) else [(name, item)]


def _placeholders(cluster: Mapping[str, Any]) -> Iterator[str]:
    for place, value in _scalars(cluster):
        with suppress(ValueError):  # no address
            if PLACEHOLDER_ID in str(value) or ip_address(str(value)) in PLACEHOLDER_ADDRESSES:
                yield f"{place}: {value} is a placeholder: give your own"


def _files(cluster: Mapping[str, Any]) -> Iterator[str]:
    mounts = cluster.get("file_mounts") or {}
    named = {f"file_mounts.{there}": str(here) for there, here in mounts.items()}
    if key := cluster["auth"].get("ssh_private_key"):
        named["auth.ssh_private_key"] = key
    for place, here in named.items():
        if not Path(here).expanduser().exists():
            make = "; make it with `ray get-auth-token --generate > /dev/null`" if here.endswith("auth_token") else ""
            yield f"{place}: {Path(here).expanduser().absolute()} does not exist{make}"
    for there, here in read_cluster(SHIPPED)["file_mounts"].items():
        if there not in mounts:
            yield f"file_mounts.{there}: got nothing, want {here}, which the machines need"
