"""Print the test files with a mark for a round of CI: those that a change touches, then a third of the others, in turn.

    python .ci/slow_tests.py MARK [BASE]

BASE is the commit before the change; without it, the newest that is four hours older than HEAD. A change touches a test
if it changes the test's file, something in the folder that the test's folder mirrors, or what the test imports.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGE_H = 4
PARTS = 3


def main() -> None:
    """Print the files, a line each."""
    mark, *given = sys.argv[1:]
    base = given[0] if given else base_of_change()
    changed = (
        {Path(name) for name in git("diff", "--name-only", base, "HEAD").splitlines()}
        if base
        else set()
    )
    marked = [
        path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if f"mark.{mark}" in path.read_text()
    ]
    tests = [path.relative_to(ROOT) for path in marked]
    print(*chosen(tests, changed, int(git("rev-list", "--count", "HEAD"))), sep="\n")


def chosen(tests: list[Path], changed: set[Path], turn: int) -> list[Path]:
    """Return the tests that run: touched ones first, then each third of the others."""
    touched = [
        path
        for path in tests
        if changed & touching(path) or {each.parent for each in changed} & mirrored(path)
    ]
    others = [path for path in tests if path not in touched]
    return [*sorted(touched, key=lambda path: path not in changed), *others[turn % PARTS :: PARTS]]


def mirrored(test: Path) -> set[Path]:
    """Return the folder of the program that a test is of."""
    return {Path(*test.parts[1:-1])}


def touching(test: Path) -> set[Path]:
    """Return the files that a test consists of: its own, and the modules that it imports."""
    names = re.findall(r"^from lr_sweep\.(\S+) import", (ROOT / test).read_text(), re.MULTILINE)
    return {test, *(Path(*name.split(".")).with_suffix(".py") for name in names)}


def base_of_change() -> str:
    """Return the newest commit that is much older than HEAD; empty: there is none here."""
    time_s = int(git("log", "-1", "--format=%ct"))
    return git("rev-list", "-1", f"--before={time_s - 3600 * CHANGE_H}", "HEAD")


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(
        ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
