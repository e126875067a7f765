"""`cluster check`: mistakes in a cluster file that cost money or an hour, and that `ray up` does not report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lr_sweep.common.files import Fields
from lr_sweep.sweep.cluster.ssh import read_cluster
from lr_sweep.trainables.worker.ray_internals import RefusedError

ASKS_FOR_TOKEN = r"""RAY_AUTH_MODE=["']?token|sweep/cluster/bin"""
MISTAKES = {
    r"0123456789abcdef|\b192\.0\.2\.\d": "a placeholder: give your own",  # in the files as they are shipped
    r"""--dashboard-host[=\s]++["']?+(?!127\.|localhost|::1|\$)""": "want --dashboard-host=127.0.0.1, for tunnels",
    rf"(?s)\A(?!.*({ASKS_FOR_TOKEN})).*\bray\s+start\b": "want ~/lr-sweep/sweep/cluster/bin/ray, with a token",
    r"BlockDeviceMappings\.0\.Ebs\.VolumeSize: [123]?\d\Z": "want 40 GB for the environment",
}
"""Patterns of `PLACE: VALUE`, a setting that is wrong, and what is wanted."""


def problems_in(cluster_file: Path) -> list[str]:
    """Return what to correct in a cluster file, a line each; raises UserError for one that describes no cluster."""
    try:
        cluster = read_cluster(cluster_file)
    except RefusedError as refusal:
        return [str(refusal)]  # the other checks rely on its types
    wrong = {
        (str(value), wanted): f"{place}: {wanted}"  # once, where several kinds of machines share it
        for place, value in _scalars(cluster)
        for pattern, wanted in MISTAKES.items()
        if re.search(pattern, f"{place}: {value}")
    }
    return [*wrong.values(), *_lacking(cluster)]


def _lacking(cluster: Fields) -> Iterator[str]:
    kinds = cluster["available_node_types"]
    workers = [kinds[name]["max_workers"] for name in kinds if name != cluster["head_node_type"]]
    if workers and not (cluster["max_workers"] and any(workers)):
        yield "max_workers: 0 lets no machine start that trains"
    for name in kinds if cluster["provider"]["type"] == "aws" else ():
        if "'sg-" not in str(kinds[name]["node_config"]):
            yield f"available_node_types.{name}: want SecurityGroupIds: Ray's own group lets all addresses use ssh"


def _scalars(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that holds no others, with its place: `provider.worker_ips.0`."""
    for name, item in enumerate(value) if isinstance(value, list) else value.items():
        path = f"{place}.{name}".removeprefix(".")
        yield from _scalars(item, path) if isinstance(item, dict | list) else [(path, item)]
