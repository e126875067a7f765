"""Files as columns of text: comments, marks and layouts around the same table."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.readers.files import read_file
from lr_sweep.common.errors import UserError

LAYOUTS = {
    "comments": "# made by a script\n# on Monday\n\nlr,val_loss\n0.1,5\n# half of them\n0.2,6\n# the end\n",
    "names in a comment": "# a sweep\n# lr val_loss\n0.1 5\n\n\n0.2 6\n",
    "blanks": "lr   val_loss\n0.1       5\n\n\n0.2       6  \n",
    "bars": "| lr | val_loss |\n|---:|:---|\n| 0.1 | 5 |\n|\n| 0.2 | 6 |\n",
    "a mark and comments": "sep=;\n# by hand\nlr;val_loss\n0.1;5\n\n0.2;6\n",
    "a mark that is blank": "sep=\t\r\nlr\tval_loss\r\n0.1\t5\r\n\r\n0.2\t6\r\n",
    "a mark in a comment's place": "#run\tnone\nlr\tval_loss\n0.1\t5\n\n0.2\t6\n",
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.txt").write_text(text)
    table = read_file(tmp_path / "table.txt")
    found = {name: [value.strip() for value in values] for name, values in table.columns.items()}
    assert found == {"lr": ["0.1", "0.2"], "val_loss": ["5", "6"]}
    lines = text.splitlines()
    assert [lines[line.number - 1].strip("| ")[:3] for line in table.lines] == ["0.1", "0.2"]


def test_a_spreadsheets_encoding_and_a_compressed_file(tmp_path: Path) -> None:
    text = "größe,lr,val_loss\nklein,0.1,5\ngroß,0.2,6\n"
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.csv", "b.csv.gz"):
        columns = read_file(tmp_path / name).columns
        assert columns == {"größe": ["klein", "groß"], "lr": ["0.1", "0.2"], "val_loss": ["5", "6"]}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(b"lr,val_loss\n" * 1000)[:-9], "cannot be read .Compressed file ended"),
        (gzip.compress(bytes(100_000_001)), "has more than 100,000,000 bytes"),
        (b"\x1f\x8b\x00 no gzip", "cannot be read"),
        (b"PK\x03\x04 a workbook", "cannot be read"),
        (b"lr,val_loss\n\xff\x00,1\n", "is no text in UTF-8"),
    ],
    ids=["cut", "large", "no gzip", "a workbook", "bytes"],
)
def test_what_is_no_table(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "table").write_bytes(content)
    with pytest.raises(UserError, match=problem):
        read_file(tmp_path / "table")
