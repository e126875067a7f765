"""Ray that does not come up, and its folder: where it is and who may read it.

That Ray comes up, and its death later, is in test_sweep_end_to_end and test_chaos.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray
from ray._private import utils

from lr_sweep.common.errors import UserError
from lr_sweep.common.scratch import own_folder
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune import ray_session as module
from lr_sweep.sweep.tune.ray_session import _MAX_FOLDER_BYTES, RayLostError, private_ray, ray_session
from lr_sweep.tests.support.chaos import processes
from lr_sweep.tests.support.tiny_study import ROOT, environment
from lr_sweep.tests.support.waiting import wait_until


def enter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, address: str | None) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(ray, "init", fails)
    with ray_session(Placement(resources=Resources(), address=address, cpus=1), tmp_path / "log"):
        pytest.fail("there is no Ray")


def test_sigterm_stays_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray sets handlers of its own as it starts, in Python and in C++, and takes the latter away at its shutdown."""
    before = signal.getsignal(signal.SIGTERM)

    def init(**_: object) -> None:
        utils.set_sigterm_handler(lambda number, frame: None)
        assert signal.getsignal(signal.SIGTERM) is ours
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def ours(number: int, frame: object) -> None:
        pass

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    monkeypatch.setattr(module, "cluster_nodes", lambda placement, excluded: [{"CPU": 1.0}])
    monkeypatch.setattr(module, "lost_processes", list)
    signal.signal(signal.SIGTERM, ours)
    try:
        with ray_session(Placement(resources=Resources(), cpus=1), tmp_path / "log"):
            assert signal.getsignal(signal.SIGTERM) is ours
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Exception("The current node timed out during startup."), r"Ray did not start \(The current node timed out"),
        (ray.exceptions.RaySystemError("Failed to connect to GCS."), r"Ray did not start \(.*Failed to connect to GCS"),
        (RuntimeError(), r"Ray did not start \(RuntimeError\)"),
    ],
)
def test_a_ray_that_dies_while_it_starts_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, message: str
) -> None:
    """It counts as lost, so `run_study` starts it again."""
    with pytest.raises(RayLostError, match=message):
        enter(monkeypatch, tmp_path, error, address=None)


