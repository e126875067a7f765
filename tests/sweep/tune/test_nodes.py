"""How many machines a cluster has, as the user reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.tune import nodes
from lr_sweep.sweep.tune.nodes import COUNT_EVERY_S, Machines, most_machines


def test_a_change_is_news_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, texts = [0.0], iter(["1 machine is there", "1 machine is there", "3 machines are there"])
    monkeypatch.setattr(nodes, "machines_text", lambda: next(texts))
    machines = Machines(on_cluster=True, clock=lambda: now[0])
    found = []
    for now[0] in (0.0, 1.0, COUNT_EVERY_S, 2 * COUNT_EVERY_S):
        found.append(machines.news())
    assert found == [["1 machine is there"], [], [], ["3 machines are there"]]
    assert Machines().news() == []  # on this machine alone


def test_the_cluster_s_file_says_how_many_there_may_be(tmp_path: Path) -> None:
    file = tmp_path / "ray_bootstrap_config.yaml"
    assert most_machines(file) is None
    file.write_text("cluster_name: x\nmax_workers: 8\n")
    assert most_machines(file) == 9
