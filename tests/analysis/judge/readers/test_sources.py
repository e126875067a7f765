"""Several files, patterns and DataFrames, each with the name of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.tables import texts_of


def test_files_by_a_pattern_have_their_paths_and_the_settings_beside_them(tmp_path: Path) -> None:
    for folder, rate in {"adam/0": 0.1, "adam/1": 0.2, "sgd/0": 0.3}.items():
        (home := tmp_path / folder).mkdir(parents=True)
        (home / "config.json").write_text(f'{{"lr": {rate}, "net": {{"width": 8}}}}')
        (home / "curve.csv").write_text("acc\n1\n")
    tables = read_sources([str(tmp_path / "*" / "*" / "curve.csv")])
    columns = {name: [texts_of(table)[name][0] for table in tables] for name in texts_of(tables[0])}
    assert columns == {
        "file": ["adam/0/curve", "adam/1/curve", "sgd/0/curve"],
        "config.lr": ["0.1", "0.2", "0.3"],
        "config.net.width": ["8"] * 3,
        "acc": ["1"] * 3,
    }
    with pytest.raises(UserError, match="no file fits .*tsv: name a table"):
        read_sources([str(tmp_path / "*.tsv")])


def test_files_of_one_folder_have_their_stems_and_no_settings_of_all(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    for name in ("mnist", "svhn"):
        (tmp_path / f"{name}.csv").write_text("acc\n1\n")
    mnist, svhn = read_sources([tmp_path / "mnist.csv", tmp_path / "svhn.csv"])
    assert texts_of(mnist)["file"] == ["mnist"]
    assert "config.lr" not in texts_of(svhn)


def test_several_folders_keep_their_runs_apart(tmp_path: Path) -> None:
    for home in ("a/0", "b/0"):
        (tmp_path / home).mkdir(parents=True)
        (tmp_path / home / "params.json").write_text('{"lr": 0.1}')
        (tmp_path / home / "log.csv").write_text("acc\n1\n")
    tables = read_sources([tmp_path / "a", tmp_path / "b"])
    assert [(texts_of(table)["folder"], texts_of(table)[table.known["run"]]) for table in tables] == [
        (["a"], ["a/0"]),
        (["b"], ["b/0"]),
    ]
