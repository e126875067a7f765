"""Mistakes in the shell commands of a cluster file that would start no cluster, or one without protection."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

START_RAY = re.compile(r"\bray start\b([^;&|]*)")
WITH_TOKEN = re.compile(r"sweep/cluster/bin(/ray start\b|:\$PATH)|RAY_AUTH_MODE=token\b")
"""In a command whose Ray asks for the token: sweep/cluster/bin/ray sees to it."""
LISTENS = re.compile(r"--(?:dashboard-)?host[= ](\S+)")
LOOPBACK = ("127.0.0.1", "localhost")
GIVEN = {"RAY_HEAD_IP", "HOME", "USER", "PATH", "PWD", "SHELL"}
"""Variables that Ray's autoscaler or the login shell sets."""
USED, SET = re.compile(r"\$\{?([A-Za-z_]\w*)"), re.compile(r"\b([A-Za-z_]\w*)=|\b(?:for|read) (\w+)")
MODULE = re.compile(r"-m (lr_sweep\.[\w.]+)")
MLFLOW_PORT = re.compile(r"MLFLOW_TRACKING_URI=\S+?:(\d+)|mlflow_server\b[^|&]*--port[= ](\d+)")
LISTS = (
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"),
    *("head_start_ray_commands", "worker_start_ray_commands"),
)


def command_problems(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong in the commands of a file that Ray's schema accepts: `PLACE: reason`."""
    commands = {f"{name}.{i}": text for name in LISTS for i, text in enumerate(cluster.get(name) or [])}
    for place, text in commands.items():
        yield from (f"{place}{problem}" for problem in _one(text))
    yield from _head_and_workers(cluster)
    started = " ".join(cluster.get("head_start_ray_commands") or [])
    if len(ports := {port for pair in MLFLOW_PORT.findall(started) for port in pair if port}) > 1:
        yield f"head_start_ray_commands: MLflow has port {' and '.join(sorted(ports))}: want one"
    if not any("make env" in text or ".venv" in text for place, text in commands.items() if "setup" in place):
        yield "setup_commands: want `cd ~/lr-sweep && make env EXTRAS=cluster`, which makes the environment"
    if not any("/shared" in text for text in commands.values()):
        yield "initialization_commands: none mounts, or looks for, the disk at /shared"


def _one(command: str) -> Iterator[str]:
    if START_RAY.search(command) and not WITH_TOKEN.search(command):
        yield ": starts Ray without RAY_AUTH_MODE=token, open to everyone who reaches its ports"
    if re.search(r"\bmlflow (server|ui)\b", command):
        yield ": starts MLflow without a token, open to every user of the head: want cluster.mlflow_server"
    for host in LISTENS.findall(command):
        if host not in LOOPBACK:
            yield f": listens on {host}, want 127.0.0.1: tunnels reach it there"
    known = GIVEN | {name for pair in SET.findall(command) for name in pair}
    for name in sorted(set(USED.findall(command)) - known):
        yield f": nothing sets ${name}{'; Ray sets $RAY_HEAD_IP' if name.startswith('RAY') else ''}"
    for module in MODULE.findall(command):
        if find_spec(module) is None:
            yield f": there is no {module}"
    if refused := _refused_by_bash(command):
        yield f": {refused}"


@cache
def _refused_by_bash(command: str) -> str:
    """Return the first syntax error of a command, which is not run; empty: it has none."""
    read = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
    return (read.stderr.splitlines() or [""])[0]


def _head_and_workers(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield why workers would not come, or not find the head."""
    found = {}
    for place, wanted in (("head", "--head"), ("worker", "--address=$RAY_HEAD_IP")):
        text = " ".join(cluster.get(f"{place}_start_ray_commands") or [])
        found[place] = next((each for each in START_RAY.findall(text) if wanted in each), None)
        if found[place] is None:
            yield f"{place}_start_ray_commands: want one with `ray start {wanted}`"
    if not (head := found["head"]) or not (worker := found["worker"]):
        return
    if "--autoscaling-config=~/ray_bootstrap_config.yaml" not in head:
        yield "head_start_ray_commands: want --autoscaling-config=~/ray_bootstrap_config.yaml: no worker would start"
    if cluster["provider"]["type"] == "local" and "enable_autoscaler_v2=0" not in str(cluster):
        yield "head_start_ray_commands: want RAY_enable_autoscaler_v2=0: only one worker would start (Ray 2.60)"
    ports = [re.search(r"(?:--port=|HEAD_IP:)(\d+)", each) for each in (head, worker)]
    there, looked_for = [match[1] if match else None for match in ports]
    if there != looked_for:
        yield f"worker_start_ray_commands: looks for the head at port {looked_for}, the head has {there}"
