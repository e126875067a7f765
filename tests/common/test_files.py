"""Folders: nothing is made below one that was moved, and nothing is removed through a link."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lr_sweep.common.files import held, hold, make_folder, remove_below, write_bytes


def test_nothing_is_written_below_a_folder_that_was_moved(tmp_path: Path) -> None:
    (folder := tmp_path / "results").mkdir()
    with held(folder):
        write_bytes(folder / "runs" / "a", b"1")
        folder.rename(tmp_path / "moved")
        for replace in (lambda: None, folder.mkdir):
            replace()
            with pytest.raises(OSError, match="another folder is in its place") as caught:
                write_bytes(folder / "runs" / "b", b"2")
            assert caught.value.errno == errno.ESTALE
            assert not (folder / "runs").exists()
        make_folder(tmp_path / "elsewhere" / "deep")
    make_folder(folder / "runs")


def test_a_file_that_is_missing_since_its_folder_was_moved_says_so(tmp_path: Path) -> None:
    (folder := tmp_path / "results").mkdir()

    def read() -> None:
        with held(folder):
            folder.rmdir()
            (folder / "a").read_bytes()

    with pytest.raises(OSError, match="it was moved or removed"):
        read()
    with pytest.raises(OSError, match="it was moved or removed"):
        hold(folder)


@pytest.mark.parametrize("link", ["a", "a/b"])
def test_nothing_is_removed_through_a_link(tmp_path: Path, link: str) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "b").mkdir()
    for name in ("c", "b/c"):
        (outside / name).write_text("precious")
    root = tmp_path / "root"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        remove_below(root, root / link / "b")
    assert (outside / "b" / "c").exists()
    remove_below(root, root / link)
    assert list(outside.iterdir())
    assert not (root / link).is_symlink()
