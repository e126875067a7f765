"""Full and unread standard output: a message, no traceback, and an exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.sweep.cli.options import folded
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.records import SyntheticRecord, four_runs
from lr_sweep.tests.support.tiny_study import ROOT

FULL = "error: No space left on device\n"
TO_SHELL = """
exec 3>&1
set -o pipefail
{command} {redirected}
echo "code $?" >&3
"""


def said(command: str, redirected: str) -> tuple[int, str]:
    """Run a command in a shell with redirections; return its exit code and what came out of stdout and stderr."""
    line = command.replace("sweep ", f"{sys.executable} -m sweep ", 1)
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


@pytest.mark.parametrize("command", ["ls", "--help"])
def test_output_that_cannot_be_written_is_an_error(record: Path, command: str) -> None:
    where = f" --results {record}" if command == "ls" else ""
    assert said(f"sweep {command}{where}", ">/dev/full") == (2, FULL)


def test_a_command_needs_no_reader(record: Path) -> None:
    code, text = said(f"sweep ls --results {record}", "| true")
    assert (code, text) == (0, "")


def test_gc_with_a_closed_input_has_no_terminal_to_ask_at(record: Path) -> None:
    (record / ".x.partial").write_text("x")
    code, text = said(f"sweep gc --results {record}", "<&-")
    assert code == 2
    assert "there is no terminal to ask at" in text


def test_a_limit_of_the_size_of_files_is_no_fault_of_the_output(record: Path, tmp_path: Path) -> None:
    target = tmp_path / "all.csv"
    code, text = said(f"ulimit -f 0; sweep export {target} --results {record}", "")
    assert code == 2
    assert text.startswith(f"error: cannot write to {target}: File too large. Raise the limit of the size of files")


def test_prose_fits_a_terminal_and_what_is_copied_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    for whole in ("variant  1e-3  1e-2  1e-1", "  lr-sweep plan mine.yaml", "report     a-path/without-blank"):
        assert folded(whole) == whole
    assert folded("mine: adamw leads sgd by far\n") == "mine: adamw leads\n  sgd by far\n"
    assert folded("run next  adamw at 1e-3 has no seeds") == "\n".join(
        ["run next  adamw at", "          1e-3 has", "          no seeds"]
    )
    assert folded("  problem: adamw is never trained") == "  problem: adamw is\n    never trained"


LONG = ("adamw-with-decoupled-decay-001", "sgd-with-nesterov-momentum-090")


@pytest.mark.parametrize("command", ["status small", "ls", "show RUN", "plan mine.yaml"])
def test_what_is_read_of_a_study_fits_sixty_columns(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With names of 30 characters; paths and checksums alone stay whole."""
    made = SyntheticRecord(tmp_path / "results")
    run_id, _ = (made.add(1e-3, 0, [(300, 0.5, 0.5)], variant=variant) for variant in LONG)
    made.write()
    rates = {"learning_rates": "{low: 1e-6, high: 1, per_decade: 4}", "seeds": "30"}
    write_function(tmp_path, "pass", variants=json.dumps({variant: {} for variant in LONG}), **rates)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(command.replace("RUN", run_id).split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 60 and "/" not in line] == []
    assert any(LONG[0] in line for line in lines)


def test_errors_fit_the_terminal() -> None:
    """In a pipe they are one line: `test_as_a_user_starts_it`."""
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "lr_sweep.sweep", "plan", "quikstart"]
    with subprocess.Popen(command, stderr=secondary, env=os.environ | {"COLUMNS": "60"}, text=True):
        lines = os.read(primary, 4000).decode().splitlines()
    os.close(primary)
    os.close(secondary)
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines).startswith("error: unknown study 'quikstart'; did you mean 'quick")