def test_a_cluster_that_does_not_answer_is_the_user_s_to_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UserError, match="--address 10.0.0.1:6379: refused .*RAY_AUTH_MODE=token"):
        enter(monkeypatch, tmp_path, ConnectionError("refused"), address="10.0.0.1:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(UserError, match="no Ray cluster answers at --address 10.0.0.1:6379: refused. Start one"):
        enter(monkeypatch, tmp_path, ConnectionError("refused"), address="10.0.0.1:6379")


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder with a short name."""
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as folder:
        yield Path(folder)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_the_folder_is_closed_to_others_and_used_again(parent: Path) -> None:
    folder = own_folder(parent)
    assert (folder.parent, mode(folder)) == (parent, 0o700)
    folder.chmod(0o777)
    assert own_folder(parent) == folder
    assert mode(folder) == 0o700


@pytest.mark.parametrize("is_link", [False, True])
def test_what_another_user_put_in_its_place_and_a_link_are_not_used(
    parent: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    uid = os.getuid() if is_link else 7  # so that what this test makes is another user's
    monkeypatch.setattr(os, "getuid", lambda: uid)
    if is_link:
        (parent / "elsewhere").mkdir(mode=0o777)
        (parent / f"lr-sweep-{uid}").symlink_to(parent / "elsewhere")
    else:
        (parent / f"lr-sweep-{uid}").mkdir(mode=0o777)
    with pytest.raises(UserError, match="is of user [0-9]+ or no folder, want .* Remove it, or set TMPDIR"):
        own_folder(parent)


def test_a_foreign_scratch_folder_is_no_ray_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would be started five times, and memory blamed."""
    (tmp_path / f"lr-sweep-{os.getuid()}").symlink_to(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UserError, match="or no folder, want"):
        enter(monkeypatch, tmp_path, None, address=None)


def test_paths_of_sockets_stay_short_enough(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / ("long" * 20), _MAX_FOLDER_BYTES)
    assert folder.parent == Path("/tmp")
    assert len(bytes(folder / "r-99/session_2026-11-22_00-19-03_254524_4194304/sockets/plasma_store")) <= 103


def test_no_room_for_the_folder_is_an_error_that_names_the_way_out(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (parent / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(parent / "file"))
    with pytest.raises(UserError, match="cannot make a folder for Ray's logs and sockets: .*RAY_TMPDIR"), private_ray():
        pass


def test_settings_last_as_long_as_ray(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {"RAY_TMPDIR": str(parent), "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "of a cluster"}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    tokens = []
    for _ in range(2):
        before = {name: value for name, value in os.environ.items() if name.startswith(("RAY_AUTH", "RAY_ENABLE"))}
        with private_ray():
            assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & os.environ.keys()
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert mode(token) == 0o600
            tokens.append(token.read_text())
        after = {name: value for name, value in os.environ.items() if name.startswith(("RAY_AUTH", "RAY_ENABLE"))}
        assert after == before
        assert not token.exists()
    assert len(set(tokens)) == 2
    assert all(len(each) == 64 for each in tokens)


def test_what_a_killed_process_left_goes_at_the_next_start(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(parent))
    left = own_folder(parent) / "r-0" / "session"
    left.mkdir(parents=True)
    with private_ray() as folder:
        assert list(folder.parent.iterdir()) == [folder]
        assert not (folder / "session").exists()


COLLECTS_MEANWHILE = """
import sys, threading, time
from pathlib import Path
import ray
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune.ray_session import ray_session

class Cycle:
    pass

def make_garbage(count, held=lambda: None):
    for _ in range(count):
        cycle = Cycle()
        cycle.itself, cycle.held = cycle, held()

def make_more():
    while True:
        time.sleep(0.002)
        make_garbage(200)

with ray_session(Placement(resources=Resources(), cpus=1), Path(sys.argv[1])):
    make_garbage(2000, lambda: ray.put(0))  # some of it is collected later only
    threading.Thread(target=make_more, daemon=True).start()
print("left")
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_another_thread_s_garbage_does_not_end_the_process_while_ray_shuts_down(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COLLECTS_MEANWHILE, str(tmp_path / "log")]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


PARENT_ENDS = """
import os, sys, time
from pathlib import Path
import psutil
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune.ray_session import lost_processes, ray_session

_, log_file, raylet, shell = sys.argv
with ray_session(Placement(resources=Resources(), cpus=1), Path(log_file)):
    while os.getppid() == int(shell):
        time.sleep(0.1)
    if raylet == "dies":
        [each.kill() for each in psutil.Process().children() if each.name() == "raylet"]
        while not lost_processes():
            time.sleep(0.1)
        time.sleep(2)
print("left")
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_a_process_whose_parent_has_ended_leaves_ray_and_works_on(tmp_path: Path) -> None:
    """As after `nohup`, where Ray takes the parent for the raylet; once with a raylet that dies."""
    start = '"$@" $$ > "$0" 2> "$0.errors" & sleep 3'  # the shell ends while Ray is there, or starts
    printed = {raylet: tmp_path / raylet for raylet in ("lives", "dies")}
    shells = []
    for raylet, file in printed.items():
        shell = ["sh", "-c", start, file, sys.executable, "-c", PARENT_ENDS, tmp_path / f"log-{raylet}", raylet]
        shells.append(subprocess.Popen(shell, cwd=ROOT, env=environment()))
    assert [shell.wait() for shell in shells] == [0, 0]
    for file in printed.values():
        wait_until(lambda file=file: "left\n" in file.read_text(), "the end")


ALONE = """
import sys, time
from pathlib import Path
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune.ray_session import ray_session
with ray_session(Placement(resources=Resources(), cpus=1), Path(sys.argv[1])):
    print("Ray is up", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_all_of_ray_ends_after_its_driver_was_killed(tmp_path: Path) -> None:
    """Its agents last (2.60): they try for a minute to report to the GCS that the raylet is dead."""
    command = [sys.executable, "-c", ALONE, tmp_path / "log"]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"Ray is up\n"
        started = {process.pid for process in psutil.Process(driver.pid).children(recursive=True)}
        driver.kill()
    assert len(started) >= 4  # the GCS, the raylet, two agents
    wait_until(lambda: not {pid for pid, _, command in processes() if command} & started, "the end of all of them")
