"""A claimed report beside the one that its runs give: texts, numbers and figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import zip_longest

from lr_sweep.common.files import ReadFields

from .bundle import PLANNED, RECORD, RULE, VERSIONS

NUMBER = re.compile(r"(?<![\w.])(?<!\w-)\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
IMAGE = re.compile(r"data:image/[a-z+]+;base64,[\w+/=]*", re.ASCII)
CLOSE = 1e-6
"""Largest relative difference of equal numbers; another CPU adds in another order."""
SHOWN = 60
"""Characters that are shown of a text that differs."""


def count_numbers(computed: ReadFields) -> int:
    """Count the numbers of a report's tables, which are CSV files."""
    tables = [content for name, content in computed.items() if name.endswith(".csv")]
    return sum(len(NUMBER.findall(content.decode())) for content in tables)


def report_problems(claimed: ReadFields, computed: ReadFields) -> Iterator[str]:
    """Yield what the texts of a bundle say and its runs do not; both by name, as bytes."""
    has_figures = claimed.get(VERSIONS) == computed[VERSIONS]
    others = {name for name in claimed if name.partition("/")[0] not in (RULE, RECORD)}
    for name in sorted((others | computed.keys()) - {VERSIONS, PLANNED}):
        texts = [_text(files.get(name, b""), has_figures) for files in (claimed, computed)]
        yield from (f"{name}: {difference}" for difference in _differences(*texts))


def _text(content: bytes, has_figures: bool) -> str:
    text = content.decode(errors="replace")
    return text if has_figures else IMAGE.sub("", text)


def _differences(claimed: str, computed: str) -> Iterator[str]:
    """Yield the first line that differs."""
    for one, other in zip_longest(claimed.splitlines(), computed.splitlines(), fillvalue=""):
        if not _same(one, other):
            differs = [a != b for a, b in zip(one, other, strict=False)]
            start = max(0, [*differs, True].index(True) - SHOWN // 2)
            got, want = (line[start : start + SHOWN] for line in (one, other))
            yield f"got {got!r}, the runs give {want!r}"
            return


def _same(one: str, other: str) -> bool:
    """Return whether two lines have the same words, and numbers that are equal up to rounding."""
    if one == other:
        return True
    numbers = [[float(number) for number in NUMBER.findall(line)] for line in (one, other)]
    if len(numbers[0]) != len(numbers[1]) or NUMBER.sub("", one) != NUMBER.sub("", other):
        return False
    return all(math.isclose(*pair, rel_tol=CLOSE) for pair in zip(*numbers, strict=True))
