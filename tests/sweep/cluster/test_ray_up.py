"""`ray up` over ssh hosts, a study submitted to them, and hosts that are lost one way and another; `make cluster-test`.

A head and three workers, on one CPU each.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.tests.support.servers.laptop import (
    RESULTS,
    Laptop,
    check_as_if_undisturbed,
    report_moment,
    steps_within,
    study_of,
)
from lr_sweep.tests.support.servers.ssh_hosts import HEAD, SHARED, WORKERS, Hosts, local_cluster_file, what_is_missing
from lr_sweep.tests.support.tiny_study import rows, sweep, write_study
from lr_sweep.tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.hosts
INSECURE = ("-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oLogLevel=ERROR")
MISSED_AFTER_S = 75.0
"""After so long Ray has given a silent host up."""
RUN_S = 45.0
"""So long a run takes on an idle CPU: a study of eight lasts until its hosts are lost, however fast the machine is."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := what_is_missing():
        pytest.skip(reason)
    made = Hosts(tmp_path_factory.mktemp("hosts"), (HEAD, *WORKERS))
    yield made
    made.end()


def saved() -> set[str]:
    """Every checkpoint that is there."""
    return {path.name for path in (RESULTS / "checkpoints").glob("*/step-*")}


def test_a_study_outlives_hosts_and_their_network(hosts: Hosts, tmp_path: Path) -> None:
    """No command is typed after `submit`."""
    num_steps = steps_within(RUN_S, tmp_path / "tried")
    study, laptop = write_study(SHARED, **study_of(num_steps)), Laptop(hosts, local_cluster_file(hosts))
    began = time.monotonic()
    submit = ("submit", study, "--results", RESULTS, "--data-dir", SHARED / "data", "--checkpoint-every-s", "5")
    laptop.ray_up()
    with laptop.tunnels(), laptop.following(*submit) as follower:
        wait_until(lambda: all(map(hosts.trains, (HEAD, *WORKERS))), "a trial on every host")
        wait_until(
            lambda: len({path.parent for path in (RESULTS / "checkpoints").glob("*/step-*")}) >= 4, "checkpoints"
        )
        report_moment("every host trains", began)
        hosts.kill(WORKERS[0])
        hosts.cut_off(WORKERS[1])
        report_moment("one host is killed, one cut off", began)
        time.sleep(MISSED_AFTER_S)
        before = saved()
        wait_until(lambda: bool(saved() - before), "runs to resume")
        assert laptop.sweep("cluster", "jobs").endswith("2 machines are there\n")
        hosts.connect(WORKERS[1])
        hosts.start(WORKERS[0])
        assert follower.process.wait(timeout=3 * PATIENCE_S) == 0, follower.printed()
    printed = follower.printed()
    assert printed.count("8 runs wanted: all complete") == 1
    report_moment("the study is complete", began)
    laptop.ray_down()
    assert [hosts.left(address) for address in (HEAD, *WORKERS)] == [[]] * 4
    check_as_if_undisturbed(study, tmp_path / "reference")
    assert all(row["lost_steps"] < num_steps / 2 for row in rows(RESULTS).values())


def test_ray_down_after_a_ray_up_that_failed_leaves_nothing(hosts: Hosts) -> None:
    """`ray down` reaches no head that is not up to date (2.60)."""
    laptop = Laptop(hosts, local_cluster_file(hosts))
    laptop.ray_up()
    wait_until(lambda: all(map(hosts.left, (HEAD, *WORKERS))), "Ray on every host")
    laptop.ray_up_that_fails()
    laptop.ray_down()
    wait_until(lambda: not any(map(hosts.left, (HEAD, *WORKERS))), "the end of Ray and of its ssh connections")


def test_cluster_down_from_a_laptop_without_rays_state_leaves_nothing(hosts: Hosts, tmp_path: Path) -> None:
    """A machine out of reach is named. What a worker's trial started outlives the trial, in a session of its own."""
    laptop = Laptop(hosts, local_cluster_file(hosts))
    laptop.ray_up()
    wait_until(lambda: all(map(hosts.left, (HEAD, *WORKERS))), "Ray on every host")
    study = write_study(SHARED, **study_of(4000))
    submit = ("submit", study, "--results", SHARED / "down", "--data-dir", SHARED / "data")
    with laptop.tunnels(), laptop.following(*submit, "--checkpoint-every-s", "1"):
        wait_until(lambda: any((SHARED / "down" / "curves").glob("*.parquet")), "an evaluation")
        left_behind = "RAY_AUTH_MODE=token RAY_RAYLET_PID=1 setsid -f sleep 12345 < /dev/null > /dev/null 2>&1"
        subprocess.run(["ssh", "-i", hosts.key, *INSECURE, f"root@{WORKERS[0]}", left_behind], check=True)
    for state in (hosts.folder / "laptop").rglob("cluster-*.state"):
        state.unlink()
    printed = laptop.sweep("cluster", "fetch", laptop.cluster_file, SHARED / "down", tmp_path / "copy")
    assert f"{tmp_path / 'copy'} is a copy of /shared/down" in printed
    laptop.sweep("verify", "--results", tmp_path / "copy")
    hosts.cut_off(WORKERS[1])
    code, printed = sweep("cluster", "down", laptop.cluster_file, "--yes", env=laptop.environment)
    assert f"{WORKERS[1]}: not known what is left" in printed
    assert (code, "not all has ended" in printed) == (1, True)
    hosts.connect(WORKERS[1])
    assert laptop.sweep("cluster", "down", laptop.cluster_file, "--yes").endswith("nothing is left\n")
    assert [hosts.left(address) for address in (HEAD, *WORKERS)] == [[]] * 4
