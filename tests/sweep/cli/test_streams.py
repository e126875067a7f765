"""Closed, full and unread standard streams: a message, no traceback, and an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.tests.support.records import four_runs
from lr_sweep.tests.support.tiny_study import ROOT

CLOSED = "error: the standard output is closed. Redirect it to a file with room, or to /dev/null"
FULL = "error: cannot write to the standard output: No space left on device. Redirect it to a file with room"
TO_SHELL = """
exec 3>&1
set -o pipefail
{command} {redirected}
echo "code $?" >&3
"""


def told(command: str, redirected: str) -> tuple[int, str]:
    """Run a command in a shell with redirections; return its exit code and what came out of stdout and stderr."""
    line = f"{sys.executable} -m sweep {command}"
    done = subprocess.run(
        ["bash", "-c", TO_SHELL.format(command=line, redirected=redirected)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=180,
    )
    printed, _, code = done.stdout.rpartition("code ")
    return int(code), printed


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams") / "record"
    four_runs(folder)
    return folder


@pytest.mark.parametrize(
    ("redirected", "code", "printed"),
    [(">&-", 2, CLOSED), (">/dev/full", 2, FULL), (">&- 2>&-", 2, ""), (">/dev/full 2>/dev/full", 2, "")],
)
def test_output_that_cannot_be_written_is_an_error(record: Path, redirected: str, code: int, printed: str) -> None:
    found, text = told(f"ls --results {record}", redirected)
    assert found == code
    assert text.startswith(printed)
    assert text.count("\n") == bool(printed)


@pytest.mark.parametrize("redirected", ["| true", "2>&-", "2>/dev/full", "<&-"])
def test_a_command_needs_neither_a_reader_nor_errors_nor_input(record: Path, redirected: str) -> None:
    code, text = told(f"ls --results {record}", redirected)
    assert code == 0
    assert "Traceback" not in text
    assert "Exception ignored" not in text


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(tmp_path: Path, redirected: str) -> None:
    assert told(f"ls --results {tmp_path / 'none'}", redirected) == (2, "")


def test_gc_with_a_closed_input_has_no_terminal_to_ask_at(record: Path) -> None:
    (record / ".x.partial").write_text("x")
    code, text = told(f"gc --results {record}", "<&-")
    assert code == 2
    assert "there is no terminal to ask at" in text


def test_help_too(record: Path) -> None:
    code, text = told("--help", ">/dev/full")
    assert (code, text.startswith(FULL)) == (2, True)
