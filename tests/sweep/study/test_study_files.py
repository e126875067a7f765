"""Files that are no study: empty, of another kind; garbled ones are in tests/sweep/cli/test_fuzz.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.study_example import STUDY, mistakes


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "- a\n- b\n", "just words\n", "3\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (found,) = mistakes(tmp_path, text)
    assert found.startswith("1: ")
    assert "want a mapping of keys to values" in found


@pytest.mark.parametrize("kind", ["folder", "device", "pipe"])
def test_a_study_that_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "example.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with pytest.raises(UserError, match=r"example\.yaml: it is no plain file; shipped studies"):
        load_study(path)


def test_a_study_file_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    with path.open("wb") as file:
        file.truncate(1_500_001)
    with pytest.raises(UserError, match=r"it has more than 1,500,000 bytes"):
        load_study(path)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_bytes(STUDY.replace("An example", "é").encode("latin-1"))
    with pytest.raises(UserError, match="not a text file in UTF-8"):
        load_study(path)
