"""The panel "Clusters and data" of `--help`: `data`, `submit` and `cluster`; slow imports stay inside."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Annotated

from lr_sweep.common.errors import UserError, reason, unknown
from lr_sweep.common.text import command as program_command
from lr_sweep.common.text import counted, duration, fitted
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cluster.jobs import (
    DEFAULT_ADDRESS,
    STOP_WAIT_S,
    ClusterJobs,
    Job,
    check_paths,
    owner_here,
    submit_study,
)
from lr_sweep.sweep.study.only import only_text

from .app import command, group

Address = Annotated[str, opt.option("URL", "The address of the cluster's job server.")]
File = Annotated[Path, opt.argument("FILE", "The file for `ray up`.", opt.local_path)]
Yes = Annotated[bool, opt.flag("Do it without asking.")]
JobOf = Annotated[str, opt.argument("STUDY", "A study, for its newest job, or the name of a job.")]

cluster = group(
    "cluster", "List, follow and stop the jobs of a cluster, copy its results, or end it."
)
_say = opt.say
_write = partial(print, end="", flush=True)


@command("data mnist cifar10 gpt2 --data-dir ~/data")
def data(
    names: Annotated[
        list[str], opt.argument("NAME", "Tasks, known models, or studies with all that they need.")
    ],
    pretrain: Annotated[
        bool,
        opt.flag(
            "Pretrain the weights for which these studies have a recipe, instead of fetching anything."
        ),
    ] = False,
    results: Annotated[
        str, opt.option("DIR", "With --pretrain: where weights are kept.", opt.location)
    ] = "results",
    data_dir: opt.DataDir = None,
) -> None:
    """Fetch and verify data sets and published weights ahead of time, or pretrain weights."""
    if pretrain:
        return _pretrain(names, results, opt.data_folder(data_dir))
    from lr_sweep.datasets import TASKS
    from lr_sweep.sweep.study.backbones import hub_sources
    from lr_sweep.sweep.study.file import listed_studies, load_built_in_study, shipped_studies
    from lr_sweep.trainables.models.published import MODELS
    from lr_sweep.trainables.pretraining.weights import WeightsSource, find_weights

    folder = opt.data_folder(data_dir)
    for name in names:
        if name in TASKS:
            tasks, weights = {name: TASKS[name].Options()}, {}
        elif known := MODELS.get(name):
            source = WeightsSource(
                hub=known.hub, revision=known.revision, sha256=known.sha256, family=known.family
            )
            tasks, weights = {}, {name: source}
        elif name in shipped_studies() or Path(name).suffix in (".yaml", ".yml"):
            study = load_built_in_study(name)
            tasks = {task: wanted.options for task, wanted in study.data_sets.items()}
            weights = hub_sources(study)
        else:
            valid = [*TASKS, *MODELS]
            listed = [*sorted(valid), *listed_studies()]
            raise UserError(
                unknown("task, model or study", name, [*valid, *shipped_studies()], listed)
            )
        for task, options in tasks.items():
            TASKS[task].fetch(options, folder)
            _say(f"{task}: verified in {folder}")
        for model, source in weights.items():
            _say(f"{model}: verified in {find_weights(source, download=True)}")


def _pretrain(studies: list[str], results: str, folder: Path) -> None:
    import torch

    from lr_sweep.sweep.plan.cost import check_disk
    from lr_sweep.sweep.results.directory import storage_problems
    from lr_sweep.sweep.study.backbones import find_backbones, pretrain_model, to_pretrain
    from lr_sweep.sweep.study.file import load_built_in_study
    from lr_sweep.sweep.study.model import PretrainedHere

    recorded, loaded = opt.open_results(results), [load_built_in_study(name) for name in studies]
    recorded.prepare()
    for study in loaded:
        with storage_problems(recorded.root), recorded.writing(study.study):
            backbones = find_backbones(study, recorded.pretrained, folder)
            check_disk((), recorded, to_pretrain(study, backbones))
            for name, backbone in backbones.items():
                model, paths = (
                    study.bodies[name],
                    (recorded.pretrained, recorded.pretraining_progress),
                )
                if not isinstance(model.pretrained, PretrainedHere):
                    source = backbone.source
                    print(f"{name}: nothing to pretrain here; its weights come from {source}")
                elif backbone.here:
                    print(f"{name}: already there: {backbone.source}")
                else:
                    device = torch.device("cpu")
                    print(pretrain_model(name, model, *paths, device, _say, folder))


@command("submit rothermel2021-table1 --results /shared/results --data-dir /shared/data")
def submit(
    study: opt.Study,
    results: Annotated[
        str,
        opt.option(
            "DIR",
            "The results directory, on a disk that all machines share, or s3://BUCKET/PREFIX.",
        ),
    ],
    data_dir: Annotated[str, opt.option("DIR", "The folder of data sets, on such a disk.")],
    address: Address = DEFAULT_ADDRESS,
    no_follow: Annotated[bool, opt.flag("End once the job is accepted.")] = False,
    gpus_per_trial: opt.GpusPerTrial = None,
    only: opt.Only = None,
    fresh: opt.Fresh = None,
    retry_failed: opt.RetryFailed = False,
    restart_inexact: opt.RestartInexact = False,
    checkpoint_every_s: opt.CheckpointEveryS = 60.0,
    strict: opt.Strict = False,
    env: Annotated[
        list[str] | None,
        opt.option(
            "NAME",
            "Pass this environment variable, such as a password, encrypted; may be repeated.",
        ),
    ] = None,
) -> int:
    """Train a study on a cluster: send the program there and follow what it prints."""
    check_paths(results, data_dir)
    if missing := [name for name in env or () if name not in os.environ]:
        raise UserError(f"--env {' '.join(missing)}: not set here; `export` it first")
    (loaded,) = opt.load_studies([study], gpus_per_trial, fresh)
    server = ClusterJobs(address)
    options = ["--checkpoint-every-s", str(checkpoint_every_s)]
    options += ["--only", only_text(only)] if only else []
    flags = {
        "--retry-failed": retry_failed,
        "--restart-inexact": restart_inexact,
        "--strict": strict,
    }
    options += [name for name, given in flags.items() if given]
    secrets = {name: os.environ[name] for name in env or ()}
    job = submit_study(loaded, results, data_dir, server, options, _say, secrets)
    _say(f"{job.name} was accepted")
    return 0 if no_follow else _follow(server, job)


@command("cluster fetch cluster.yaml /shared/results from-the-cluster", cluster)
def fetch(
    file: File,
    folder: Annotated[str, opt.argument("FOLDER", "The results directory, on the cluster's disk.")],
    target: Annotated[
        Path, opt.argument("HERE", "The folder here that becomes its copy.", opt.local_path)
    ],
) -> None:
    """Copy a results directory from the head by ssh, without checkpoints, for the commands that read results."""
    from lr_sweep.sweep.cluster.ssh import fetch

    fetch(file, folder, target)
    _say(
        f"{target} is a copy of {folder}; `{program_command('ls', '--results', str(target))}` lists what it has"
    )


@command("cluster down cluster.yaml", cluster)
def down(file: File, yes: Yes = False) -> int:
    """End a cluster and its sweeps, from any machine with the key; the exit code is 1 if anything is left."""
    from lr_sweep.sweep.cluster.down import end_cluster

    unasked = "nothing was ended: there is no terminal to ask at. Give --yes to end the cluster."
    if not (yes or opt.agreed(f"End the cluster of {file} and all of its sweeps?", unasked)):
        return 1
    left = end_cluster(file)
    for line in [*left, f"{file}: {'not all has ended' if left else 'nothing is left'}"]:
        _say(line)
    return int(bool(left))


@command("cluster jobs", cluster)
def jobs(address: Address = DEFAULT_ADDRESS) -> None:
    """List the submitted studies and who submitted them, and count the machines."""
    server = ClusterJobs(address)
    rows = [
        (job.name, job.status.lower(), _took(job), job.owner, job.results) for job in server.jobs()
    ]
    if rows:
        print("\n".join(fitted([("job", "status", "took", "of", "results"), *rows], 1)))
    else:
        _say(f"no study was submitted to the cluster at {server.address}")
    number = server.machines()
    print(f"{counted(number, 'machine')} {'is' if number == 1 else 'are'} there")


@command("cluster logs rothermel2021-table1", cluster)
def logs(study: JobOf, address: Address = DEFAULT_ADDRESS) -> int:
    """Follow what the newest job of a study prints; Ctrl-C leaves the job running."""
    server = ClusterJobs(address)
    return _follow(server, server.newest(_study_name(study)))


@command("cluster stop rothermel2021-table1", cluster)
def stop(study: JobOf, address: Address = DEFAULT_ADDRESS, yes: Yes = False) -> int:
    """Stop the newest job of a study; it saves its runs first. Another user's job is ended only if you agree."""
    server = ClusterJobs(address)
    job = server.newest(_study_name(study))
    if not job.active:
        _say(f"{job.name} has ended already ({job.status.lower()})")
        return 0
    if not yes and job.owner != owner_here():
        owner = job.owner or "another user"
        whose = f"{job.name} was submitted by {owner}, and you are {owner_here()}"
        again = program_command("cluster", "stop", job.name, "--address", address, "--yes")
        if not opt.agreed(f"{whose}: stop it?", f"{whose}: `{again}` stops it"):
            return 1
    server.stop(job.name)
    if job.status == "PENDING":
        _say(
            f"{job.name} waits for memory on the head: it ends, without training, when its turn comes"
        )
        return 0
    _say(f"{job.name} was asked to stop: it has {STOP_WAIT_S} s to save its runs")
    return 0 if _ended(server, server.follow(job.name, _write)) == 130 else 1


