"""Shared parts of benchmarks: options, tables, and medians of measurements that take turns."""

from __future__ import annotations

import argparse
import platform
import statistics
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Rows = Iterable[Sequence[object]]
"""The rows of a table, the header first."""


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser of a command line whose help is a module's docstring, line by line."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def options(
    text: str | None, arguments: Sequence[str] | None = None, **defaults: Any
) -> argparse.Namespace:
    """Read a command line that has an option for each keyword.

    A number or a text is the option's default. A collection has the possible values, by default all.
    """
    parser = parser_of(text)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, str) or not isinstance(default, Collection):
            parser.add_argument(
                flag, type=type(default), default=default, help=f"default: {default}"
            )
        else:
            parser.add_argument(flag, nargs="+", choices=list(default), default=list(default))
    return parser.parse_args(arguments)


def print_table(rows: Rows) -> list[Sequence[object]]:
    """Print a table as Markdown, each row as soon as it is known, and return its rows."""
    printed = []
    for row in rows:
        cells = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row)
        print(f"| {' | '.join(cells)} |", flush=True)
        if not printed:
            print("|---" * len(row) + "|")
        printed.append(row)
    return printed


def percent(share: float) -> str:
    """Write a share in percent."""
    return f"{100 * share:.1f}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median with the smallest and the largest."""
    median, low, high = (
        f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median} ({low} to {high})"


def ratio_text(over: Sequence[float], under: Sequence[float]) -> str:
    """Return the median ratio of two contenders' rounds, with the smallest and the largest."""
    return spread([dividend / divisor for dividend, divisor in zip(over, under, strict=True)])


def machine(gpu: str = "") -> str:
    """Return the machine that was measured; `gpu`: its name, where it was used."""
    import torch

    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{gpu or _cpu()}, {versions}, {datetime.now(UTC):%Y-%m-%d}"


def _cpu() -> str:
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    lines = [line.partition(":") for line in facts.splitlines()]
    models = [value.strip() for key, _, value in lines if key.strip() == "model name"]
    families = [value.strip() for key, _, value in lines if key.strip() == "cpu family"]
    name = models[0] if models else platform.machine()
    family = f" of family {families[0]}" if families else ""  # a cloud's names hide it
    return f"{name}{family}, {len(models)} cores"
