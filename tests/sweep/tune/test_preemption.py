"""Signals to all processes of a sweep: each engine saves, and `run` prints the step that is in the checkpoint."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import checkpoint_step
from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.own_study import write_command, write_function
from lr_sweep.tests.support.small_cluster import checkpointed
from lr_sweep.tests.support.tiny_study import write_study

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
LONG = {"num_steps": "1000000", "protocol": "{evaluate_every: 1000000}"}
"""No evaluation ends within the test, so that only the signal makes a checkpoint."""
FUNCTION = """
import time
for step in session.steps(model=torch.nn.Linear(2, 1)):
    time.sleep(0.01)
    if session.due:
        session.report(validation=0.5, test=0.5)
"""
SCRIPT = """
import signal, sys, time

def save(number, frame):
    open(sys.argv[3] + "/saved", "w").close()
    sys.exit()

for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, save)
for step in range(1, 1000):
    print(f"step={step} val=0.5 test=0.5", flush=True)
    time.sleep(0.2)
"""


def built_in(folder: Path) -> Path:
    changes = {"variants": ("unfrozen-random",), "protocol": LONG["protocol"], "runs_per_trial": 2}
    return write_study(folder, **changes, num_steps=int(LONG["num_steps"]))


def command(folder: Path) -> Path:
    line = "python train.py {learning_rate} {seed} {checkpoint}"
    metrics = r"{validation: 'val=(\S+)', test: 'test=(\S+)', step: 'step=(\d+)'}"
    return write_command(folder, SCRIPT, command=line, metrics=metrics, num_steps="1000")


def ranks(folder: Path) -> Path:
    return write_function(folder, FUNCTION, **LONG, resources="{processes_per_run: 2}")


STUDIES: dict[str, tuple[Callable[[Path], Path], signal.Signals, str]] = {
    "stacked": (built_in, signal.SIGTERM, "1"),
    "own function": (lambda folder: write_function(folder, FUNCTION, **LONG), signal.SIGUSR2, "1"),
    "several ranks": (ranks, signal.SIGTERM, "2"),
    "command": (command, signal.SIGUSR1, "1"),
}


@pytest.mark.parametrize("engine", STUDIES)
def test_a_signal_to_all_processes_loses_no_step(engine: str, tmp_path: Path) -> None:
    """A shutdown, `systemctl stop`, `timeout` and Slurm send it so."""
    write, number, cpus = STUDIES[engine]
    results = tmp_path / "results"
    with Background(tmp_path / "log", write(tmp_path), "--results", results, "--cpus", cpus) as run:
        logs = results / "logs" / "runs"
        awaited = "step 1:" if engine == "command" else "started"
        run.wait_until(lambda: any(awaited in log.read_text() for log in logs.glob("*.log")))
        driver = psutil.Process(run.process.pid)
        for process in [*driver.children(recursive=True), driver]:
            os.kill(process.pid, number)
        code, printed = run.ends()
    assert (code, "Traceback" in printed) == (130, False), printed
    steps = [checkpoint_step(Results(results), run_id) or 0 for run_id in checkpointed(results)]
    assert len(steps) == (2 if engine == "stacked" else 1)
    at = sorted({str(step) for step in (min(steps), max(steps))}, key=int)
    assert re.search(rf"{len(steps)} runs? saved at step {' to '.join(at)}\n", printed)
    assert all(
        f"  1 run saved at step {step}\n" in "".join(log.read_text() for log in logs.glob("*.log")) for step in steps
    )
    assert len(list(results.glob("checkpoints/*/command/checkpoint/saved"))) == (engine == "command")
