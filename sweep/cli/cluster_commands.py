"""`submit`, `job` and `cluster`: studies on a cluster, from a machine that is no part of it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from lr_sweep.common.errors import UserError
from lr_sweep.common.program import command as program_command
from lr_sweep.common.text import aligned, counted, duration, machines_there, most_machines_in
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cli.app import command
from lr_sweep.sweep.cluster.jobs import DEFAULT_ADDRESS, RESTARTED, STOP_WAIT_S, ClusterJobs, Job
from lr_sweep.sweep.study.only import ALL_RUNS, Only, only_text

if TYPE_CHECKING:
    from lr_sweep.sweep.study.study import Study

_say = partial(print, flush=True)
_write = partial(print, end="", flush=True)

Address = Annotated[str, opt.option("URL", "the cluster's job server")]


@command("rothermel2021-table1 --results /shared/results --data-dir /shared/data")
def submit(
    study: opt.Study,
    results: Annotated[str, opt.option("DIR", "results directory, on a disk that all share, or s3://BUCKET/PREFIX")],
    data_dir: Annotated[str, opt.option("DIR", "folder of data sets, on such a disk")],
    address: Address = DEFAULT_ADDRESS,
    no_follow: Annotated[bool, opt.flag("end once the job is accepted")] = False,
    cpus_per_trial: opt.CpusPerTrial = None,
    gpus_per_trial: opt.GpusPerTrial = None,
    runs_per_trial: opt.RunsPerTrial = None,
    priority: opt.Priority = 1,
    only: opt.Only = None,
    replace: opt.Replace = False,
    retry_failed: opt.RetryFailed = False,
    max_attempts: opt.MaxAttempts = 10,
    checkpoint_every_s: opt.CheckpointEveryS = 60.0,
    strict: opt.Strict = False,
) -> int:
    """Train a study on a cluster: send the program there, and follow what it prints."""
    from lr_sweep.sweep.cluster.submit import check_paths
    from lr_sweep.sweep.cluster.submit import submit as submit_study

    check_paths(results, data_dir)
    resources = {"cpus_per_trial": cpus_per_trial, "gpus_per_trial": gpus_per_trial, "runs_per_trial": runs_per_trial}
    part = opt.chosen_runs(only)
    (loaded,) = opt.load_studies([study], **resources)
    ClusterJobs(address)  # refuses one that does not answer before the plan is printed
    print(plan_elsewhere(loaded, results, Path(data_dir), part))
    options = ["--max-attempts", str(max_attempts), "--checkpoint-every-s", str(checkpoint_every_s)]
    options += ["--priority", str(priority)]
    options += ["--only", only_text(part)] if part else []
    flags = {"--replace": replace, "--retry-failed": retry_failed, "--strict": strict}
    options += [name for name, given in flags.items() if given]
    job = submit_study(loaded, results, data_dir, address, options=options, say=_say)
    _say(f"{job.name} was accepted")
    return 0 if no_follow else _follow(address, job)


def plan_elsewhere(study: Study, location: str, data_dir: Path, only: Only = ALL_RUNS) -> str:
    """Return what `run` would do on other machines, as far as this one knows."""
    from lr_sweep.common.object_store import StoreError
    from lr_sweep.sweep.plan.cost import estimate_cost
    from lr_sweep.sweep.plan.placement import Placement, devices_here
    from lr_sweep.sweep.plan.plan import Plan, plan_text

    placement = Placement(resources=study.resources)
    try:
        results = opt.open_results(location, weights=True)
    except StoreError as problem:  # the cluster's machines may have credentials that this one lacks
        return f"No plan from here: {problem}"
    results.check()
    planned = Plan(study, placement, results, data_dir, only)
    at_once = placement.trials_at_once([devices_here(None, 0)])  # what the cluster has is unknown here
    cost = estimate_cost(planned.reconciled, {}, placement, at_once, results)
    text = plan_text(planned, cost, elsewhere=True)
    if results.exists() or results.uri is not None:
        return text
    return (
        f"{text}\nThis plan is for an empty results directory: {location} is not on this machine. The job prints what "
        f"is left to train there."
    )


@command("logs rothermel2021-table1")
def job(
    action: Annotated[
        Literal["status", "logs", "stop"], opt.argument(None, "what to do with the newest job of the study")
    ],
    study: Annotated[str | None, opt.argument("STUDY", f"{opt.STUDY_HELP}; `status` without one lists all")] = None,
    address: Address = DEFAULT_ADDRESS,
) -> int:
    """`job status` lists submitted studies, `job logs` follows one, `job stop` makes it save and end."""
    cluster = ClusterJobs(address)
    if action == "status":
        return _status(cluster, study and _study_name(study))
    if study is None:
        raise UserError(f"`job {action}` needs a STUDY; `{program_command('job', 'status')}` lists them.")
    newest = cluster.newest(_study_name(study))
    return _stop(cluster, newest) if action == "stop" else _follow(address, newest)


@command("check cluster.yaml")
def cluster(
    action: Annotated[Literal["check"], opt.argument(None, "the only action")],
    file: Annotated[Path, opt.argument("FILE", "the file that `ray up` is to be given", opt.local_path)],
) -> int:
    """`cluster check` names the mistakes in a cluster file before `ray up` starts machines; exit code 1 if any."""
    from lr_sweep.sweep.cluster.check import problems_in

    problems = problems_in(file)
    for problem in problems:
        _say(f"problem: {problem}")
    if problems:
        _say(f"{file}: {counted(len(problems), 'problem')}")
        return 1
    _say(f"{file}: no problem in what can be checked here; `ray up {file}` shows the rest")
    return 0


def _study_name(name_or_path: str) -> str:
    """Return a study's name from its name or file; a study that has jobs needs no file here."""
    from lr_sweep.sweep.study.file import load_study

    path = Path(name_or_path)
    return load_study(path).study if path.suffix in (".yaml", ".yml") else name_or_path


