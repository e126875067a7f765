"""The walk of a study through the program: which modules it enters, in which order, and how often it comes back.

    python -m benchmarks.walk [STUDY]

Runs STUDY (default: quickstart) into an empty folder by `lr-sweep run`, then writes its report again. A step of the
walk is the first call of a function of the program. A return is a step into a module that an earlier step has left. The
summary counts the modules and the returns of the first 200 steps. Only the main thread is followed. All modules are
imported beforehand, so that no step belongs to an import.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from lr_sweep.benchmarks.shared import parser_of

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("analysis", "common", "datasets", "sweep", "trainables")
NUM_STEPS = 200
Step = tuple[str, str]
"""A module, as a path in the checkout, and a function in it."""


def main() -> None:
    """Print both walks."""
    parser = parser_of(__doc__)
    parser.add_argument("study", nargs="?", default="quickstart")
    study = parser.parse_args().study
    import_all()
    command = importlib.import_module("lr_sweep.sweep.cli.parser").main
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (
            ["run", study, "--results", folder],
            ["report", study, "--results", folder],
        ):
            with silent():
                steps = steps_of(lambda arguments=arguments: command(arguments))
            print(f"lr-sweep {arguments[0]}\n")
            print_walk(steps[:NUM_STEPS])


def import_all() -> None:
    """Import every module of the program."""
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))):
        if path.stem not in ("__main__", "__init__") and "starters" not in path.parts:
            importlib.import_module(
                ".".join(["lr_sweep", *path.relative_to(ROOT).with_suffix("").parts])
            )


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discard what is printed meanwhile."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def steps_of(action: Callable[[], object]) -> list[Step]:
    """Return each function of the program that an action calls, once, in the order of the first calls."""
    prefixes = tuple(f"{ROOT / folder}{os.sep}" for folder in FOLDERS)
    steps: dict[Step, None] = {}

    def follow(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(prefixes)
            and not code.co_name.startswith("<")
        ):
            steps.setdefault((str(Path(code.co_filename).relative_to(ROOT)), code.co_name))

    sys.setprofile(follow)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(steps)


def print_walk(steps: list[Step]) -> None:
    """Print a line for each stay in a module, with its functions, then the counts."""
    stays = [
        (room, [name for _, name in group])
        for room, group in groupby(steps, key=lambda step: step[0])
    ]
    for room, names in stays:
        print(f"  {room:<36} {', '.join(names)}")
    num_rooms = len({room for room, _ in stays})
    print(f"\n{len(steps)} steps: {num_rooms} modules, {len(stays) - num_rooms} returns\n")


if __name__ == "__main__":
    main()
