"""Files as columns of text: comments, marks and layouts around the same table."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.judge.table_file import read_table_file

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
    table = read_table_file(tmp_path / "table.txt")
    found = {name: [value.strip() for value in values] for name, values in table.columns.items()}
    assert found == {"lr": ["0.1", "0.2"], "val_loss": ["5", "6"]}
    lines = text.splitlines()
    assert [lines[line - 1].strip("| ")[:3] for line in table.lines] == ["0.1", "0.2"]