def _status(cluster: ClusterJobs, study: str | None) -> int:
    """Print the jobs, or the newest of a study, the last line of each that runs or failed, and the machines."""
    jobs = cluster.jobs() if study is None else [cluster.newest(study)]
    newest = {job.study: job for job in jobs}
    shown = [job for job in jobs if job.active or (job.status == "FAILED" and job is newest[job.study])]
    logs = {job.name: cluster.log(job.name) for job in shown}
    if jobs:
        rows = [(job.name, job.status.lower(), _took(job), job.results) for job in jobs]
        print("\n".join(aligned([("job", "status", "took", "results"), *rows])))
    else:
        _say(f"no study was submitted to the cluster at {cluster.address}")
    for name, log in logs.items():
        lines = log.strip().splitlines() or ["nothing printed yet"]
        restarts = [line for line in lines[:-1] if RESTARTED in line]
        print("\n".join(f"{name}: {line}" for line in [*restarts[-1:], lines[-1]]))
    print(machines_there(cluster.machines(), most_machines_in(logs.values())))
    return 0


def _took(job: Job) -> str:
    return duration((job.ended_s or time.time()) - job.started_s)


def _follow(address: str, job: Job) -> int:
    """Print what a job prints until it ends; Ctrl-C leaves the job running."""
    again = program_command("job", "logs", job.study, "--address", address)
    try:
        _say(f"following {job.name}; Ctrl-C leaves it running, `{again}` follows it again")
        return _ended(ClusterJobs(address).follow(job.name, _write, _say))
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
    return 0 if _ended(cluster.follow(job.name, _write, _say)) == 130 else 1


def _ended(job: Job) -> int:
    """Print how a job ended and return the exit code that `run` would have had here."""
    if job.status == "STOPPED":
        _say(f"{job.name} was stopped; submit the study again to resume it")
        return 130
    _say(f"{job.name} {job.status.lower()} after {_took(job)}; its results: {job.results}")
    return 0 if job.status == "SUCCEEDED" else job.exit_code or 1
