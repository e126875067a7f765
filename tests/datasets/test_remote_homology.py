"""Remote homology: the real files where they are, and small made-up ones."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from lr_sweep.datasets import remote_homology
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.datasets.remote_homology import FILES, LETTERS, Options
from lr_sweep.datasets.task import DataError, TaskData
from lr_sweep.tests.support.task_files import require

TRAIN, VALIDATION, TEST = [("ACDB", 3), ("ZYX", 1194), ("AAAAAA", 0)], [("CC", 3)], [("MKVL", 7), ("G", 0)]


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with made-up splits, which count as the known ones."""
    folder = tmp_path / "remote_homology"
    folder.mkdir()
    md5s = {}
    for name, records in zip(FILES.md5s, (TRAIN, VALIDATION, TEST), strict=True):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([("seq", "label"), *records])
        md5s[name] = hashlib.md5((folder / name).read_bytes()).hexdigest()
    monkeypatch.setattr(remote_homology, "FILES", dataclasses.replace(FILES, md5s=md5s))
    return tmp_path


def load(data_dir: Path, **options: Any) -> TaskData:
    return load_checked("remote-homology", remote_homology, Options(**options), data_dir)


def test_real_splits() -> None:
    data_dir = require("remote_homology")
    data = load(data_dir, max_length=1419)
    splits = (data.train, data.validation, data.test)
    assert [len(split) for split in splits] == [12_312, 736, 718]
    assert data.train.labels.unique().tolist() == list(range(1195))
    assert [len(split.labels.unique()) for split in splits[1:]] == [319, 136]
    assert (data.train.inputs == 0).sum() == (1419 - data.train.lengths).sum()  # type: ignore[operator]
    # None is in two splits; one is twice in training.
    assert len({row.tobytes() for split in splits for row in split.inputs.numpy()}) == 12_312 + 736 + 718 - 1
    common = {LETTERS.index(letter) + 1 for letter in "ACDEFGHIKLMNPQRSTVWY"}
    assert {*data.train.inputs.unique().tolist()} == {0} | common


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [12_305, 734, 718]),
        ({"max_length": 1023}, [12_305, 734, 718]),  # "less than 1024": none has 1024
        ({"longer": "cut"}, [12_312, 736, 718]),
    ],
)
def test_real_sequences_that_remain(options: dict[str, Any], sizes: list[int]) -> None:
    data = load(require("remote_homology"), **options)
    assert [len(split) for split in (data.train, data.validation, data.test)] == sizes


def test_real_sequence_by_hand() -> None:
    data_dir = require("remote_homology")
    data = load(data_dir)
    first = (data_dir / "remote_homology/remote_homology_test.csv").read_text().splitlines()[1].split(",")
    length = len(first[0])
    assert "".join(LETTERS[i - 1] for i in data.test.inputs[0, :length]) == first[0]
    assert data.test.inputs[0, length:].max() == 0
    assert data.test.labels[0] == int(first[1])


def test_made_up_files_by_hand(made_up: Path) -> None:
    data = load(made_up, max_length=6)
    # A is 1, B 2, C 3, D 4, and without J, X is 23, Y 24, Z 25.
    assert data.train.inputs.tolist() == [[1, 3, 4, 2, 0, 0], [25, 24, 23, 0, 0, 0], [1, 1, 1, 1, 1, 1]]
    assert data.train.labels.tolist() == [3, 1194, 0]
    assert data.train.lengths is not None
    assert data.train.lengths.tolist() == [4, 3, 6]
    assert data.validation.inputs.tolist() == [[3, 3, 0, 0, 0, 0]]
    assert data.test.labels.tolist() == [7, 0]
    assert data.tokens(data.test.inputs).dtype == torch.int64


def test_longer_sequences_are_dropped_or_cut(made_up: Path) -> None:
    dropped, cut = load(made_up, max_length=4), load(made_up, max_length=4, longer="cut")
    assert dropped.train.inputs.tolist() == [[1, 3, 4, 2], [25, 24, 23, 0]]
    assert cut.train.inputs.tolist() == [[1, 3, 4, 2], [25, 24, 23, 0], [1, 1, 1, 1]]
    assert cut.train.lengths is not None
    assert cut.train.lengths.tolist() == [4, 3, 4]
    with pytest.raises(DataError, match="have more than 1 amino acids: remove the files"):
        load(made_up, max_length=1)


def test_the_files_are_downloaded_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path]] = []
    monkeypatch.setattr(remote_homology, "urlretrieve", lambda url, path: asked.append((url, path)))
    FILES.download(tmp_path)
    assert asked[0] == (f"{remote_homology.URL}/remote_homology/train.csv", tmp_path / "remote_homology_train.csv")
    assert len(asked) == 3
