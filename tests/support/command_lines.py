"""Command lines: read, or carried out in this process."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from lr_sweep.sweep.cli.app import Group, app
from lr_sweep.sweep.cli.parser import main


def arguments_of(line: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a command line by name; raises UserError or typer.TyperException for a mistake."""
    command: Any = typer.main.get_command(app)
    words = list(line)
    while isinstance(command, Group):
        command = command.commands[words.pop(0)]
    return dict(command.make_context("", words).params)


def said(*arguments: str | Path) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed. What it raises would be a traceback."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main([*map(str, arguments)])
    printed = output.getvalue()
    assert code in (0, 1, 2, 3), printed
    assert sum(line.startswith("error: ") for line in printed.splitlines()) == (code == 2), printed
    return code, printed


def succeeds(*arguments: str | Path) -> str:
    """Run a command that must succeed; return what it printed."""
    code, printed = said(*arguments)
    assert code == 0, printed
    return printed


def refused(*arguments: str | Path) -> str:
    """Run a command that cannot be carried out; return what it printed."""
    code, printed = said(*arguments)
    assert code == 2
    assert "Traceback" not in printed  # Ray's log, which a terminal does not show, may have one
    return printed
