"""Sends a study to a cluster, where a job trains it with `run`; this machine may be switched off then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from lr_sweep.common.errors import UserError
from lr_sweep.common.object_store import checked, local_path
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.source_code import CHECKOUT
from lr_sweep.common.text import gigabytes
from lr_sweep.sweep.cluster.jobs import ClusterJobs, Job, driver_command
from lr_sweep.sweep.cluster.package import copy_program
from lr_sweep.sweep.study.file import study_to_yaml
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.own.run import write_code


def submit(
    study: Study, results: str, data_dir: str, server: ClusterJobs, options: Sequence[str], say: Callable[[str], None]
) -> Job:
    """Start a job that trains the runs of a study that the record on the cluster lacks; do not wait for its end.

    Args:
        study: what to train.
        results: the results directory, on a disk that all of the cluster's machines see, or a store.
        data_dir: where data sets are or are downloaded to, on such a disk.
        server: the cluster's job server.
        options: further options of `run`, such as `["--gpus-per-trial", "0.5"]`.
        say: receives a line about what is sent.

    Raises UserError while a job of the study, or one that writes there, is running.
    """
    _refuse_a_second(server, study.study, results)
    with scratch_folder("copy-") as folder:
        size = copy_program(folder)
        sent = f"{study.study}.yaml"  # with all defaults and absolute paths
        (folder / sent).write_text(study_to_yaml(study), encoding="utf-8")
        if study.files is not None:  # data files are looked for in the data directory
            write_code(study.files, folder)
        say(f"sending {CHECKOUT}, {gigabytes(size)}, to {server.address}")
        run = ("run", sent, "--address", "auto", "--results", results, "--data-dir", data_dir, *options)
        name = server.start(study.study, results, driver_command(run), folder)
    return server.get(name)


def _refuse_a_second(cluster: ClusterJobs, study: str, results: str) -> None:
    for job in filter(lambda job: job.active, cluster.jobs()):
        if job.study == study:
            raise UserError(
                f"{job.name} trains this study already, in {job.results}; nothing was sent. Follow it with "
                f"`cluster logs {study}`. If the study has changed since, `cluster stop {study}` and submit it again: "
                f"what was trained stays."
            )
        if PurePosixPath(job.results) == PurePosixPath(results):
            raise UserError(
                f"{job.name} writes to {results}, and a results directory has one writer at a time; nothing was sent. "
                f"Give this study one of its own with --results (`merge` joins them later), or submit it when "
                f"{job.name} has ended."
            )


def check_paths(results: str, data_dir: str) -> None:
    """Raise UserError for relative paths, which mean nothing on other machines, StoreError for URIs of no store."""
    folder = local_path(results)
    given = {"--results": folder, "--data-dir": PurePosixPath(data_dir)}
    relative = [f"{option} {path}" for option, path in given.items() if path is not None and not path.is_absolute()]
    if folder is None:
        checked(results)
    if relative:
        raise UserError(
            f"got {' and '.join(relative)}, want absolute paths: they are folders on a disk that all of the cluster's "
            f"machines see, such as /shared/results. The job itself runs in a temporary folder."
        )
