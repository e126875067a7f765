"""YAML of any declared version by the rules of 1.2, without a warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lr_sweep.analysis.judge.readers.folders import yaml_mapping
from lr_sweep.common.yaml_text import load_yaml
from lr_sweep.sweep.study.file import read_yaml

VALUES = {"time": "1:30", "rate": 1e-3, "number": 10, "word": "yes"}
BODY = "---\ntime: 1:30\nrate: 1e-3\nnumber: 010\nword: yes\n"


@pytest.mark.parametrize("first", ["", "%YAML 1.2\n", "%YAML 1.1\n", "\ufeff%YAML 1.1\n"])
@pytest.mark.parametrize("read", ["text", "file", "study", "settings"])
def test_every_reader_reads_version_1_2(tmp_path: Path, first: str, read: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(first + BODY, encoding="utf-8")
    readers = {"text": lambda: load_yaml(first + BODY), "file": lambda: load_yaml(path)}
    readers |= {"study": lambda: read_yaml(first + BODY), "settings": lambda: yaml_mapping(path)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert readers[read]() == VALUES


def test_a_text_that_speaks_of_a_version_stays() -> None:
    text = "note: |\n  %YAML 1.1 is old\n"
    assert load_yaml(text) == YAML(typ="safe").load(text) == {"note": "%YAML 1.1 is old\n"}
