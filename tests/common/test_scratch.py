"""Scratch folders: closed to others, removed at their end, and by the next process where theirs was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.common.scratch import _dead, own_folder, remove_dead, scratch_folder
from lr_sweep.tests.support.waiting import wait_until


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return own_folder()


def test_it_is_closed_to_others_and_goes_at_its_end(own: Path) -> None:
    with scratch_folder("code-") as folder, scratch_folder("code-") as other:
        assert (folder, other) == (own / "code-0", own / "code-1")
        assert [each.stat().st_mode & 0o777 for each in (own, folder)] == [0o700, 0o700]
        assert list(_dead(own)) == []
    assert list(own.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_one_unless_a_fork_of_it_lives(own: Path) -> None:
    program = (
        "import os, time; from lr_sweep.common.scratch import scratch_folder\n"
        "with scratch_folder('code-'): os.write(1, b'%d\\n' % os.fork()), time.sleep(600)"
    )
    environment = os.environ | {"TMPDIR": str(own.parent)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        forked = max(int(process.stdout.readline()) for _ in range(2))
    finally:
        process.kill()
        process.wait()
    with scratch_folder("code-") as folder:
        assert folder == own / "code-1", "its fork has the folder"
    os.kill(forked, signal.SIGKILL)
    wait_until(lambda: list(_dead(own)), "the end of the fork")
    with scratch_folder("code-") as folder:
        assert list(own.iterdir()) == [folder]


def test_folders_of_others_files_and_links_are_left_alone(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "token-file").touch()
    (own.parent / "elsewhere").mkdir()
    (own / "a-link").symlink_to(own.parent / "elsewhere")
    (own / "code-0").mkdir()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)  # so that they are another user's
    remove_dead(own)
    assert len(list(own.iterdir())) == 3
    monkeypatch.undo()
    remove_dead(own)
    assert sorted(path.name for path in own.iterdir()) == ["a-link", "token-file"]
