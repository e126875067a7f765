"""`python -m lr_sweep.sweep.cluster.head stop|idle ...`: how the head of a cluster ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lr_sweep.common.errors import UserError

from .down import end_machines
from .jobs import ClusterJobs

CLUSTER_FILE = Path("~/ray_bootstrap_config.yaml").expanduser()
"""JSON that `ray up` writes on the head: the cluster file, and how the head reaches the workers."""
RAY = Path("~/lr-sweep/.venv/bin/ray").expanduser()
MLFLOW_PID = Path("~/mlflow/server.pid").expanduser()
IDLE_CHECK_EVERY_S = 60.0


def stop(*options: str) -> int:
    """End Ray and MLflow here, then Ray on the workers: it would stay for a minute, and its agents for ever (2.60).

    `options` are those of `ray stop`, whose exit code is returned. On a head that has ended, nothing starts workers.
    """
    with suppress(OSError, ValueError):  # no server, or one that has ended
        pid = int(MLFLOW_PID.read_text())
        MLFLOW_PID.unlink()
        if "mlflow" in Path(f"/proc/{pid}/cmdline").read_text():
            os.killpg(pid, signal.SIGKILL)  # it would wait for open connections; its store survives
    here = subprocess.run([RAY, "stop", *options], check=False)
    if CLUSTER_FILE.is_file():  # on a head
        cluster = json.loads(CLUSTER_FILE.read_text())
        for line in end_machines(cluster, cluster["provider"].get("worker_ips", [])):
            print(line, flush=True)
    return here.returncode


def _is_busy() -> bool:
    """Return whether a driver runs or a worker machine is there.

    A head whose job server does not answer is idle: nothing trains without Ray, and `ray up` repairs it in minutes.
    """
    try:
        cluster = ClusterJobs()
        return cluster.machines() > 1 or cluster.drivers() > 0
    except UserError as problem:
        print(f"not busy: {problem}", flush=True)
        return False


def idle(minutes: str, *command: str) -> int:
    """Wait until the cluster has been idle for so many minutes; run the command and return its exit code."""
    busy_at = time.monotonic()
    while True:
        if _is_busy():
            busy_at = time.monotonic()
        elif time.monotonic() - busy_at >= 60 * float(minutes):
            break
        time.sleep(IDLE_CHECK_EVERY_S)
    print(f"idle for {minutes} minutes: {' '.join(command)}", flush=True)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    actions: dict[str, Callable[..., int]] = {"stop": stop, "idle": idle}
    sys.exit(actions[sys.argv[1]](*sys.argv[2:]))