def _study_name(name_or_path: str) -> str:
    """Return a study's name from its name or file; a study that has jobs needs no file here."""
    from lr_sweep.sweep.study.file import load_study

    path = Path(name_or_path)
    return load_study(path).study if path.suffix in (".yaml", ".yml") else name_or_path


def _took(job: Job) -> str:
    return duration((job.ended_s or time.time()) - job.started_s)


def _follow(server: ClusterJobs, job: Job) -> int:
    again = program_command("cluster", "logs", job.name, "--address", server.address)
    try:
        _say(f"following {job.name}; Ctrl-C leaves it running, `{again}` follows it again")
        return _ended(server, server.follow(job.name, _write))
    except KeyboardInterrupt:
        _say(f"\nnot followed any more; {job.name} is still running. Follow it again: {again}")
        return 0


def _ended(server: ClusterJobs, job: Job) -> int:
    """Print how a job ended and return the exit code that `run` would have had here."""
    if job.status == "STOPPED":
        _say(f"{job.name} was stopped; submit the study again to resume it")
        return 130
    _say(f"{job.name} {job.status.lower()} after {_took(job)}; its results: {job.results}")
    if job.status == "SUCCEEDED":
        return 0
    code = job.exit_code or 0
    if code > 0:
        return code
    # No end of `run` itself: a signal ended it, or Ray did.
    cause = f"was lost ({reason(Exception(job.message))})"
    if code:
        cause = f"was killed by {signal.Signals(-code).name}"
    if code == -signal.SIGKILL:
        cause += ", as the system does when memory is short"
    _say(f"its driver {cause}. Submit the study again to resume it.")
    return 1
