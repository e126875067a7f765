"""Remote homology: the real files where they are, and small made-up ones in either form."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lr_sweep.datasets import remote_homology
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.datasets.remote_homology import CSV_FILES, JSON_FILES, LETTERS, Options
from lr_sweep.datasets.task import DataError, TaskData
from lr_sweep.tests.support.task_files import require

TRAIN, VALIDATION, TEST = [("ACDB", 3), ("ZYX", 1194), ("AAAAAA", 0)], [("CC", 3)], [("MKVL", 7), ("G", 0)]
SPLITS = (TRAIN, VALIDATION, TEST)


def write_csv(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the made-up splits as CSV, and make these files the known ones."""
    folder = made_up_folder(data_dir, monkeypatch)
    hashes = {}
    for name, records in zip(CSV_FILES, SPLITS, strict=True):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([("seq", "label"), *records])
        hashes[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    monkeypatch.setattr(remote_homology, "CSV_FILES", hashes)
    return folder


def write_json(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the made-up splits with TAPE's names and keys."""
    folder = made_up_folder(data_dir, monkeypatch)
    for name, records in zip(JSON_FILES, SPLITS, strict=True):
        objects = [{"id": "d1", "primary": letters, "class_label": 1, "fold_label": fold} for letters, fold in records]
        (folder / name).write_text(json.dumps(objects))
    return folder


def made_up_folder(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(remote_homology, "SIZES", tuple(map(len, SPLITS)))
    folder = data_dir / "remote_homology"
    folder.mkdir(exist_ok=True)
    return folder


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
    assert remote_homology.origin(Options(), data_dir) == "TAPE (CSV)"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_made_up_files_by_hand(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path, monkeypatch) if form == "json" else write_csv(tmp_path, monkeypatch)
    data = load(tmp_path, max_length=6)
    # A is 1, B 2, C 3, D 4, and without J, X is 23, Y 24, Z 25.
    assert data.train.inputs.tolist() == [[1, 3, 4, 2, 0, 0], [25, 24, 23, 0, 0, 0], [1, 1, 1, 1, 1, 1]]
    assert data.train.labels.tolist() == [3, 1194, 0]
    assert data.train.lengths is not None
    assert data.train.lengths.tolist() == [4, 3, 6]
    assert data.validation.inputs.tolist() == [[3, 3, 0, 0, 0, 0]]
    assert data.test.labels.tolist() == [7, 0]
    assert data.tokens(data.test.inputs).dtype == torch.int64
    assert remote_homology.origin(Options(), tmp_path) == f"TAPE ({form.upper()})"


def test_longer_sequences_are_dropped_or_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path, monkeypatch)
    dropped, cut = load(tmp_path, max_length=4), load(tmp_path, max_length=4, longer="cut")
    assert dropped.train.inputs.tolist() == [[1, 3, 4, 2], [25, 24, 23, 0]]
    assert cut.train.inputs.tolist() == [[1, 3, 4, 2], [25, 24, 23, 0], [1, 1, 1, 1]]
    assert cut.train.lengths is not None
    assert cut.train.lengths.tolist() == [4, 3, 4]
    with pytest.raises(DataError, match=r"train\.json have more than 2 amino acids\. Raise max_length"):
        remote_homology.fetch(Options(max_length=2), tmp_path)


def test_the_checksum_follows_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options()
    folder = write_json(tmp_path, monkeypatch)
    seen = [remote_homology.checksum(options, tmp_path)]
    (folder / JSON_FILES[2]).write_text((folder / JSON_FILES[2]).read_text() + "\n")
    seen.append(remote_homology.checksum(options, tmp_path))
    write_csv(tmp_path, monkeypatch)  # preferred
    seen.append(remote_homology.checksum(options, tmp_path))
    assert len(set(seen)) == 3
    assert seen[2] == remote_homology.checksum(options, tmp_path / "elsewhere")  # what is wanted where there is nothing


def test_missing_files_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError) as raised:
        load(tmp_path)
    folder = tmp_path / "remote_homology"
    assert str(raised.value) == (
        f"remote-homology: got no files in {folder}, want remote_homology_train.json, remote_homology_valid.json, "
        "remote_homology_test_fold_holdout.json. Get http://s3.amazonaws.com/songlabdata/proteindata/data_raw_pytorch/"
        "remote_homology.tar.gz (JSON), unpack it, and put these three there."
    )
    write_json(tmp_path, monkeypatch)
    (folder / JSON_FILES[1]).unlink()
    with pytest.raises(DataError, match=r"got remote_homology_test_fold_holdout\.json, remote_homology_train\.json in"):
        load(tmp_path)


def test_lmdb_is_refused(tmp_path: Path) -> None:
    for name in ("train", "valid", "test_fold_holdout"):
        (tmp_path / f"remote_homology/remote_homology_{name}.lmdb").mkdir(parents=True)
    with pytest.raises(DataError, match=r"LMDB files hold pickles, which are never loaded\. Get http"):
        load(tmp_path)


def test_another_csv_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path, monkeypatch) / "remote_homology_test.csv"
    path.write_text(path.read_text().replace("MKVL", "MKVI"))
    with pytest.raises(DataError, match=r"remote_homology_test\.csv is not the known file: its sha256 is"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[", "got JSONDecodeError"),
        ("7", "got TypeError"),
        ('[{"primary": "A"}]', r"got KeyError \('fold_label'\)\. It is to be a list of 1 objects"),
        ("[]", "got ValueError .0 sequences, want 1"),
        ('[{"primary": "AJ", "fold_label": 1}]', "sequence 1: 'AJ', want letters out of ABCDEFGHIKLMNOPQRSTUVWXYZ"),
        ('[{"primary": "", "fold_label": 1}]', "sequence 1: '', want letters"),
        ('[{"primary": null, "fold_label": 1}]', "sequence 1: 'None', want letters"),
        ('[{"primary": "A", "fold_label": 1195}]', "sequence 1: the fold 1195, want 0 to 1194"),
        ('[{"primary": "A", "fold_label": true}]', "sequence 1: the fold True, want 0 to 1194"),
    ],
)
def test_bad_json_is_refused(text: str, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (write_json(tmp_path, monkeypatch) / "remote_homology_valid.json").write_text(text)
    with pytest.raises(DataError, match=want):
        load(tmp_path)
