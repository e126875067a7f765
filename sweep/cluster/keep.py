"""`python -m lr_sweep.sweep.cluster.keep ARGUMENTS`: a job's driver, which is started again when it is killed.

Of a job that `submit` started it keeps, on the head's disk, what a head that comes back needs to start it again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lr_sweep.common.files import write_json
from lr_sweep.sweep.cluster.jobs import KEPT, RESTARTED, STUDY_KEY, ClusterJobs
from lr_sweep.trainables.worker.ray_internals import job_server

MAX_RESTARTS = 3
RESTART_AFTER_S = 5.0
LACKED = 2
"""The exit code of a driver that lacked something, such as a machine or a disk, and that the same command resumes."""


class Keeper:
    """A job, by what Ray calls its metadata, and the arguments of its driver."""

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


def main(*arguments: str) -> int:
    """Keep the driver of the job that this process is the command of."""
    return Keeper(json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"], arguments).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
