"""The command line: what each command takes. What they do is in `sweep.commands` and `sweep.results_commands`."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from sweep.cli_options import (
    CLUSTER_COMMANDS,
    COMMANDS,
    RESULTS_COMMANDS,
    STUDY_HELP,
    Subparsers,
    add_address,
    add_command,
    add_data_dir,
    add_priority,
    add_resources,
    add_results,
    add_retries,
    add_strict,
    add_studies,
    local_file,
    port,
    positive,
)
from sweep.errors import UserError, path_problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed runs or problems, 2 cannot be done, 130 stopped."""
    chosen = _parser().parse_args(arguments)
    _warn_of_other_datasets()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not in UTF-8 lacks the blocks of `show`
    try:
        code = _run(chosen)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _run(chosen: argparse.Namespace) -> int:
    # Imported late: `--help` need not wait for torch.
    from analysis.access import denied
    from analysis.record import RecordError
    from datasets.task import DataError
    from trainables.pretrained import WeightsError

    try:
        code = getattr(importlib.import_module(chosen.module), chosen.function)(chosen)
    except (UserError, DataError, WeightsError, RecordError) as error:
        return _refused(error)
    except PermissionError as error:
        if error.filename is None:
            raise
        return _refused(denied(Path(error.filename)))
    except OSError as error:
        problem = path_problem(error, _given_paths(chosen))
        if problem is None:
            raise
        return _refused(problem)
    assert isinstance(code, int)
    return code


def _refused(problem: object) -> int:
    sys.stdout.flush()
    print(f"error: {problem}", file=sys.stderr)
    return 2


def _given_paths(chosen: argparse.Namespace) -> list[str]:
    """Return what the user named that may be a path, and the folders that are used where the user named none."""
    from datasets.files import cache_dir

    names = ("results", "data_dir", "archive", "cluster", "study", "studies", "names")
    given = [getattr(chosen, name, None) or [] for name in names]
    paths = [path for each in given for path in (each if isinstance(each, list) else [each])]
    return [*map(str, paths), os.environ.get("SWEEP_DATA_DIR", ""), str(cache_dir().parent), tempfile.gettempdir()]


