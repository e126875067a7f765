"""Sends a study to a cluster, to be trained there by `run`, whatever becomes of this machine."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from analysis.store import checked, local_path
from sweep.cluster_jobs import DEFAULT_ADDRESS, ClusterJobs, Job
from sweep.errors import UserError
from sweep.package import max_package_bytes, pack
from sweep.provenance import CHECKOUT
from sweep.study import Study
from sweep.study_file import load_study, study_to_yaml
from sweep.text import gigabytes

SENT_STUDY = "submitted/{study}.yaml"
"""Where the study is in the package, with all defaults and absolute paths."""


def submit(
    study: str | Path | Study,
    results: str,
    data_dir: str,
    address: str = DEFAULT_ADDRESS,
    *,
    options: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> Job:
    """Have a cluster train what the record there lacks of a study; return once the job is accepted.

    Args:
        study: one, or the name or file of one.
        results: the results directory, on a disk that all of the cluster's machines see.
        data_dir: where data sets are or go, on such a disk, too.
        address: the URL of the cluster's job server.
        options: more for `run`, such as `["--gpus-per-trial", "0.5"]`.
        say: told what is done.

    Raises:
        UserError: mistakes in the study or the paths, no cluster, a job of the study that goes on, or a checkout that
            is too large.
    """
    check_paths(results, data_dir)
    study = study if isinstance(study, Study) else load_study(study)
    cluster = ClusterJobs(address)
    _refuse_a_second(cluster, study.study, results)
    with tempfile.TemporaryDirectory(prefix="lr-sweep-") as folder:
        package, sent = Path(folder) / "checkout.zip", SENT_STUDY.format(study=study.study)
        size = pack(CHECKOUT, {sent: study_to_yaml(study)}, package, max_package_bytes())
        say(f"sending {CHECKOUT}, {gigabytes(size)}, to {address}")
        command = _command(sent, results, data_dir, options)
        name = cluster.start(study.study, results, command, package)
    return cluster.get(name)


def _refuse_a_second(cluster: ClusterJobs, study: str, results: str) -> None:
    for job in cluster.jobs():
        if not job.going_on:
            continue
        if job.study == study:
            raise UserError(
                f"{job.name} trains this study already, in {job.results}; nothing was sent. Follow it with `python -m "
                f"sweep job logs {study}`; for a study that was changed since, `job stop {study}` and submit it again: "
                f"what was trained stays."
            )
        if PurePosixPath(job.results) == PurePosixPath(results):
            raise UserError(
                f"{job.name} writes to {results}, and a results directory has one writer at a time; nothing was sent. "
                f"Give this study one of its own with --results (`import` merges them later), or submit it when "
                f"{job.name} has ended."
            )


def check_paths(results: str, data_dir: str) -> None:
    """Refuse paths that mean nothing on other machines.

    Raises:
        UserError: some are relative; all are named.
        StoreError: results are at a URI that is no store's.
    """
    folder = local_path(results)
    given = {"--results": folder, "--data-dir": PurePosixPath(data_dir)}
    relative = [f"{option} {path}" for option, path in given.items() if path is not None and not path.is_absolute()]
    if folder is None:
        checked(results)
    if relative:
        raise UserError(
            f"got {' and '.join(relative)}, want absolute paths: they are folders on a disk that all of the cluster's "
            f"machines see, such as /shared/results. The job itself runs in a folder that is thrown away."
        )


def _command(study: str, results: str, data_dir: str, options: Sequence[str]) -> str:
    """Return what the head runs; `exec`, so that a stop reaches Python and no shell in between."""
    words = ["python", "-m", "sweep", "run", study, "--address", "auto", "--results", results, "--data-dir", data_dir]
    return f"exec {shlex.join([*words, *options])}"
