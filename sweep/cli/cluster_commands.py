"""`submit`, `job` and `cluster`: studies on a cluster, from a machine that is no part of it."""

from __future__ import annotations

import time
from argparse import Namespace
from functools import partial
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.program import command
from lr_sweep.common.text import aligned, counted, duration, machines_there, most_machines_in
from lr_sweep.sweep.cli.study_commands import plan_elsewhere, with_resources
from lr_sweep.sweep.cluster.jobs import STOP_WAIT_S, ClusterJobs, Job
from lr_sweep.sweep.cluster.submit import check_paths
from lr_sweep.sweep.cluster.submit import submit as submit_study
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.only import only_text

_say = partial(print, flush=True)
_write = partial(print, end="", flush=True)


def submit(chosen: Namespace) -> int:
    """Show the plan, send the study, and follow its job."""
    check_paths(chosen.results, chosen.data_dir)
    study = with_resources(load_study(chosen.study), chosen)
    ClusterJobs(chosen.address)  # refuses one that does not answer before the plan is printed
    print(plan_elsewhere(study, chosen.results, Path(chosen.data_dir), chosen.only))
    options = ["--max-attempts", str(chosen.max_attempts), "--checkpoint-every-s", str(chosen.checkpoint_every_s)]
    options += ["--priority", str(chosen.priority)]
    options += ["--only", only_text(chosen.only)] if chosen.only else []
    options += [
        f"--{name}" for name in ("replace", "retry-failed", "strict") if getattr(chosen, name.replace("-", "_"))
    ]
    job = submit_study(study, chosen.results, chosen.data_dir, chosen.address, options=options, say=_say)
    _say(f"{job.name} was accepted")
    return 0 if chosen.no_follow else _follow(chosen.address, job)


def job(chosen: Namespace) -> int:
    """List jobs, or follow or stop the newest of a study."""
    cluster = ClusterJobs(chosen.address)
    if chosen.action == "status":
        return _status(cluster, chosen.study and _study_name(chosen.study))
    if chosen.study is None:
        raise UserError(f"`job {chosen.action}` needs a STUDY; `{command('job', 'status')}` lists them.")
    newest = cluster.newest(_study_name(chosen.study))
    return _stop(cluster, newest) if chosen.action == "stop" else _follow(chosen.address, newest)


def cluster(chosen: Namespace) -> int:
    """Check a cluster file."""
    from lr_sweep.sweep.cluster.check import problems_in

    problems = problems_in(chosen.file)
    for problem in problems:
        _say(f"problem: {problem}")
    number = counted(len(problems), "problem")
    _say(f"{chosen.file}: {number}" if problems else f"{chosen.file}: no problems; `ray up {chosen.file}` starts it")
    return 1 if problems else 0


def _study_name(name_or_path: str) -> str:
    """Return a study's name from its name or file; a study that has jobs needs no file here."""
    path = Path(name_or_path)
    return load_study(path).study if path.suffix in (".yaml", ".yml") else name_or_path


def _status(cluster: ClusterJobs, study: str | None) -> int:
    """Print the jobs, or the newest of a study, the last line that each running one printed, and the machines."""
    jobs = cluster.jobs() if study is None else [cluster.newest(study)]
    logs = {job.name: cluster.log(job.name) for job in jobs if job.active}
    if jobs:
        rows = [(job.name, job.status.lower(), _took(job), job.results) for job in jobs]
        print("\n".join(aligned([("job", "status", "took", "results"), *rows])))
    else:
        _say(f"no study was submitted to the cluster at {cluster.address}")
    for name, log in logs.items():
        lines = log.strip().splitlines()
        print(f"{name}: {lines[-1] if lines else 'nothing printed yet'}")
    print(machines_there(cluster.machines(), most_machines_in(logs.values())))
    return 0


def _took(job: Job) -> str:
    return duration((job.ended_s or time.time()) - job.started_s)


def _follow(address: str, job: Job) -> int:
    """Print what a job prints until it ends; Ctrl-C leaves the job running."""
    again = command("job", "logs", job.study, "--address", address)
    try:
        _say(f"following {job.name}; Ctrl-C leaves it running, `{again}` follows it again")
        return _ended(ClusterJobs(address).follow(job.name, _write))
    except KeyboardInterrupt:
        _say(f"\nnot followed any more; {job.name} is still running. Follow it again: {again}")
        return 0


def _stop(cluster: ClusterJobs, job: Job) -> int:
    """Stop a job, which saves its runs, and wait for its end."""
    if not job.active:
        _say(f"{job.name} has ended already ({job.status.lower()})")
        return 0
    cluster.stop(job.name)
    _say(f"{job.name} was asked to stop: it has {STOP_WAIT_S} s to save its runs")
    return 0 if _ended(cluster.follow(job.name, _write)) == 130 else 1


def _ended(job: Job) -> int:
    """Print how a job ended and return the exit code that `run` would have had here."""
    if job.status == "STOPPED":
        _say(f"{job.name} was stopped; submit the study again to resume it")
        return 130
    _say(f"{job.name} {job.status.lower()} after {_took(job)}; its results: {job.results}")
    return 0 if job.status == "SUCCEEDED" else job.exit_code or 1
