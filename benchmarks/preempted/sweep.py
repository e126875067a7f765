"""A planted loop in a real sweep: `lr-sweep run` is interrupted and called again, and its report is read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from lr_sweep.benchmarks.preempted.table import Loop

INTERRUPTED = "were interrupted"
"""In the report's line about runs whose resume may have changed their numbers."""
SLOWLY = "\n        import time; time.sleep(0.2)"
"""Added to each step, so that the sweep is interrupted before its end."""
STARTED_S = 300.0
"""Longest time until a run has its first checkpoint."""


def interrupted_sweep(loop: Loop, folder: Path) -> list[str]:
    """Sweep a loop with one interruption; return the lines of `report.md` that name interrupted runs.

    Raises RuntimeError if a command ends otherwise than expected.
    """
    run = loop.run()
    for name, content in run.files.code.items():
        (folder / name).write_bytes(content.replace(b"report(session, model)\n", _slow()))
    study = {
        "trainable": run.files.trainable,
        "code": [*run.files.code],
        "metric": {"name": "loss", "higher_is_better": False},
        "num_steps": loop.num_steps,
        "protocol": {"evaluate_every": loop.evaluate_every},
        "variants": {"planted": loop.options},
        "learning_rates": [run.learning_rate],
        "seeds": 1,
    }
    (folder / "mine.yaml").write_text(json.dumps(study))
    _run(folder, interrupt=True)
    _run(folder, interrupt=False)
    report = folder / "results" / "studies" / "mine" / "report" / "report.md"
    return [line for line in report.read_text().splitlines() if INTERRUPTED in line]


def _slow() -> bytes:
    return f"report(session, model){SLOWLY}\n".encode()


def _run(folder: Path, *, interrupt: bool) -> None:
    words = [sys.executable, "-m", "lr_sweep.sweep", "run", "mine.yaml", "--cpus", "1"]
    log = folder / "output.log"
    with (
        log.open("a") as output,
        subprocess.Popen(words, cwd=folder, stdout=output, stderr=output) as process,
    ):
        if interrupt:
            until = time.monotonic() + STARTED_S
            while not _has_checkpoint(folder) and time.monotonic() < until:
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
    wanted = 130 if interrupt else 0
    if process.returncode != wanted:
        printed = log.read_text()[-2000:]
        raise RuntimeError(f"`run` ended with {process.returncode}, want {wanted}:\n{printed}")


def _has_checkpoint(folder: Path) -> bool:
    return any((folder / "results").glob("**/step-*.safetensors"))
