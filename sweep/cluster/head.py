"""`python -m lr_sweep.sweep.cluster.head start|stop|boot`: what a cluster's head does besides Ray's own start.

`start` resumes jobs that had not ended, and has cron look every minute whether Ray is up; `boot` is that look. `stop`
ends Ray and all of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster.jobs import KEPT, RESULTS_KEY, STUDY_KEY, ClusterJobs, driver_command

CLUSTER_FILE = Path("~/ray_bootstrap_config.yaml").expanduser()
"""JSON that `ray up` writes on the head: the cluster file, and how the head reaches the workers."""
RAY = Path("~/lr-sweep/.venv/bin/ray").expanduser()
MLFLOW_PID = Path("~/mlflow/server.pid").expanduser()
SSH = ("ssh", "-oBatchMode=yes", "-oConnectTimeout=10", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null")
EACH_MINUTE = (
    f"* * * * * flock --nonblock {KEPT}/boot.lock {sys.executable} -P -m lr_sweep.sweep.cluster.head boot "
    f">> {KEPT}/boot.log 2>&1"
)
ANSWERS_WITHIN_S = 120.0


def start() -> None:
    """Resume jobs, and have a lost Ray started again."""
    KEPT.mkdir(exist_ok=True)
    set_cron(EACH_MINUTE)
    if kept := sorted(KEPT.glob("*/job.json")):
        try:
            _resume(kept)
        except UserError as problem:  # Ray is up, and stays: `ray down` would not reach a head that failed to start
            print(f"error: no sweep resumes: {problem}", flush=True)


def _resume(kept: Sequence[Path]) -> None:
    cluster = _job_server()
    there = {job.name for job in cluster.jobs()}
    for file in kept:
        job, name = json.loads(file.read_text()), file.parent.name
        if name not in there:
            command = driver_command(job["arguments"])
            cluster.start(job[STUDY_KEY], job[RESULTS_KEY], command, file.parent / "program", name)
            print(f"{name} resumes", flush=True)


def _job_server() -> ClusterJobs:
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while True:
        try:
            return ClusterJobs()
        except UserError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)


def boot() -> None:
    """Start Ray as `ray up` did, unless it is up."""
    if subprocess.run(["pgrep", "-u", str(os.getuid()), "-x", "gcs_server"], capture_output=True).returncode == 0:
        return
    cluster = json.loads(CLUSTER_FILE.read_text())
    try:
        for command in [*cluster.get("initialization_commands", []), *cluster["head_start_ray_commands"]]:
            subprocess.run(["bash", "-c", command], check=True)
    finally:
        set_cron(EACH_MINUTE)  # `ray stop` is one of the commands


def stop(*options: str) -> int:
    """End Ray and MLflow here, then Ray on the workers: it would stay for a minute, and its agents for ever (2.60).

    `options` are those of `ray stop`, whose exit code is returned. On a head that has ended, nothing starts workers.
    """
    set_cron(None)
    with suppress(OSError, ValueError):  # no server, or one that has ended
        pid = int(MLFLOW_PID.read_text())
        MLFLOW_PID.unlink()
        if "mlflow" in Path(f"/proc/{pid}/cmdline").read_text():
            os.killpg(pid, signal.SIGKILL)  # it would wait for open connections; its store survives
    here = subprocess.run([RAY, "stop", *options], check=False)
    calls = [subprocess.Popen(words, stdin=subprocess.DEVNULL) for words in _on_workers()]
    for call in calls:
        call.wait()
    return here.returncode


def set_cron(line: str | None) -> None:
    """Put the line into the user's crontab in the place of an earlier one; None: remove it."""
    try:
        lines = subprocess.run(["crontab", "-l"], capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        if line:
            print("no crontab here: after a loss of the head, `ray up` again", flush=True)
        return
    others = [each for each in lines if "lr_sweep.sweep.cluster.head" not in each]
    if (wanted := others + [line] * (line is not None)) != lines:
        subprocess.run(["crontab", "-"], input="".join(f"{each}\n" for each in wanted), text=True, check=True)


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
    actions: dict[str, Callable[..., int | None]] = {"start": start, "stop": stop, "boot": boot}
    sys.exit(actions[sys.argv[1]](*sys.argv[2:]))
