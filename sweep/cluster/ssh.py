"""Reaches the machines of a cluster file by ssh, the only port that they open, from any machine that has the key."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from ruamel.yaml.error import YAMLError

from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, load_yaml, make_folder
from lr_sweep.sweep.results.directory import Results
from lr_sweep.trainables.worker.ray_internals import prepared

OPTIONS = ("ServerAliveInterval=10", "StrictHostKeyChecking=accept-new", "LogLevel=ERROR")
"""Options of ssh; it would print a line for each request to a port where nothing listens yet."""
OF_FILE = {"User": "ssh_user", "ProxyCommand": "ssh_proxy_command"}
"""Options of ssh, and what the `auth` of a cluster file calls them."""
PARTS = (
    ("--include=/runs/***", "--exclude=*"),
    ("--exclude=/runs/", "--exclude=/checkpoints/", "--exclude=/tune/"),
)
"""Rules of rsync, in turn: rows are copied first, so that each has its curve while a sweep writes more."""


def read_cluster(cluster_file: Path) -> Fields:
    """Return a cluster file with Ray's defaults; raises UserError for another or no file, or one that Ray refuses."""
    try:
        cluster = load_yaml(cluster_file)
    except (OSError, YAMLError) as error:
        raise UserError(f"cannot read {cluster_file}: {error}") from error
    if not isinstance(cluster, dict) or not {"provider", "auth"} <= cluster.keys():
        raise UserError(
            f"{cluster_file} has no `provider` and `auth`: name the file given to `ray up`"
        )
    return prepared(cluster)


def head_address(cluster_file: Path, cluster: Fields) -> str:
    """Return the address of a cluster's head; raises UserError if none is up."""
    provider = cluster["provider"]
    if "head_ip" in provider:  # Ray itself knows it only where `ray up` ran
        return str(provider.get("external_head_ip") or provider["head_ip"])
    from ray.autoscaler.sdk import get_head_node_ip

    try:
        return str(get_head_node_ip(str(cluster_file)))
    except Exception as error:  # Ray's RuntimeError, or any error of a cloud's library
        why = f"{cluster_file} has no head that is up ({reason(error)})"
        raise UserError(f"{why}: start it with `ray up {cluster_file}`") from error


def ssh(cluster: Fields, *options: str) -> list[str]:
    """Return the command of ssh with user and key of a cluster file and further options; an address is to follow."""
    auth = cluster["auth"]
    given = [f"{option}={auth[name]}" for option, name in OF_FILE.items() if auth.get(name)]
    words = ["ssh", *(f"-o{option}" for option in [*options, *OPTIONS, *given])]
    if key := auth.get("ssh_private_key"):
        words += ["-i", str(Path(key).expanduser())]
    return words


def fetch(cluster_file: Path, folder: str, target: Path) -> None:
    """Copy a results directory of a cluster without its checkpoints; raises UserError if ssh or rsync fails."""
    Results(target).check()
    make_folder(target)
    cluster = read_cluster(cluster_file)
    source = f"{head_address(cluster_file, cluster)}:{folder}/"
    rsync = ["rsync", "--archive", "--rsh", shlex.join(ssh(cluster))]
    for rules in PARTS:
        words = [*rsync, *rules, source, f"{target}/"]
        if code := subprocess.run(words, check=False).returncode:
            raise UserError(
                f"rsync ended (code {code}); its reason is above. What it copied is complete."
            )
