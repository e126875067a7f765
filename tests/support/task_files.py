"""Files of tasks: a small release of ListOps, those of a made-up task, and where real ones are."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest

from lr_sweep.datasets.files import RemoteFiles

LINES = {
    "basic_train.tsv": ["( ( ( [MAX 2 ) 9 ) ] )\t9", "( ( ( [SM 1 ) ( ( ( [MIN 5 ) 4 ) ] ) ) ] )\t5"],
    "basic_val.tsv": ["( ( ( [MED 1 ) 4 ) ] )\t2"],
    "basic_test.tsv": ["( ( ( [MIN 3 ) 4 ) ] )\t3"],
}


def write_release(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, lines in LINES.items():
        # csv.writer, which wrote the release, ends lines with \r\n
        (folder / name).write_bytes("\r\n".join(["Source\tTarget", *lines, ""]).encode())


def evaluate(tokens: list[str]) -> int:
    """Value of an expression, with a stack of argument lists; fails on anything malformed."""
    functions: dict[str, Callable[[list[int]], int]] = {
        "[MIN": min,
        "[MAX": max,
        "[MED": lambda x: int(statistics.median(x)),
        "[SM": lambda x: sum(x) % 10,
    }
    stack: list[list] = [[]]
    for token in tokens:
        if token in functions:
            stack.append([token])
        elif token == "]":
            operator, *arguments = stack.pop()
            assert 2 <= len(arguments) <= 10
            stack[-1].append(functions[operator](arguments))
        else:
            stack[-1].append(int(token))
    [[value]] = stack
    return value


CONTENT = {"raw/a.bin": b"first", "raw/b.bin": b"second"}


def write_files(folder: Path) -> None:
    for name, content in CONTENT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def in_four_processes(target: Callable[..., object], *arguments: object) -> None:
    """Call a function in four forks at once, which passes local functions and patches on."""
    processes = [multiprocessing.get_context("fork").Process(target=target, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4


def no_network(folder: Path) -> None:
    raise URLError("Name or service not known")


REMOTE = RemoteFiles(
    task="toy",
    md5s={name: hashlib.md5(content).hexdigest() for name, content in CONTENT.items()},
    download=write_files,
    by_hand="copy the files to {folder}.",
)
OFFLINE = dataclasses.replace(REMOTE, download=no_network)


def require(*paths: str) -> Path:
    """Return the data directory; skips the test if it isn't named or lacks one of `paths`."""
    configured = os.environ.get("SWEEP_DATA_DIR")
    if not configured:
        pytest.skip("needs real data: SWEEP_DATA_DIR is not set")
    missing = [path for path in paths if not (Path(configured) / path).exists()]
    if missing:
        pytest.skip(f"needs real data: {configured} has no {', '.join(missing)}")
    return Path(configured)
