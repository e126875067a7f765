"""A Slurm of two nodes on this machine: munged, slurmctld and two slurmd, all with files of their own."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import subprocess
from pathlib import Path

from lr_sweep.tests.support.tiny_study import ROOT, environment
from lr_sweep.tests.support.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
FREEZER = Path("/sys/fs/cgroup/freezer")
"""Slurm (22.05) follows the processes of a step by it, and signals the step's first process alone."""
NODES = ("first", "second")
GPUS = ("/dev/null", "/dev/zero")
"""Device files that Slurm takes for GPUs, on the first node."""
CONFIGURATION = """
ClusterName=test
SlurmctldHost={name}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=26817
AuthType=auth/munge
# A requeued job waits until credentials have expired: two minutes by default.
AuthInfo=socket={folder}/munge/socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=batch_sched_delay=1,sched_interval=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName=first NodeHostname={name} NodeAddr=127.0.0.1 Port=26821 CPUs={cpus} RealMemory=4000 Gres=gpu:{gpus} Weight=1
NodeName=second NodeHostname={name} NodeAddr=127.0.0.1 Port=26822 CPUs={cpus} RealMemory=4000 Weight=2
PartitionName=main Nodes=ALL Default=YES MaxTime=600 State=UP
"""


def what_is_missing() -> str | None:
    """Return why there can be no Slurm here; None: there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        return f"not installed here: {', '.join(missing)} (Debian: slurm-wlm, munge)"
    if os.geteuid() != 0:
        return "slurmd needs root"
    return None if FREEZER.is_dir() else f"Slurm needs {FREEZER} (cgroup v1) here"


class Slurm:
    """Starts Slurm's daemons; `folder` is for their files and the jobs' output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, mode in (("munge", 0o711), ("state", 0o700)):
            (folder / name).mkdir(mode=mode)
        self._environment = environment(SLURM_CONF=str(folder / "slurm.conf"), PATH=PATH)
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._configure()
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _configure(self) -> None:
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        name = platform.node().partition(".")[0]
        settings = {"name": name, "folder": self.folder, "cpus": os.cpu_count(), "gpus": len(GPUS)}
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(**settings))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "gres.conf").write_text("".join(f"NodeName=first Name=gpu File={path}\n" for path in GPUS))

    def _start(self) -> None:
        munge = self.folder / "munge"
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._daemon("munged", "--foreground", "--force", *(f"--{key}={munge / name}" for key, name in files.items()))
        wait_until((munge / "socket").exists, "munged")
        self._daemon("slurmctld", "-D")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        idle = ("sinfo", "--noheader", "--Node", "--format=%T")
        wait_until(lambda: self._call(*idle, check=False).split() == ["idle"] * len(NODES), "idle nodes")

    def _daemon(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.out").open("ab") as out:
            self._daemons.append(subprocess.Popen(command, env=self._environment, stdout=out, stderr=out))

    def submit(self, *words: str | Path, **settings: str) -> str:
        """Call `sbatch` with these words in the checkout, and return the job's id."""
        output = f"--output={self.folder}/%j.log"
        return self._call("sbatch", "--parsable", output, *words, **settings).strip()

    def output(self, job: str) -> str:
        path = self.folder / f"{job}.log"
        return path.read_text() if path.exists() else ""

    def field(self, job: str, name: str) -> str:
        """Return a field of a job as `scontrol show job` has it, such as JobState or ExitCode."""
        words = self._call("scontrol", "--oneliner", "show", "job", job).split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    def has_ended(self, job: str) -> bool:
        return self.field(job, "JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

    def limit(self, job: str, minutes: int) -> None:
        """Have a job reach its time limit between one minute less than that and that from now."""
        words = self.field(job, "RunTime").split(":")  # hours, minutes, seconds
        self._call("scontrol", "update", f"JobId={job}", f"TimeLimit={60 * int(words[0]) + int(words[1]) + minutes}")

    def cancel(self, job: str) -> None:
        self._call("scancel", job)

    def end(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(60)

    def _call(self, *command: str | Path, check: bool = True, **settings: str) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=ROOT, env=self._environment | settings, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}"
        return done.stdout
