"""The shipped cluster files; a Ray cluster of several nodes on this machine, of which some can be taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.chaos import processes
from lr_sweep.tests.support.tiny_study import ROOT

FILES = {"aws": ROOT / "cluster.yaml", "local": ROOT / "docs" / "cluster" / "local.yaml"}


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILES[name].read_text())
    return loaded


def write_program(path: Path, text: str) -> Path:
    """Write a program that any user may start, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# A token somewhere in the home folder would make some of Ray's programs ask for it, and others not show it.
NO_TOKEN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


class SmallCluster:
    """A head on which nothing trains, and nodes of one CPU."""

    def __init__(self, num_nodes: int) -> None:
        from ray.cluster_utils import Cluster

        memory = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0} | memory)
        self.address = self._cluster.address
        self.nodes: list[Any] = []
        for _ in range(num_nodes):
            self.add()

    def add(self) -> Any:
        node = self._cluster.add_node(num_cpus=1, num_gpus=0, object_store_memory=100 * 2**20)
        self.nodes.append(node)
        return node

    def lose(self) -> None:
        """Take the last node away without a word to anybody: SIGKILL for its Ray, and so the end of what it started."""
        self._cluster.remove_node(self.nodes.pop(), allow_graceful=False)

    def warn(self, node: Any) -> None:
        """Say that a node will go soon, as cluster.yaml does at a spot machine's notice."""
        reason = ("--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot")
        ray = Path(sys.executable).with_name("ray")
        subprocess.run([ray, "drain-node", "--address", self.address, "--node-id", node.node_id, *reason], check=True)

    def end(self) -> None:
        self._cluster.shutdown()


@contextmanager
def small_cluster(num_nodes: int) -> Iterator[SmallCluster]:
    with mock.patch.dict(os.environ, NO_TOKEN):
        cluster = SmallCluster(num_nodes)
        try:
            yield cluster
        finally:
            cluster.end()


def trains(node: Any) -> bool:
    return bool(trial_pids(node))


def trial_pids(node: Any) -> set[int]:
    (raylet,) = node.all_processes["raylet"]
    return {
        pid
        for pid, parent, command in processes()
        if parent == raylet.process.pid and command.startswith("ray::") and "Trainable" in command
    }


IMPATIENT = """
import sys
from lr_sweep.sweep.tune import nodes
from lr_sweep.sweep.cli.parser import main
nodes.CHECK_EVERY_S, nodes.SETTLE_S, nodes.PATIENCE_S = 0.5, 1.0, 3.0
sys.exit(main(sys.argv[1:]))
"""


class ClusterRun(Background):
    """A `run` on a cluster, with shorter waits than usual."""

    program = ("-c", IMPATIENT)
    settings = NO_TOKEN


def checkpointed(results: Path) -> set[str]:
    return {path.parent.name for path in (results / "checkpoints").glob("*/step-*")}
