"""How many machines a cluster has, as the user reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from lr_sweep.sweep.tune import nodes
from lr_sweep.sweep.tune.nodes import COUNT_EVERY_S, Machines, machines_text, nodes_to_come


def test_a_change_is_news_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, there = [0.0], iter([[{}], [{}], [{}] * 3])
    monkeypatch.setattr(nodes, "alive_nodes", lambda: next(there))
    machines = Machines(on_cluster=True, clock=lambda: now[0])
    found = []
    for now[0] in (0.0, 1.0, COUNT_EVERY_S, 2 * COUNT_EVERY_S):
        found.append(machines.news())
    assert found == [["1 machine is there"], [], [], ["3 machines are there"]]


def test_machines_are_described_with_what_trains_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [
        {"NodeID": "x", "Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 8.0, "GPU": 1.0}},
        {"NodeID": "y", "Alive": False, "NodeManagerAddress": "10.0.0.2", "Resources": {}},
        {"NodeID": "z", "Alive": True, "NodeManagerAddress": "10.0.0.3", "Resources": {"memory": 1.0}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: there)
    monkeypatch.setattr(nodes, "node_of_trial", lambda trial: "x")
    machines = Machines()  # on this machine alone
    machines.started(SimpleNamespace(trial_id="t"), ["aa", "bb"])
    assert machines.news() == []
    assert machines.described(["bb", "lost"]) == [
        {"address": "10.0.0.1", "cpus": 8.0, "gpus": 1.0, "runs": ["bb"]},
        {"address": "10.0.0.3", "cpus": 0, "gpus": 0, "runs": []},
    ]


def test_the_cluster_s_file_says_how_many_there_may_be(tmp_path: Path) -> None:
    file = tmp_path / "ray_bootstrap_config.yaml"
    assert machines_text(2, file) == "2 machines are there"
    file.write_text("cluster_name: x\nmax_workers: 8\n")
    assert machines_text(2, file) == "2 machines are there, of at most 9"


def test_node_types_share_the_number_of_machines(tmp_path: Path) -> None:
    """Each of two types may have 3 workers, both together 4; they take turns, so that each is among those to come."""
    file = tmp_path / "ray_bootstrap_config.yaml"
    file.write_text(
        "max_workers: 4\navailable_node_types:\n"
        "  a: {resources: {CPU: 4, GPU: 1}, max_workers: 3}\n  b: {resources: {CPU: 8, GPU: 2}, max_workers: 3}\n"
    )
    head, a, b = {"CPU": 0.0}, {"CPU": 4.0, "GPU": 1.0}, {"CPU": 8.0, "GPU": 2.0}
    assert nodes_to_come([head], file) == [a, b, a, b]
    assert nodes_to_come([head, a, a], file) == [a, b]
    assert nodes_to_come([head, a, a, a], file) == [b]
    assert nodes_to_come([head, a, a, b, b], file) == []
    assert nodes_to_come([head], tmp_path / "none") == []  # not started by `ray up`
    file.write_text("max_workers: 2\navailable_node_types:\n  local.cluster.node: {resources: {}, min_workers: 2}\n")
    assert nodes_to_come([head], file) == []  # machines of one's own have no number of CPUs there
