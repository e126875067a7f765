"""The listing of a table that names leave open: as text, as JSON, and from the gate."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judged import cases, rows_of

ROWS = [
    f"{name},{width},{'' if name == 'free' else rate},12,{0.5 + number / 64}"
    for number, (name, width, rate) in enumerate(product(("adam", "sgd", "free"), (8, 16), (0.1, 0.01)))
]
TEXT = """\
error: t.csv: 12 rows, 5 columns
  #1   optimizer  3 values    variant? adam, sgd, free
  #2   width      2 values    8, 16
  #3   lr         2 values    learning_rate? 0.1, 0.01; empty in 4 rows, all optimizer=free
  #5   val_acc    12 values   validation? 0.5, 0.515625, 0.53125
  #4   depth      1 value     12
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(rows_of("optimizer,width,lr,depth,val_acc", ROWS))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 2
    found = capsys.readouterr()
    return found.out or found.err


def test_the_text_has_each_column_what_is_in_doubt_and_a_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "judge", "t.csv")
    assert text.startswith(TEXT)
    assert "width (2 values)" in text
    command = "judge t.csv --columns variant=optimizer,learning_rate=lr,validation=val_acc,...=width\n"
    assert text.endswith(command)
    assert not Path("judged").exists()


def test_the_json_says_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "judge", "t.csv", "--json"))
    lines = {line.pop("name"): line for line in found["columns"]}
    assert found["num_rows"] == 12
    assert lines["lr"] == {
        **{"position": 3, "num_values": 2, "samples": ["0.1", "0.01"], "suggests": "learning_rate"},
        **{"num_empty": 4, "empty_where": "optimizer=free", "parts": []},
    }
    assert found["options"].endswith("...=width")
    assert len(found["doubts"]) == 1


ABOUT = cases("""
a grid | width,kind,score | 1,4,1 1,5,2 2,4,3 2,5,4 3,4,5 3,5,6 | width x kind: 3 x 2 = 6 of 6 rows: a grid
no grid | width,kind,score | 1,4,1 1,4,2 2,4,3 2,5,4 1,4,5 | width x kind: 2 x 2 = 4 of 5 rows
repeats | width,kind,score | 1,4,1 1,4,2 2,4,3 2,5,4 1,4,5 | width, kind: 1 to 3 rows
drawn | lr,seed,score | 0.11,0,1 0.12,0,2 0.13,0,3 0.14,1,4 | 4 values of lr in 4 rows: drawn
alike | name,width,lr | a,1,5 b,2,5 c,1,5 d,2,4 | rows 1 and 3 differ in name alone
""")


@pytest.mark.parametrize(("head", "rows", "line"), ABOUT)
def test_what_rows_show_together(
    folder: Path, capsys: pytest.CaptureFixture[str], head: str, rows: str, line: str
) -> None:
    Path("t.csv").write_text(rows_of(head, rows))
    assert line in printed(capsys, "judge", "t.csv")


def test_of_40_columns_the_30_that_vary_first_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = ",".join(f"x{place}" for place in range(40))
    rows = [",".join(str(row if place % 2 else 7) for place in range(40)) for row in (1, 2)]
    Path("wide.csv").write_text(rows_of(head, rows))
    shown = [line.split()[1] for line in printed(capsys, "judge", "wide.csv").splitlines() if line.startswith("  #")]
    odd, even = [f"x{place}" for place in range(1, 40, 2)], [f"x{place}" for place in range(0, 40, 2)]
    assert shown == [*odd, *even[:10]]
    assert len(json.loads(printed(capsys, "judge", "wide.csv", "--json"))["columns"]) == 40


def test_long_names_and_texts_are_cut(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{letter * 9000},{letter}\x1b[2J" for letter in "abc"]
    Path("t.csv").write_text(rows_of(f"{'n' * 9000},note", rows))
    text = printed(capsys, "judge", "t.csv")
    assert max(map(len, text.partition("What is in doubt")[0].splitlines())) < 200
    assert "\x1b" not in text


def test_the_gate_lists_with_its_own_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text(rows_of("seed,val_score", [f"{seed},{5 + seed % 3}" for seed in range(20)]))
    text = printed(capsys, "gate", "base.json", "t.csv", "--accept")
    command = text.rpartition("lr-sweep gate ")[2].replace("...", "val_score").split()
    assert command[:3] == ["base.json", "t.csv", "--accept"]
    assert main(["gate", *command, "--lower-is-better"]) == 0
    assert Path("base.json").exists()
