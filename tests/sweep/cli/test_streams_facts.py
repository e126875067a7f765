"""Lines of facts on a terminal."""

from __future__ import annotations

import os
import pty

import pytest

from lr_sweep.sweep.cli.streams import print_facts

FACT = "weights    tiny: " + "a word " * 20
TABLE = "mnist   " + "wide " * 20 + "    3     4"


def test_long_lines_are_broken_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_facts(FACT)
    assert capsys.readouterr().out == f"{FACT}\n"
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", buffering=0) as terminal, os.fdopen(follower, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((80, 24)))
        print_facts(f"{FACT}\n{TABLE}\nshort")
        output.flush()
        lines = terminal.read(10_000).decode().splitlines()
    assert max(map(len, lines[:-2])) <= 80
    assert " ".join(line.strip() for line in lines[:-2]) == FACT.strip()
    assert lines[1][:12].strip() == lines[1][11]
    assert lines[-2:] == [TABLE, "short"]
