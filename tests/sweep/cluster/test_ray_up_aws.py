"""`ray up cluster.yaml`: workers come with the work, are taken away, and go; `make cluster-test`.

moto stands for AWS and namespaces for its machines, which have one CPU each and no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.tests.support.servers.laptop import (
    RESULTS,
    Laptop,
    accepted,
    check_as_if_undisturbed,
    report_moment,
    steps_within,
    study_of,
)
from lr_sweep.tests.support.servers.moto_cloud import Cloud
from lr_sweep.tests.support.servers.ssh_hosts import SHARED, what_is_missing
from lr_sweep.tests.support.tiny_study import rows, write_study
from lr_sweep.tests.support.waiting import wait_until

pytestmark = pytest.mark.hosts

RUN_S = 30.0
"""So long a run takes on an idle CPU."""
NUM_WORKERS = 2


@pytest.fixture
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    if reason := what_is_missing():
        pytest.skip(reason)
    made = Cloud(tmp_path_factory.mktemp("cloud"))
    yield made
    made.end()


def training(cloud: Cloud) -> set[str]:
    """Ids of the instances on which a trial is."""
    return {name for name, each in cloud.instances("gpu").items() if cloud.hosts.trains(each["PrivateIpAddress"])}


def all_training(cloud: Cloud) -> list[str]:
    """Ids of the instances if a trial is on each of them, else none."""
    found = sorted(training(cloud))
    return found if len(found) == NUM_WORKERS else []


def runs_saved_at(num_steps: int) -> set[str]:
    """Ids of the runs that have a checkpoint of so many steps or more."""
    found = (RESULTS / "checkpoints").glob("*/step-*-*.safetensors")
    return {path.parent.name for path in found if int(path.name.split("-")[1]) >= num_steps}


def test_workers_come_with_the_work_are_taken_away_and_go(cloud: Cloud, tmp_path: Path) -> None:
    num_steps = steps_within(RUN_S, tmp_path / "tried")
    num_steps_before = num_steps // 3  # what is trained before a machine is taken away
    study, began = write_study(SHARED, **study_of(num_steps, rates=(1e-3, 3e-3, 1e-2))), time.monotonic()
    laptop = Laptop(cloud.hosts, cloud.cluster_file(NUM_WORKERS), **cloud.laptop_settings)
    submit = ("submit", study, "--results", RESULTS, "--data-dir", SHARED / "data", "--checkpoint-every-s", "5")
    laptop.ray_up()
    assert cloud.instances("gpu") == {}
    with laptop.tunnels():
        accepted(laptop.sweep(*submit, "--no-follow"))
        wait_until(lambda: all_training(cloud), "a trial on every worker")
        report_moment("workers have come, and train", began)
        check_kinds(cloud)
        wait_until(lambda: len(runs_saved_at(num_steps_before)) >= NUM_WORKERS, "checkpoints")
        # A run that ends between two looks leaves its worker without a trial for a moment.
        warned, taken = wait_until(lambda: all_training(cloud), "a trial on every worker, again")
        before = cloud.instances("gpu").keys()
        cloud.warn(warned)
        wait_until(lambda: warned not in training(cloud), "runs to leave")
        report_moment("one got notice that it will be taken away, and nothing trains there", began)
        cloud.take_away(taken)
        report_moment(f"the other is taken away without notice; {len(rows(RESULTS))} of 6 runs have ended", began)
        wait_until(lambda: bool(training(cloud) - before), "a trial on another worker")
        report_moment("another has come in its place, and trains", began)
        printed = laptop.sweep("job", "logs", "tiny")
        assert "6 runs wanted: 6 complete, 0 diverged, 0 failed, 0 missing." in printed
        report_moment("the study is complete", began)
    wait_until(lambda: cloud.instances("gpu") == {}, "idle workers to be terminated")
    report_moment("workers have gone", began)
    assert len(cloud.instances("head")) == 1
    laptop.ray_down()
    assert cloud.instances() == {}
    check_as_if_undisturbed(study, tmp_path / "reference")
    assert max(row["attempts"] for row in rows(RESULTS).values()) > 1
    assert sum(row["lost_steps"] for row in rows(RESULTS).values()) < num_steps_before


def check_kinds(cloud: Cloud) -> None:
    """Workers are spot machines without rights; the head is neither."""
    (head,), workers = cloud.instances("head").values(), cloud.instances("gpu").values()
    assert head["IamInstanceProfile"]["Arn"].endswith("/lr-sweep-head")
    assert "InstanceLifecycle" not in head
    assert [each["InstanceLifecycle"] for each in workers] == ["spot"] * NUM_WORKERS
    assert not any("IamInstanceProfile" in each for each in workers)
