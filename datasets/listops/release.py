"""Reader of the Long Range Arena's ListOps files: `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv`.

Columns Source and Target: an expression, such as `( ( ( [MAX 2 ) 9 ) ] )`, and its value. Words stand between single
spaces. The round parentheses follow from the tokens: k + 1 open before an operator with k arguments, one closes after
each argument and one after `]`. They are checked, then dropped. Every line is evaluated.
"""

from __future__ import annotations

import hashlib
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lr_sweep.datasets import files
from lr_sweep.datasets.listops.examples import FIRST_DIGIT, FIRST_OPERATOR, VOCABULARY, Examples
from lr_sweep.datasets.task import DataError

NAMES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
"""Training, validation and test file."""
FOLDERS = ("listops", "listops/listops-1000")
"""Where the files may lie below the data directory; the second is how the release unpacks."""
READER_VERSION = 1
"""Raise it when the reader makes other examples of a file, or refuses more: what was read before is then read again."""

_MAX_SHOWN = 3
_FUNCTIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),  # the mean of the middle two, truncated
    "[SM": lambda values: sum(values) % 10,
}
_OPERATION = re.compile(r"(?<!\( )((?:\( )++)(\[(?:MIN|MAX|MED|SM)) ([0-9](?: \) [0-9])*) \) \] \)")
"""An operation on digits: its parentheses, operator and arguments."""


def find(data_dir: Path) -> Path | None:
    """Return the folder with all three files, None without any; raises DataError where only some are there."""
    for folder in (data_dir / name for name in FOLDERS):
        missing = [name for name in NAMES if not (folder / name).is_file()]
        if not missing:
            return folder
        if len(missing) < len(NAMES):
            raise DataError(
                f"listops: {folder} has part of the release, but not {', '.join(missing)}. Add or remove all."
            )
    return None


def checksum(folder: Path) -> str:
    """Return the sha256 over the sha256 of each file."""
    hashes = [files.hash_file(folder / name) for name in NAMES]
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def read(path: Path, max_tree_length: int) -> Examples:
    """Read one file; inputs are (N, max_tree_length) uint8. Raises DataError with the first lines that are unsound."""
    examples: list[tuple[bytes, int]] = []
    problems: list[str] = []
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        columns = file.readline().rstrip("\r\n").split("\t")
        if not {"Source", "Target"} <= set(columns):
            raise DataError(f"{path}, line 1: got columns {columns}, wanted Source, Target")
        for number, line in enumerate(file, start=2):
            cells = dict(zip(columns, line.rstrip("\r\n").split("\t"), strict=False))
            try:
                examples.append(_example(cells.get("Source", ""), cells.get("Target", ""), max_tree_length))
            except ValueError as error:
                problems.append(f"line {number}: {error}")
    if problems:
        more = [f"and {len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else []
        raise DataError(
            f"listops: {len(problems)} of {len(examples) + len(problems)} examples in {path} are not the Long Range "
            "Arena's:\n  "
            + "\n  ".join([*problems[:_MAX_SHOWN], *more])
            + "\nUnpack its lra_release.gz again, or set `source: generated`."
        )
    if not examples:
        raise DataError(f"{path} holds no examples, only a header")
    inputs = np.zeros((len(examples), max_tree_length), dtype=np.uint8)  # (N, T)
    for row_of_ids, (ids, _) in zip(inputs, examples, strict=True):
        row_of_ids[: len(ids)] = np.frombuffer(ids, dtype=np.uint8)
    lengths = np.array([len(ids) for ids, _ in examples], dtype=np.int16)
    return Examples(inputs=inputs, labels=np.array([value for _, value in examples], dtype=np.uint8), lengths=lengths)


def _example(source: str, target: str, max_tree_length: int) -> tuple[bytes, int]:
    ids, value = parse(source)
    if len(ids) >= max_tree_length:
        raise ValueError(f"Source: got {len(ids)} tokens, want fewer than {max_tree_length}")
    if target != str(value):
        raise ValueError(f"Target: got {target[:20]!r}, want '{value}', the value of Source")
    return ids, value


def parse(line: str) -> tuple[bytes, int]:
    """Return token ids, a byte each, and value of an expression.

    Operations on digits are replaced by their values until a digit is left.

    Raises:
        ValueError: it is not an expression as described above; the message has what could not be evaluated.
    """
    left, before = line, ""
    while left != before:
        left, before = _OPERATION.sub(_evaluated, left), left
    if left not in VOCABULARY[FIRST_DIGIT:FIRST_OPERATOR]:
        raise ValueError(f"Source: got {left[:200]!r} after its sound operations were evaluated, want a digit")
    tokens = line.replace("(", "").replace(")", "").split()
    return bytes(map(VOCABULARY.index, tokens)), int(left)


def _evaluated(operation: re.Match[str]) -> str:
    """Return an operation's value, or the operation as it is if the number of its parentheses is wrong."""
    parentheses, operator, arguments = operation.groups()
    values = [int(digit) for digit in arguments.split(" ) ")]
    has_all = parentheses.count("(") == len(values) + 1
    return str(_FUNCTIONS[operator](values)) if has_all else operation[0]
