from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.claims.listing import (
    LIST,
    differences,
    lines_of,
    read_files,
    write_listed,
)

COMPUTED = {
    "report/runs.csv": b"a beats b-2 by 1.5 points (p 2e-08)\n",
    "report/index.html": b'<img src="data:image/png;base64,AAAA"> 94.61\n',
    "README.md": b"of 5 runs\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("of the reader")
    write_listed(tmp_path / "claim", {"rule/train.py": b"x = 1\n"})
    return tmp_path / "claim"


def test_a_list_is_one_of_sha256sum(folder: Path) -> None:
    assert subprocess.run(["sha256sum", "-c", LIST], cwd=folder, check=False).returncode == 0
    listed, contents = read_files(folder)
    assert contents == {"rule/train.py": b"x = 1\n"}
    assert listed.decode().splitlines() == lines_of(contents)


@pytest.mark.parametrize("name", ["link", "linked/secret"])
def test_nothing_outside_of_the_folder_is_read(folder: Path, name: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "linked").symlink_to(folder.parent)
    assert (folder / name).read_text() == "of the reader"
    assert read_files(folder)[1].keys() == {"rule/train.py"}


def test_a_folder_without_a_list_is_refused(folder: Path) -> None:
    (folder / LIST).unlink()
    with pytest.raises(UserError, match="report --bundle"):
        read_files(folder)
    (folder / LIST).symlink_to(folder.parent / "secret")
    with pytest.raises(UserError, match="report --bundle"):
        read_files(folder)


def differing(**changes: bytes) -> list[str]:
    files = {"csv": "report/runs.csv", "html": "report/index.html", "readme": "README.md"}
    claimed = COMPUTED | {files.get(name, name): content for name, content in changes.items()}
    return [problem.partition(":")[0] for problem in differences(claimed, COMPUTED)]


def test_a_number_is_compared_up_to_rounding_and_a_word_as_it_is() -> None:
    assert differing() == []
    assert differing(csv=b"a beats b-2 by 1.5000001 points (p 2e-08)\n") == []
    assert differing(csv=b"a beats b-2 by 1.50001 points (p 2e-08)\n") == ["report/runs.csv"]
    assert differing(csv=b"a beats b-3 by 1.5 points (p 2e-08)\n") == ["report/runs.csv"]
    assert differing(csv=b"a beats b-2 by 1.5 points (p 2e-08)\nb is worse\n") == ["report/runs.csv"]
    assert differing(readme=b"of 6 runs\n", more=b"text") == ["README.md", "more"]


def test_figures_are_not_compared() -> None:
    page = b'<img src="data:image/png;base64,BBBB"> 94.61\n'
    assert differing(html=page) == []
    assert differing(html=page.replace(b"94.61", b"95.61")) == ["report/index.html"]
    assert differing(html=page.replace(b'"> 9', b'"> wins 9')) == ["report/index.html"]
