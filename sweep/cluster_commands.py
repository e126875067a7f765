"""`submit` and `job`: studies on a cluster, from a machine that is no part of it."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

from sweep.cluster_jobs import STOP_WAIT_S, ClusterJobs, Job
from sweep.commands import plan_elsewhere, with_resources
from sweep.errors import UserError
from sweep.study_file import load_study
from sweep.submission import check_paths, submit
from sweep.text import aligned, command, duration


def submit_study(chosen: Namespace) -> int:
    """Show the plan, send the study, and follow its job."""
    check_paths(chosen.results, chosen.data_dir)
    study = with_resources(load_study(chosen.study), chosen)
    ClusterJobs(chosen.address)  # one that does not answer is told before the plan
    print(plan_elsewhere(study, chosen.results, Path(chosen.data_dir)))
    job = submit(study, chosen.results, chosen.data_dir, chosen.address, options=_run_options(chosen), say=_say)
    _say(f"{job.name} was accepted")
    return 0 if chosen.no_follow else _follow(chosen.address, job)


def job(chosen: Namespace) -> int:
    """Do something with the newest job of a study."""
    cluster = ClusterJobs(chosen.address)
    if chosen.action == "status":
        return _status(cluster, chosen.study and _study_name(chosen.study))
    if chosen.study is None:
        raise UserError(f"`job {chosen.action}` of which STUDY? `python -m sweep job status` lists them.")
    newest = cluster.newest(_study_name(chosen.study))
    return _stop(cluster, newest) if chosen.action == "stop" else _follow(chosen.address, newest)


def _study_name(name_or_path: str) -> str:
    """Tell a study's name; one that has jobs need not be a file here."""
    path = Path(name_or_path)
    return load_study(path).study if path.suffix in (".yaml", ".yml") else name_or_path


def _status(cluster: ClusterJobs, study: str | None) -> int:
    """Print every job, of the study if one is given, and how far those are that go on."""
    jobs = cluster.jobs() if study is None else [cluster.newest(study)]
    if not jobs:
        _say(f"no study was submitted to the cluster at {cluster.address}")
        return 0
    rows = [(job.name, job.status.lower(), _took(job), job.results) for job in jobs]
    print("\n".join(aligned([("job", "status", "took", "results"), *rows])))
    for job in jobs:
        if job.going_on:
            print(f"{job.name}: {_last_line(cluster.log(job.name))}")
    return 0


def _took(job: Job) -> str:
    return duration((job.ended_s or time.time()) - job.started_s)


def _last_line(log: str) -> str:
    lines = log.strip().splitlines()
    return lines[-1] if lines else "nothing printed yet"


def _follow(address: str, job: Job) -> int:
    """Print what a job prints until it ends; Ctrl-C leaves it alone."""
    again = command("job", "logs", job.study, "--address", address)
    try:
        _say(f"following {job.name}; Ctrl-C leaves it to itself, `{again}` comes back to it")
        ended = ClusterJobs(address).follow(job.name, _write)
    except KeyboardInterrupt:
        _say(f"\nleft; {job.name} goes on. Look again: {again}")
        return 0
    return _ended(ended)


def _stop(cluster: ClusterJobs, job: Job) -> int:
    """Have a job save its runs and end, and wait for that."""
    if not job.going_on:
        _say(f"{job.name} has ended already ({job.status.lower()})")
        return 0
    cluster.stop(job.name)
    _say(f"{job.name} was asked to stop: it saves its runs, for which it has {STOP_WAIT_S} s")
    return 0 if _ended(cluster.follow(job.name, _write)) == 130 else 1


def _ended(job: Job) -> int:
    """Say how a job ended and return the exit code that `run` would have had here."""
    if job.status == "STOPPED":
        _say(f"{job.name} was stopped; submit the study again and it goes on from there")
        return 130
    _say(f"{job.name} {job.status.lower()} after {_took(job)}; its results: {job.results}")
    return 0 if job.status == "SUCCEEDED" else job.exit_code or 1


def _run_options(chosen: Namespace) -> list[str]:
    """Return what `run` gets there of what was given here."""
    words = ["--max-attempts", str(chosen.max_attempts), "--checkpoint-every-s", str(chosen.checkpoint_every_s)]
    words += ["--priority", str(chosen.priority)]
    return words + [f"--{name}" for name in ("retry-failed", "strict") if getattr(chosen, name.replace("-", "_"))]


def _say(message: str) -> None:
    print(message, flush=True)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