def _warn_of_other_datasets() -> None:
    try:
        version = metadata.version("datasets")
    except metadata.PackageNotFoundError:
        return
    print(
        f"warning: Hugging Face's distribution `datasets` {version} is installed here too. This program's own folder "
        f"of that name is used, because it is started from its checkout; other programs are not affected.",
        file=sys.stderr,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sweep", description="Learning-rate sweeps whose conclusions hold.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_plan(commands)
    _add_run(commands)
    _add_submit(commands)
    _add_job(commands)
    _add_report(commands)
    for name, does, module in (
        ("status", "how far a study is; while it runs, and after a crash", RESULTS_COMMANDS),
        ("pretrain", "train the weights that a study has a recipe for, and nothing else", COMMANDS),
    ):
        command = add_command(commands, name, does, f"python -m sweep {name} quickstart", module=module)
        add_studies(command)
        add_results(command)
    _add_ls(commands)
    _add_show(commands)
    _add_data(commands)
    _add_ui(commands)
    _add_mlflow(commands)
    _add_archives(commands)
    _add_verify(commands)
    _add_gc(commands)
    return parser


def _add_plan(commands: Subparsers) -> None:
    does = "print the grid, what is done, what `run` would train, what it needs and costs; train nothing"
    plan = add_command(commands, "plan", does, "python -m sweep plan rothermel2021-table1 --measure")
    add_studies(plan)
    add_results(plan)
    add_data_dir(plan)
    add_resources(plan)
    for device, name in (("CPU", "cpus"), ("GPU", "gpus")):
        plan.add_argument(
            f"--{name}",
            type=positive,
            metavar="N",
            help=f"{device}s to plan for, of another machine for one; default: those of this machine",
        )
    plan.add_argument(
        "--measure", action="store_true", help="time a few steps of each cell here first, and keep the timings"
    )
    plan.add_argument("--ids", action="store_true", help="list every run with its id and state")


def _add_run(commands: Subparsers) -> None:
    does = "train what the record lacks of a study, then write its report"
    run = add_command(commands, "run", does, "python -m sweep run mnist-small --data-dir ~/data --cpus 2")
    add_studies(run)
    add_results(run)
    add_data_dir(run)
    add_resources(run)
    run.add_argument(
        "--address", metavar="ADDRESS", help="a running Ray cluster (`auto`, HOST:PORT); default: start one here"
    )
    run.add_argument("--cpus", type=positive, metavar="N", help="CPUs that a Ray started here may use; default: all")
    add_priority(run)
    add_retries(run)
    add_strict(run)


def _add_submit(commands: Subparsers) -> None:
    does = "train a study on a cluster: sends the program there, and follows what it prints"
    example = "python -m sweep submit rothermel2021-table1 --results /shared/results --data-dir /shared/data"
    submit = add_command(commands, "submit", does, example, "submit_study", CLUSTER_COMMANDS)
    submit.add_argument("study", metavar="STUDY", help=STUDY_HELP)
    add_address(submit)
    submit.add_argument(
        "--results",
        required=True,
        metavar="DIR",
        help="results directory, on a disk that all machines there see, or s3://BUCKET/PREFIX",
    )
    submit.add_argument("--data-dir", required=True, metavar="DIR", help="where data sets are or go, on such a disk")
    submit.add_argument("--no-follow", action="store_true", help="end once the job is accepted")
    add_resources(submit)
    add_priority(submit)
    add_retries(submit)
    add_strict(submit)


def _add_job(commands: Subparsers) -> None:
    does = "look after submitted studies: `job status`, `job logs` to come back to one, `job stop` to save and end it"
    example = "python -m sweep job logs rothermel2021-table1"
    job = add_command(commands, "job", does, example, "job", CLUSTER_COMMANDS)
    job.add_argument("action", choices=["status", "logs", "stop"], help="what to do with the newest job of the study")
    job.add_argument("study", nargs="?", metavar="STUDY", help=f"{STUDY_HELP}; `status` takes none for all")
    add_address(job)


def _add_report(commands: Subparsers) -> None:
    does = "write tables, figures and checks of what the record holds by now"
    report = add_command(
        commands, "report", does, "python -m sweep report quickstart --strict", module=RESULTS_COMMANDS
    )
    add_studies(report)
    add_results(report)
    add_strict(report)


def _add_data(commands: Subparsers) -> None:
    does = "fetch and verify data sets and published weights ahead of time"
    data = add_command(commands, "data", does, "python -m sweep data mnist cifar10 gpt2 --data-dir ~/data")
    data.add_argument("names", nargs="+", metavar="NAME", help="tasks, known models, or studies (all they need)")
    add_data_dir(data)


def _add_ui(commands: Subparsers) -> None:
    does = "open the MLflow pages of a results directory, or those of a cluster and Ray's, through ssh"
    ui = add_command(commands, "ui", does, "python -m sweep ui --cluster cluster.yaml")
    where = ui.add_mutually_exclusive_group()
    add_results(where)
    where.add_argument(
        "--cluster", type=local_file, metavar="FILE", help="what `ray up` was given: open tunnels to its head"
    )
    ui.add_argument("--host", default="127.0.0.1", help="address to listen on; default: this machine only")
    ui.add_argument("--port", type=port, default=5000, help="default: 5000")


def _add_ls(commands: Subparsers) -> None:
    does = (
        "list the studies of a results directory, and every run in it that has ended or started, with its accuracy on "
        "validation and test data at the step where validation is highest"
    )
    ls = add_command(commands, "ls", does, "python -m sweep ls mnist-small", module=RESULTS_COMMANDS)
    ls.add_argument("studies", nargs="*", metavar="STUDY", help="only these studies and their runs, in their order")
    add_results(ls)


def _add_show(commands: Subparsers) -> None:
    does = "print everything about a run: what defines it, how it ended, what it cost, its files and its curve"
    show = add_command(commands, "show", does, "python -m sweep show 0f3a", module=RESULTS_COMMANDS)
    show.add_argument("run", metavar="RUN", help="its id, or at least 4 of its first letters; `ls` lists them")
    add_results(show)


def _add_mlflow(commands: Subparsers) -> None:
    does = "bring MLflow in line with the record: `mlflow sync` fills an empty store, too"
    example = "python -m sweep mlflow sync  # into $MLFLOW_TRACKING_URI, else the database in the results directory"
    mlflow = add_command(commands, "mlflow", does, example, "mlflow_sync", RESULTS_COMMANDS)
    mlflow.add_argument("action", choices=["sync"], help="the one action there is")
    mlflow.add_argument("studies", nargs="*", metavar="STUDY", help=f"{STUDY_HELP}; default: all that were run here")
    add_results(mlflow)


def _add_archives(commands: Subparsers) -> None:
    does = "write what verifies into one archive, to carry to another machine; exit code 1 if something is left out"
    example = "python -m sweep export mnist.tar mnist-small"
    export = add_command(commands, "export", does, example, "export_results", RESULTS_COMMANDS)
    export.add_argument(
        "archive", type=local_file, metavar="ARCHIVE.tar", help="file to make; one that exists is refused"
    )
    export.add_argument("studies", nargs="*", metavar="STUDY", help="studies by name; default: every run there is")
    export.add_argument(
        "--checkpoints", action="store_true", help="what runs need to be trained further, too; far larger"
    )
    add_results(export)
    does = "merge an archive into a results directory by run id; nothing changes if anything contradicts"
    example = "python -m sweep import mnist.tar --results results"
    merge = add_command(commands, "import", does, example, "import_results", RESULTS_COMMANDS)
    merge.add_argument("archive", type=local_file, metavar="ARCHIVE.tar", help="made by `export`")
    add_results(merge)


def _add_verify(commands: Subparsers) -> None:
    does = "check every file of a results directory, also while a sweep goes on; exit code 1 if something is wrong"
    verify = add_command(
        commands, "verify", does, "python -m sweep verify --results results", "verify", RESULTS_COMMANDS
    )
    add_results(verify)


def _add_gc(commands: Subparsers) -> None:
    does = "list what a results directory can do without, and remove what you agree to"
    example = "python -m sweep gc --only leftovers --only checkpoints"
    gc = add_command(commands, "gc", does, example, "gc", RESULTS_COMMANDS)
    gc.add_argument("--yes", action="store_true", help="remove it all without asking")
    gc.add_argument(
        "--only",
        action="append",
        choices=["leftovers", "checkpoints", "unwanted"],
        metavar="KIND",
        help="leftovers, checkpoints or unwanted (runs that no recorded study wants); can be given again; default: all",
    )
    add_results(gc)
