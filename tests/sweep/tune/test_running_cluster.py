"""`run --address` on a Ray that another user started: the checkout travels with the job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.tests.support.tiny_study import rows, sweep, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    yield started
    started.shutdown()


def test_a_study_trains_on_it(cluster: Any, tmp_path: Path) -> None:
    study = write_study(tmp_path, rates=(1e-2,))
    code, output = sweep("run", study, "--results", tmp_path / "results", "--address", cluster.address)
    assert code == 0, output
    assert [row["status"] for row in rows(tmp_path / "results").values()] == ["complete", "complete"]


@pytest.mark.parametrize(("option", "number"), [("--gpus-per-trial", "1"), ("--cpus-per-trial", "2")])
def test_more_than_any_of_its_machines_has_is_refused(cluster: Any, tmp_path: Path, option: str, number: str) -> None:
    study, results = write_study(tmp_path), tmp_path / "results"
    code, output = sweep("run", study, "--results", results, "--address", cluster.address, option, number)
    assert code == 2
    assert "Traceback" not in output
    assert f"the cluster at {cluster.address} has no such node (nodes: 1 CPU and 0 GPU)" in output
