"""Which slow tests a round of CI runs, and that it leaves the rest when the time is over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHOSEN = run_path(str(ROOT / ".ci" / "slow_tests.py"))["chosen"]
TESTS = [Path("tests", name) for name in ("test_docs.py", "sweep/tune/test_a.py", "sweep/tune/test_b.py", "test_ci.py")]


@pytest.mark.parametrize(
    ("changed", "turn", "expected"),
    [
        ("sweep/store/writing.py", 0, [TESTS[0], TESTS[3]]),
        ("sweep/store/writing.py", 1, [TESTS[1]]),
        ("sweep/tune/driver.py", 2, [TESTS[1], TESTS[2]]),
        ("tests/sweep/tune/test_b.py", 1, [TESTS[2], TESTS[1]]),
        ("tests/support/small_runs.py", 1, [TESTS[1]]),
    ],
)
def test_a_round_runs_what_changed_and_a_third_of_the_rest(
    changed: str, turn: int, expected: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHOSEN.__globals__, "touching", lambda path: {path})
    assert CHOSEN(TESTS, {Path(changed)}, turn) == expected


def test_no_test_starts_when_the_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert False\n")
    command = [sys.executable, "-m", "pytest", "-rs", "--time-budget-s", "0", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "not run: --time-budget-s 0 was over" in done.stdout
