"""What a first-time user waits for: `lr-sweep run quickstart` into an empty folder, and commands that answer at once.

Start it on an idle machine: `python -m benchmarks.first_minute --rounds 5`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.shared import machine, options, spread

PROGRAM = (sys.executable, "-m", "lr_sweep.sweep")
TABLE = "Test accuracy by learning rate"
COMMANDS = (("plan", "quickstart"), ("ls",), ("judge", "--help"))


def first_minute(folder: Path) -> dict[str, float]:
    """Run the quickstart into a folder; return the seconds from its start to each event."""
    began, seconds, output = time.time(), dict[str, float](), ""
    command = [*PROGRAM, "run", "quickstart", "--results", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if line.startswith(TABLE):
                seconds.setdefault("table", time.time() - began)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{output[-3000:]}")
    runs = read_runs(folder)
    started, ended = (
        runs[name].map(lambda at: at.timestamp()) for name in ("started_at", "finished_at")
    )
    runs_s = {
        "first run starts": started.min() - began,
        "first run ends": ended.min() - began,
        "last run ends": ended.max() - began,
    }
    return {**runs_s, **seconds, "prompt": time.time() - began}


def command_s(command: tuple[str, ...], folder: Path) -> float:
    """Run a command in a folder; return its seconds."""
    began = time.monotonic()
    subprocess.run([*PROGRAM, *command], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def main() -> None:
    """Measure and print."""
    rounds = options(__doc__, rounds=5).rounds
    print(f"{machine()}; seconds, medians of {rounds}")
    times = defaultdict(list)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as scratch:
            for event, at in first_minute(Path(scratch) / "results").items():
                times[event].append(at)
            for command in COMMANDS:
                times[" ".join(command)].append(command_s(command, Path(scratch)))
    for name, times_s in times.items():
        print(f"{name:16} {spread(times_s)}")


if __name__ == "__main__":
    main()
