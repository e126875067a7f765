"""Numbers and names as the terminal shows them; YAML of any declared version by the rules of 1.2, without a warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from lr_sweep.analysis.judge.readers.nested import yaml_content
from lr_sweep.common.files import load_yaml
from lr_sweep.common.text import failure_line, fitted, rate_text, study_heading, without_escapes
from lr_sweep.sweep.study.file import read_yaml


@given(st.floats(1e-9, 10).map(lambda rate: float(f"{rate:.5e}")))
def test_a_learning_rate_of_six_digits_reads_back(rate: float) -> None:
    text = rate_text(rate)
    assert float(text) == rate
    assert "e" in text
    assert "e-0" not in text
    assert ".0e" not in text


def test_a_study_that_has_no_title_is_named_once() -> None:
    assert study_heading("small", "A small study") == "small: A small study"
    assert study_heading("small", "small") == "small"


def test_a_table_that_a_terminal_would_break_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has 15 characters; a pipe gets the table whole."""
    rows = [("run", "seed", "of"), ("a", "0", "-"), ("b", "1", "mine")]
    table = ["run  seed  of", "a    0     -", "b    1     mine"]
    monkeypatch.setenv("COLUMNS", "14")
    assert fitted(rows, 1) == table
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert fitted(rows, 1) == ["a", "  seed 0", "b", "  seed 1, of mine"]
    monkeypatch.setenv("COLUMNS", "15")
    assert fitted(rows, 1) == table


@pytest.mark.parametrize("failure", [None, "", float("nan")])
def test_a_failure_may_have_no_reason(failure: str | None) -> None:
    assert failure_line(failure) == "no reason given"


def test_colours_titles_and_control_characters_are_in_no_text() -> None:
    text = "\x1b[1;31mLoss\x1b[0m is\x1b]0;title\x07 n\x08an,\ta \x1b]8;;http://x\x1b\\link\x9b\nè\x1b[2K end"
    assert without_escapes(text) == "Loss is nan,\ta link\nè end"
    assert failure_line("Most recent call last:\n  File\n\x1b[31mValueError: no") == "ValueError: no"


VALUES = {"time": "1:30", "rate": 1e-3, "number": 10, "word": "yes"}
BODY = "---\ntime: 1:30\nrate: 1e-3\nnumber: 010\nword: yes\n"


@pytest.mark.parametrize("first", ["", "%YAML 1.2\n", "%YAML 1.1\n", "\ufeff%YAML 1.1\n"])
@pytest.mark.parametrize("read", ["text", "file", "study", "settings"])
def test_every_reader_reads_version_1_2(tmp_path: Path, first: str, read: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(first + BODY, encoding="utf-8")
    readers = {"text": lambda: load_yaml(first + BODY), "file": lambda: load_yaml(path)}
    readers |= {"study": lambda: read_yaml(first + BODY), "settings": lambda: yaml_content(path.read_text())}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert readers[read]() == VALUES


def test_a_text_that_speaks_of_a_version_stays() -> None:
    text = "note: |\n  %YAML 1.1 is old\n"
    assert load_yaml(text) == YAML(typ="safe").load(text) == {"note": "%YAML 1.1 is old\n"}
