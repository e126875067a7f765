"""Tables of a few rows, judged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.study_summary import Study


def judge(paths: Sequence[str | Path], reading: Reading) -> Study:
    return judged(paths, reading).study


def study_of(folder: Path, text: str, reading: Reading | None = None, name: str = "table.csv") -> Study:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return judge([path], reading or Reading())


def rows_of(head: str, rows: Sequence[str] | str) -> str:
    """Return a table; rows in one text are separated by blanks."""
    return "\n".join([head, *(rows.split() if isinstance(rows, str) else rows), ""])


def chosen(study: Study) -> dict[str, tuple[float, float]]:
    cells = study.summary.cells.to_dict("records")
    return {cell["variant"]: (cell["learning_rate"], round(cell["test_mean"], 6)) for cell in cells}


def shown(study: Study) -> str:
    """Return the chosen rate and its value by variant, as `a 0.1 0.75, b 0.01 0.5`."""
    return ", ".join(f"{name} {rate:g} {value:g}" for name, (rate, value) in chosen(study).items())


def cases(text: str) -> list[ParameterSet]:
    """Return cases for `parametrize`, a line each, with its indented lines: a name, and fields behind bars."""
    lines = re.sub(r"\n +", " ", text).strip("\n").splitlines()
    split = ([field.strip(" ") for field in re.split(r" \|(?: |$)", line)] for line in lines)
    return [pytest.param(*fields, id=name) for name, *fields in split]


def contents_of(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """Return the size of every file below a folder, when it was written, and a checksum of its first 10 MB."""
    found = {}
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        with path.open("rb") as file:
            digest = hashlib.sha256(file.read(10_000_000)).digest()
        found[path] = path.stat().st_size, path.stat().st_mtime_ns, digest
    return found
