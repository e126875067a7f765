"""A cluster whose machines are lost, fail or lack what a trial asks for, and that two studies share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lr_sweep.tests.support.chaos import final_weights, record_content
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.small_cluster import ClusterRun, SmallCluster, checkpointed, small_cluster, trains
from lr_sweep.tests.support.tiny_study import rows, sweep, swept, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # which machine gets which runs is quick: test_nodes.py
EVALUATE_EVERY = 250
STUDY: dict[str, Any] = {
    "rates": (1e-3, 3e-3, 1e-2),
    "variants": ("unfrozen-random",),
    "num_steps": 6000,  # long enough for another study to start meanwhile
    "protocol": f"{{evaluate_every: {EVALUATE_EVERY}, train_examples_evaluated: 100}}",
    "resources": "{runs_per_trial: 1, retries: 0}",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SmallCluster]:
    with small_cluster(2) as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def undisturbed(folder: Path, cluster: SmallCluster) -> Path:
    """Results of the study on machines that stay."""
    study, results = write_study(folder, **STUDY), folder / "undisturbed"
    swept("run", study, "--results", results, "--address", cluster.address)
    return results


def check_as_if_undisturbed(results: Path, undisturbed: Path) -> None:
    assert record_content(results) == record_content(undisturbed)
    assert final_weights(results) == final_weights(undisturbed)


def test_runs_of_a_lost_machine_go_on_elsewhere(cluster: SmallCluster, folder: Path, undisturbed: Path) -> None:
    """There are no retries: a lost machine is no failure of the runs."""
    study, results = write_study(folder, **STUDY), folder / "disturbed"
    with ClusterRun(folder / "disturbed.log", study, "--results", results, "--address", cluster.address) as run:
        run.wait_until(lambda: len(checkpointed(results)) >= 2 and all(map(trains, cluster.nodes)))
        cluster.lose()
        code, printed = run.ends()
    assert code == 0, printed
    ended = rows(results).values()
    assert sorted(row["attempts"] for row in ended) == [1, 1, 2]
    assert all(row["lost_steps"] == 0 for row in ended if row["attempts"] == 1)
    assert all(row["lost_steps"] < EVALUATE_EVERY for row in ended)  # a checkpoint is written at every evaluation
    check_as_if_undisturbed(results, undisturbed)


def test_a_study_that_comes_later_gets_its_share_at_once(
    cluster: SmallCluster, folder: Path, undisturbed: Path
) -> None:
    """The first one gives half of the cluster up for it, and takes it back; its record is as if it had been alone."""
    study, results = write_study(folder, **STUDY), folder / "shared"
    (folder / "other").mkdir()
    other = write_study(folder / "other", **STUDY | {"rates": (1e-1,), "num_steps": 250})
    while len(cluster.nodes) < 2:
        cluster.add()
    with ClusterRun(folder / "shared.log", study, "--results", results, "--address", cluster.address) as first:
        first.wait_until(lambda: len(checkpointed(results)) >= 2)
        arguments = ("--results", folder / "other" / "results", "--address", cluster.address)
        second = ClusterRun(folder / "other.log", other, *arguments)
        code, printed = second.ends()
        assert code == 0, printed
        code, printed = first.ends()
    assert code == 0, printed
    assert "1 trials at once instead of 2" in printed
    (second_row,) = rows(folder / "other" / "results").values()
    last_end = max(row["finished_at"] for row in rows(results).values())
    assert second_row["started_at"] < last_end, "the second did not have to wait for the first to end"
    check_as_if_undisturbed(results, undisturbed)
    assert {row["lost_steps"] for row in rows(results).values()} == {0}


def test_runs_leave_a_machine_that_will_be_taken_away(cluster: SmallCluster, folder: Path, undisturbed: Path) -> None:
    study, results = write_study(folder, **STUDY), folder / "warned"
    leaving, stays = cluster.add(), cluster.nodes[0]
    with ClusterRun(folder / "warned.log", study, "--results", results, "--address", cluster.address) as run:
        run.wait_until(lambda: len(checkpointed(results)) >= 2 and trains(leaving))
        cluster.warn(leaving)
        run.wait_until(lambda: not trains(leaving))
        assert trains(stays)
        cluster.nodes.remove(leaving)
        code, printed = run.ends()
    assert code == 0, printed
    check_as_if_undisturbed(results, undisturbed)
    assert {row["lost_steps"] for row in rows(results).values()} == {0}
    assert max(row["attempts"] for row in rows(results).values()) == 2


BROKEN = """
import os, time
if "BROKEN" in os.environ:
    raise OSError(5, os.environ["BROKEN"], f"/mnt/{os.getpid()}")
for _ in session.steps(model=torch.nn.Linear(1, 1)):
    time.sleep(2)  # so that the other nodes' trials fail in the meantime
    if session.due:
        session.report(validation=1.0, test=0.5)
"""


def test_a_node_on_which_runs_fail_is_left_and_every_run_completes(cluster: SmallCluster, tmp_path: Path) -> None:
    """No trial uses its retries up there. The rules are quick: test_broken_nodes.py."""
    study = write_function(tmp_path, BROKEN, seeds="6", resources="{runs_per_trial: 1, retries: 9}")
    with mock.patch.dict(os.environ, {"BROKEN": "Input/output error"}):  # the node's processes inherit it
        cluster.add()
    code, printed = sweep("run", study, "--results", tmp_path / "results", "--address", cluster.address, timeout_s=900)
    cluster.lose()
    assert code == 0, printed
    assert "trials fail on " in printed
    assert printed.count("it is left, its runs resume elsewhere") == 1
    assert [row["status"] for row in rows(tmp_path / "results").values()] == ["complete"] * 6


def test_a_cluster_on_which_no_trial_fits_any_more_is_left_with_the_checkpoints(
    cluster: SmallCluster, folder: Path
) -> None:
    study, results = write_study(folder, **STUDY), folder / "left"
    with ClusterRun(folder / "left.log", study, "--results", results, "--address", cluster.address) as run:
        run.wait_until(lambda: len(checkpointed(results)) >= 2)
        while cluster.nodes:
            cluster.lose()
        code, printed = run.ends()
    assert code == 2
    assert "Traceback" not in printed
    assert f"the cluster at {cluster.address} has no such node (nodes: 0 CPU and 0 GPU)" in printed
    assert "What was trained is saved; the same command resumes from it." in printed
    assert len(checkpointed(results)) >= 2
    assert rows(results) == {}


class PatientRun(ClusterRun):
    """A `run` on a cluster with the usual waits."""

    program = ("-m", "sweep")


def test_a_sweep_on_a_cluster_whose_machines_are_to_come_waits_for_one(cluster: SmallCluster, tmp_path: Path) -> None:
    """As after `ray up`, or when a lost head has come back, where the head can hold no trial."""
    while cluster.nodes:
        cluster.lose()
    study, results = write_study(tmp_path, **STUDY | {"num_steps": 250}), tmp_path / "results"
    log = tmp_path / "log"
    with PatientRun(log, study, "--results", results, "--address", cluster.address) as run:
        run.wait_until(lambda: "The sweep waits 10 minutes for one." in log.read_text())
        cluster.add()
        code, printed = run.ends()
    assert code == 0, printed
    assert [row["status"] for row in rows(results).values()] == ["complete"] * 3
