"""`python -m lr_sweep.sweep.cluster.head start|boot|stop|idle|keep ...`: what the head does besides Ray's start.

`start` resumes jobs that had not ended, and has cron look every minute whether Ray is up; `boot` is that look. `stop`
ends Ray and all of it. `idle MINUTES COMMAND...` runs a command once the cluster is idle. `keep ARGUMENTS` is a job's
driver, which is started again when it is killed; of a job that `submit` started it keeps, on the head's disk, what a
head that comes back needs to start it again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_json
from lr_sweep.sweep.cluster.jobs import KEPT, RESTARTED, RESULTS_KEY, STUDY_KEY, ClusterJobs, driver_command
from lr_sweep.trainables.worker.ray_internals import job_server

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
IDLE_CHECK_EVERY_S = 60.0
MAX_RESTARTS = 3
RESTART_AFTER_S = 5.0
LACKED = 2
"""The exit code of a driver that lacked something, such as a machine or a disk, and that the same command resumes."""


def start() -> None:
    """Resume jobs, and have a lost Ray started again."""
    KEPT.mkdir(exist_ok=True)
    _set_cron(EACH_MINUTE)
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
        _set_cron(EACH_MINUTE)  # `ray stop` is one of the commands


def stop(*options: str) -> int:
    """End Ray and MLflow here, then Ray on the workers: it would stay for a minute, and its agents for ever (2.60).

    `options` are those of `ray stop`, whose exit code is returned. On a head that has ended, nothing starts workers.
    """
    _set_cron(None)
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


def _set_cron(line: str | None) -> None:
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


class _Keeper:
    def __init__(self, job: Mapping[str, str], arguments: Sequence[str]) -> None:
        self._job, self._arguments, self._stopped = job, list(arguments), False
        self._folder = KEPT / job["job_submission_id"] if STUDY_KEY in job else None
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self._stopped = True  # Ray signals the driver, too

    def run(self) -> int:
        """Run the driver to its end, and return its exit code."""
        if self._folder is not None:
            _store(self._folder, {**self._job, "arguments": self._arguments})
        code = self._driver()
        if self._folder is None and code != 0:
            self._end_as_stopped()
        elif self._folder is not None and self._has_ended(code):
            shutil.rmtree(self._folder, ignore_errors=True)
        return code

    def _has_ended(self, code: int) -> bool:
        """Return whether the next `ray up` is not to resume the job: it may find what a driver lacked, as machines."""
        return not _shuts_down() if self._stopped else code != LACKED

    def _driver(self) -> int:
        for number in range(MAX_RESTARTS + 1):
            code = subprocess.run([sys.executable, "-m", "lr_sweep.sweep", *self._arguments], check=False).returncode
            if code >= 0 or self._stopped:
                return code if code >= 0 else 128 - code
            how = f"the driver was killed by {signal.Signals(-code).name}"
            if number < MAX_RESTARTS:
                print(f"{how}; {RESTARTED} ({number + 1} of {MAX_RESTARTS} times)", flush=True)
                time.sleep(RESTART_AFTER_S)
        print(
            f"error: {how} {MAX_RESTARTS + 1} times, and is not started again; is the head's memory full?", flush=True
        )
        return 128 - code

    def _end_as_stopped(self) -> None:
        """End the job so that KubeRay makes no new cluster for it, as it does for each that fails (1.5).

        What a new cluster would mend, the loss of the head, ends this process, too.
        """
        ClusterJobs(job_server()).stop(self._job["job_submission_id"])
        deadline = time.monotonic() + 60
        while not self._stopped and time.monotonic() < deadline:
            time.sleep(0.1)


def _store(folder: Path, job: Mapping[str, object]) -> None:
    """Store a job with a copy of its program, from where it runs, in the place of earlier ones of its study.

    `job.json` comes last.
    """
    for other in folder.parent.glob("*/job.json"):
        if other.parent != folder and json.loads(other.read_text())[STUDY_KEY] == job[STUDY_KEY]:
            shutil.rmtree(other.parent, ignore_errors=True)
    if not (folder / "job.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path.cwd(), folder / "program")
        write_json(folder / "job.json", job)


def _shuts_down() -> bool:
    """Return whether this machine shuts down: a job that ends with it was not stopped by a user."""
    asked = subprocess.run(["sh", "-c", "systemctl is-system-running"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() == "stopping"


def keep(*arguments: str) -> int:
    """Keep the driver of the job that this process is the command of."""
    return _Keeper(json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"], arguments).run()


if __name__ == "__main__":
    actions: dict[str, Callable[..., int | None]] = {
        "start": start,
        "boot": boot,
        "stop": stop,
        "idle": idle,
        "keep": keep,
    }
    sys.exit(actions[sys.argv[1]](*sys.argv[2:]))
