"""The program's name in messages: what the user typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.common.program import command
from lr_sweep.datasets import files
from lr_sweep.tests.support.tiny_study import ROOT
from lr_sweep.tests.support.toy_files import OFFLINE


def test_a_printed_command_can_be_pasted() -> None:
    assert command("ui", "--results", "results") == "lr-sweep ui --results results"
    assert command("ui", "--results", "my dir/$x") == "lr-sweep ui --results 'my dir/$x'"
    assert files._command(OFFLINE, Path("/my data")) == "lr-sweep data toy --data-dir '/my data'"


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        (["-m", "sweep"], "python -m sweep"),
        (["-m", "lr_sweep.sweep"], "python -m lr_sweep.sweep"),
        (["-c", "from lr_sweep.sweep.cli.parser import main; main()"], "lr-sweep"),  # as the console script does
    ],
)
def test_help_names_what_was_typed(typed: list[str], name: str) -> None:
    done = subprocess.run(
        [sys.executable, *typed, "gc", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"usage: {name} gc ")
    assert f"example:\n  {name} gc --only" in done.stdout


@pytest.mark.parametrize(
    ("chosen", "policy", "spins_briefly"),
    [(None, "PASSIVE", True), ("PASSIVE", "PASSIVE", False), ("ACTIVE", "ACTIVE", False)],
)
def test_threads_of_torch_soon_sleep_unless_the_user_says_otherwise(
    chosen: str | None, policy: str, spins_briefly: bool, tmp_path: Path
) -> None:
    code = (
        "import sys; from lr_sweep.sweep.cli.parser import main; main(sys.argv[1:]); import torch; torch.ones(3).sum()"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE"} | ({"OMP_WAIT_POLICY": chosen} if chosen else {})
    command = [sys.executable, "-c", code, "ls", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    assert f"OMP_WAIT_POLICY = '{policy}'" in done.stderr  # of the OpenMP that torch has loaded
    assert ("GOMP_SPINCOUNT = '3000'" in done.stderr) is spins_briefly
