"""A small release of ListOps, and an evaluator of expressions that shares nothing with the program's."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

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
