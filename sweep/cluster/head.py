"""`python -m lr_sweep.sweep.cluster.head stop`, on a cluster's machine before `ray stop`: ends what Ray leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

CLUSTER_FILE = Path("~/ray_bootstrap_config.yaml").expanduser()
"""JSON that `ray up` writes on the head: the cluster file, and how the head reaches the workers."""
MLFLOW_PID = Path("~/mlflow/server.pid").expanduser()
SSH = ("ssh", "-oBatchMode=yes", "-oConnectTimeout=10", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null")


def stop() -> None:
    """End MLflow here, and Ray on the workers: it would stay for a minute, and its agents for ever (2.60)."""
    with suppress(OSError, ValueError):  # no server, or one that has ended
        pid = int(MLFLOW_PID.read_text())
        MLFLOW_PID.unlink()
        if "mlflow" in Path(f"/proc/{pid}/cmdline").read_text():
            os.killpg(pid, signal.SIGTERM)
    calls = [subprocess.Popen(words, stdin=subprocess.DEVNULL) for words in _on_workers()]
    for call in calls:
        call.wait()


def _on_workers() -> list[list[str]]:
    """Return the commands that end Ray on each worker; none on a worker, and where a cloud ends the machines."""
    if not CLUSTER_FILE.is_file():
        return []
    cluster = json.loads(CLUSTER_FILE.read_text())
    auth = cluster["auth"]
    key = ["-i", str(Path(auth["ssh_private_key"]).expanduser())] if "ssh_private_key" in auth else []
    there = "lr-sweep/sweep/cluster/bin/ray stop"
    return [[*SSH, *key, f"{auth['ssh_user']}@{ip}", there] for ip in cluster["provider"].get("worker_ips", [])]


if __name__ == "__main__":
    sys.exit({"stop": stop}[sys.argv[1]]())
