from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.claims.listing import LIST, read_listed, write_list


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "claim" / "rule").mkdir(parents=True)
    (tmp_path / "claim" / "rule" / "train.py").write_text("x = 1\n")
    (tmp_path / "secret").write_text("of the reader")
    write_list(tmp_path / "claim")
    return tmp_path / "claim"


def add_line(folder: Path, name: str) -> None:
    with (folder / LIST).open("a") as file:
        file.write(f"{'0' * 64}  {name}\n")


def test_a_list_is_one_of_sha256sum(folder: Path) -> None:
    assert subprocess.run(["sha256sum", "-c", LIST], cwd=folder, check=False).returncode == 0
    listed = read_listed(folder)
    assert (listed.contents, listed.problems) == ({"rule/train.py": b"x = 1\n"}, ())


def test_what_is_not_as_listed_is_named(folder: Path) -> None:
    (folder / "rule" / "train.py").write_text("x = 2\n")
    (folder / "more.pkl").write_bytes(b"cos\nsystem\n(S'touch here'\ntR.")
    add_line(folder, "gone.csv")
    assert [problem.split("'")[1] for problem in read_listed(folder).problems] == [
        "more.pkl",
        "rule/train.py",
        "gone.csv",
    ]


@pytest.mark.parametrize("name", ["../secret", "rule/../../secret", "{outside}/secret", "link", "linked/secret"])
def test_nothing_outside_of_the_folder_is_read(folder: Path, name: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "linked").symlink_to(folder.parent)
    add_line(folder, name.format(outside=folder.parent))
    listed = read_listed(folder)
    assert b"of the reader" not in listed.contents.values()
    assert len(listed.problems) >= 2


def test_a_folder_without_a_list_is_refused(folder: Path) -> None:
    (folder / LIST).unlink()
    with pytest.raises(UserError, match="report --bundle"):
        read_listed(folder)
    (folder / LIST).symlink_to(folder.parent / "secret")
    with pytest.raises(UserError, match="plain file"):
        read_listed(folder)
