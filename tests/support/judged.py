"""Tables of a few rows, judged; scripts that write some; runs with a known best rate, as other tools write them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
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


def run_script(text: str, *arguments: str, folder: Path) -> None:
    command = [sys.executable, "-c", text, *arguments]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=one_thread, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def contents_of(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """Return the size of every file below a folder, when it was written, and a checksum of its first 10 MB."""
    found = {}
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        with path.open("rb") as file:
            digest = hashlib.sha256(file.read(10_000_000)).digest()
        found[path] = path.stat().st_size, path.stat().st_mtime_ns, digest
    return found


RATES = (1e-3, 1e-2, 1e-1)
BEST = {"a": 1e-2, "b": 1e-1}
RUNS = list(product("ab", RATES, (0, 1)))


def accuracy(variant: str, rate: float, seed: int) -> float:
    """Worked out by hand: 0.75 and 0.875 at the best rate, with a seed's eighth of 0.25."""
    return 0.5 + (0.25 if rate == BEST[variant] else 0.0) + 0.125 * (variant == "b") - 0.0625 * seed


def assert_found(study: Study, reader: str = "", steps: bool = False) -> None:
    """Each variant is best at its rate, at 0.71875 and 0.84375."""
    assert chosen(study) == {"a": (1e-2, 0.71875), "b": (1e-1, 0.84375)}
    assert study.summary.runs.groupby("variant")["seed"].nunique().tolist() == [2, 2]
    assert any(reader in line for line in study.about_table), study.about_table
    assert not steps or set(study.summary.runs["best_step"]) == {2}
