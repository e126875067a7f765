"""The folder of a Ray that `run` starts: where it is and who may read it. Its use: test_sweep_end_to_end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.common.scratch import own_folder
from lr_sweep.sweep.tune.ray_session import _MAX_FOLDER_BYTES, private_ray

ANOTHER_USER = 3_999_999_999
"""A user that does not exist, and is given the longest name of a folder."""


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


def test_what_another_user_put_in_its_place_is_not_used(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 7)  # so that what this test makes is another user's
    (parent / "lr-sweep-7").mkdir(mode=0o777)
    check_other_folder(parent, "lr-sweep-7-")


def test_a_link_is_not_followed(parent: Path) -> None:
    (parent / "elsewhere").mkdir(mode=0o777)
    (parent / f"lr-sweep-{os.getuid()}").symlink_to(parent / "elsewhere")
    other = own_folder(parent)
    assert own_folder(parent) == other, "it is found again"
    check_other_folder(parent, f"lr-sweep-{os.getuid()}-")


def check_other_folder(parent: Path, prefix: str) -> None:
    ours = own_folder(parent)
    assert (ours.parent, ours.name.startswith(prefix), mode(ours)) == (Path("/tmp"), True, 0o700)
    ours.rmdir()


def test_paths_of_sockets_stay_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: ANOTHER_USER)
    theirs = Path(f"/tmp/lr-sweep-{ANOTHER_USER}")
    theirs.mkdir(exist_ok=True)
    folder = own_folder(tmp_path / ("long" * 20), _MAX_FOLDER_BYTES)
    folder.rmdir()
    theirs.rmdir()
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


def test_what_killed_processes_left_goes_at_the_next_start_and_what_a_living_one_has_stays(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(parent))
    body = "import time; from pathlib import Path; print(folder, flush=True); time.sleep(600)"
    program = f"from lr_sweep.sweep.tune.ray_session import private_ray\nwith private_ray() as folder: {body}"
    command = [sys.executable, "-c", program]
    living, killed = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in "ab")
    with living, killed:
        assert living.stdout
        assert killed.stdout
        theirs, left = (Path(process.stdout.readline().strip()) for process in (living, killed) if process.stdout)
        killed.kill()
        killed.wait()
        assert (left / "token").exists()
        with private_ray() as folder:
            assert sorted(folder.parent.iterdir()) == sorted([folder, theirs])
            assert (theirs / "token").exists()
        living.kill()
