"""The commands with their arguments, in the order of `--help`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lr_sweep.sweep.cli.types import local_path, location, positive, price, seconds
from lr_sweep.sweep.cluster.jobs import DEFAULT_ADDRESS
from lr_sweep.sweep.plan.gpus import GPUS
from lr_sweep.sweep.study.only import ALL_RUNS, parse_only

Argument = Callable[[argparse._ActionsContainer], object]
"""Adds an argument, or several, to a command."""
Command = tuple[str, str, str, *tuple[Argument, ...]]
"""`MODULE:FUNCTION` of this package (the command has the function's name), what it does, an example, its arguments."""


def _argument(*names: str, **settings: Any) -> Argument:
    return lambda command: command.add_argument(*names, **settings)


def _flag(name: str, does: str) -> Argument:
    return _argument(name, action="store_true", help=does)


def _number(name: str, does: str, default: int | None = None) -> Argument:
    return _argument(name, type=positive, default=default, metavar="N", help=does)


def _results_or_cluster(command: argparse._ActionsContainer) -> None:
    group = command.add_mutually_exclusive_group()
    RESULTS(group)
    cluster_help = "file given to `ray up`: open tunnels to its head"
    group.add_argument("--cluster", type=local_path, metavar="FILE", help=cluster_help)


def _export_form(command: argparse._ActionsContainer) -> None:
    group = command.add_mutually_exclusive_group()
    _flag("--checkpoints", "include what runs need to be trained further; far larger")(group)
    _flag("--csv", "write every evaluation into a CSV file instead, for `judge`, pandas or W&B")(group)
    _flag("--tensorboard", "write event files into a folder instead, one a run, for TensorBoard")(group)


def _direction(command: argparse._ActionsContainer) -> None:
    group = command.add_mutually_exclusive_group()
    more_help = "of the metric; default: by its name"
    group.add_argument("--lower-is-better", dest="higher_is_better", action="store_false", default=None, help=more_help)
    group.add_argument("--higher-is-better", dest="higher_is_better", action="store_true", default=None, help=more_help)


STUDY_HELP = "a shipped study's name or the path of a .yaml file"
STUDY = _argument("study", metavar="STUDY", help=STUDY_HELP)
STUDIES = _argument("studies", nargs="+", metavar="STUDY", help=STUDY_HELP)
RESULTS = _argument(
    "--results",
    type=location,
    default="results",
    metavar="DIR",
    help="results directory, or s3://BUCKET/PREFIX (docs/storage.md); default: ./results",
)
RECORDED = (STUDIES, RESULTS)
DATA_DIR = _argument(
    "--data-dir",
    type=local_path,
    metavar="DIR",
    help="folder of data sets; default: $SWEEP_DATA_DIR, else lr-sweep/data in your cache folder",
)
RESOURCES = (
    _number("--cpus-per-trial", "default: the study's"),
    _argument("--gpus-per-trial", type=float, metavar="G", help="default: the study's; a fraction shares a GPU"),
    _number("--runs-per-trial", "default: the study's"),
)
ONLY = _argument(
    "--only",
    type=parse_only,
    default=ALL_RUNS,
    metavar="AXIS=VALUE,...",
    help="a part of the study's runs: variant=frozen-random,learning_rate=1e-3; values of an axis are alternatives",
)
STRICT = _flag("--strict", "exit with code 1 if a report's checks find a problem")
TRAINING = (
    *RESOURCES,
    _number("--priority", "a sweep with 2 gets twice as many trials at once as one with 1; default: 1", 1),
    ONLY,
    _flag("--replace", "train a changed study though it no longer wants runs that are recorded; default: ask"),
    _flag("--retry-failed", "train failed runs again, and stopped ones further"),
    _number("--max-attempts", "with --retry-failed: skip runs that were started N times; default: 10", 10),
    _argument(
        "--checkpoint-every-s", type=seconds, default=60.0, metavar="S", help="seconds between checkpoints; default: 60"
    ),
    STRICT,
)
ADDRESS = _argument(
    "--address", default=DEFAULT_ADDRESS, metavar="URL", help=f"the cluster's job server; default: {DEFAULT_ADDRESS}"
)
RUN = _argument("run", metavar="RUN", help="its id, or at least 4 of its first letters; `ls` lists them")
OUT = _argument(
    "--out", type=local_path, default=Path(), metavar="FOLDER", help="where files are written; default: this folder"
)
ARCHIVE = _argument("archive", type=local_path, metavar="ARCHIVE.tar", help="an archive")

COMMANDS: tuple[Command, ...] = (
    (
        "study_commands:plan",
        "print the grid, what is done, what `run` would train, what it needs and costs; train nothing",
        "rothermel2021-table1 --measure",
        *RECORDED,
        DATA_DIR,
        *RESOURCES,
        _number("--cpus", "CPUs to plan for, if not those of this machine"),
        _number("--gpus", "GPUs to plan for, if not those of this machine"),
        _argument(
            "--device", choices=list(GPUS), help="a GPU that need not be here: what was not timed on one is computed"
        ),
        _argument("--price", type=price, metavar="PER_HOUR", help="of an hour of a device: prints what runs cost"),
        ONLY,
        _flag("--measure", "time a few steps of each cell here first, and keep the timings"),
        _flag("--ids", "list every run with its id and state"),
    ),
    (
        "study_commands:run",
        "train what the record lacks of a study, then write its report",
        "rothermel2021-table1 --data-dir ~/data --cpus 2",
        *RECORDED,
        DATA_DIR,
        _argument("--address", help="a running Ray cluster (`auto`, HOST:PORT); default: start Ray here"),
        _number("--cpus", "CPUs that a Ray started here may use; default: all"),
        _flag("--force", "let --cpus be more than this machine has"),
        *TRAINING,
    ),
    (
        "cluster_commands:submit",
        "train a study on a cluster: send the program there, and follow what it prints",
        "rothermel2021-table1 --results /shared/results --data-dir /shared/data",
        STUDY,
        ADDRESS,
        _argument(
            "--results",
            required=True,
            metavar="DIR",
            help="results directory, on a disk that all machines there share, or s3://BUCKET/PREFIX",
        ),
        _argument("--data-dir", required=True, metavar="DIR", help="folder of data sets, on such a disk"),
        _flag("--no-follow", "end once the job is accepted"),
        *TRAINING,
    ),
    (
        "cluster_commands:job",
        "`job status` lists submitted studies, `job logs` follows one, `job stop` makes it save and end",
        "logs rothermel2021-table1",
        _argument("action", choices=["status", "logs", "stop"], help="what to do with the newest job of the study"),
        _argument("study", nargs="?", metavar="STUDY", help=f"{STUDY_HELP}; `status` without one lists all"),
        ADDRESS,
    ),
    (
        "cluster_commands:cluster",
        "`cluster check` says what is wrong in a cluster file, before `ray up` starts machines; exit code 1 if "
        "something is",
        "check cluster.yaml",
        _argument("action", choices=["check"], help="the only action"),
        _argument("file", type=local_path, metavar="FILE", help="the file that `ray up` is to be given"),
    ),
    (
        "results_commands:report",
        "write tables, figures and checks of what is recorded so far",
        "quickstart --strict",
        *RECORDED,
        STRICT,
        _flag("--watch", "write them again whenever a run has ended, until Ctrl-C; an open page refreshes itself"),
    ),
    (
        "table_commands:judge",
        "write tables, figures and checks of runs that any program made, from CSV or Parquet files (docs/judge.md)",
        "runs.csv --columns learning_rate=lr,validation=val_acc",
        _argument("tables", nargs="+", type=local_path, metavar="TABLE", help="a row a run, or a row an evaluation"),
        _argument(
            "--columns",
            action="append",
            metavar="MEANING=NAME,...",
            help="which column is task, model, variant, learning_rate, seed, step, num_steps, run, status, validation, "
            "test or train, where its name does not say it; MEANING= for none",
        ),
        _argument("--metric", metavar="NAME", help="name of the metric; default: the name of validation's column"),
        _direction,
        _flag("--select-on-test", "choose on test data, in a table without validation data; the report says so"),
        _argument("--out", type=local_path, metavar="FOLDER", help="of the report; default: ./judged/TABLE"),
        STRICT,
    ),
    (
        "results_commands:stop",
        "end one run of a sweep that is running; the others train on, and `run --retry-failed` trains it further",
        "0f3a",
        RUN,
        RESULTS,
    ),
    (
        "results_commands:status",
        "print the progress of a study, while it runs or after a crash",
        "quickstart",
        *RECORDED,
    ),
    (
        "study_commands:pretrain",
        "pretrain the weights that a study has a recipe for; train no run",
        "quickstart",
        *RECORDED,
        DATA_DIR,
    ),
    (
        "results_commands:ls",
        "list the studies of a results directory, and every run that has started or ended, with its accuracies at the "
        "step of the highest validation accuracy",
        "quickstart",
        _argument("studies", nargs="*", metavar="STUDY", help="only these studies and their runs, in their order"),
        RESULTS,
    ),
    (
        "results_commands:show",
        "print everything about a run: what defines it, how it ended, what it cost, its files and its curve",
        "0f3a --log",
        RUN,
        _flag("--log", "its log instead: starts, evaluations, what a training function printed, failures"),
        RESULTS,
    ),
    (
        "model_commands:attention",
        "write what a trained GPT-2 attends to in its first layer, as an array and a figure (Lu et al. 2021, figure 4)",
        "0f3a --examples 8 --out maps",
        RUN,
        RESULTS,
        DATA_DIR,
        _number("--examples", "how many test examples, the first ones; default: 1", 1),
        _argument(
            "--layer", type=partial(positive, least=0), default=0, metavar="N", help="from 0; default: 0, the first"
        ),
        OUT,
    ),
    (
        "model_commands:deviations",
        "write the standard deviations of pretrained weights by layer, as a table and a figure (Lu et al. 2021, "
        "figure 6)",
        "rothermel2021-table1 --out figures",
        _argument(
            "weights", type=location, metavar="STUDY|FOLDER", help="a study with pretrained weights, or their folder"
        ),
        _argument("--model", metavar="NAME", help="which of the study's models; default: the only one with weights"),
        RESULTS,
        OUT,
    ),
    (
        "study_commands:data",
        "fetch and verify data sets and published weights ahead of time",
        "mnist cifar10 gpt2 --data-dir ~/data",
        _argument("names", nargs="+", metavar="NAME", help="tasks, known models, or studies (all they need)"),
        DATA_DIR,
    ),
    (
        "results_commands:ui",
        "open the MLflow pages of a results directory, or those of a cluster and Ray's, through ssh",
        "--cluster cluster.yaml",
        _results_or_cluster,
        _argument("--host", default="127.0.0.1", help="address to listen on; default: this machine only"),
        _argument("--port", type=partial(positive, most=65_535), default=5000, help="default: 5000"),
    ),
    (
        "results_commands:mlflow",
        "`mlflow sync` rebuilds MLflow from the record; it fills an empty store, too",
        "sync  # into $MLFLOW_TRACKING_URI, else the database in the results directory",
        _argument("action", choices=["sync"], help="the only action"),
        _argument("studies", nargs="*", metavar="STUDY", help=f"{STUDY_HELP}; default: all that were run here"),
        RESULTS,
    ),
    (
        "results_commands:export",
        "write everything that is intact into one archive; exit code 1 if something is left out",
        "quickstart.tar quickstart",
        _argument(
            "target", type=local_path, metavar="TARGET", help="the file or folder to make; `export` replaces none"
        ),
        _argument("studies", nargs="*", metavar="STUDY", help="studies by name; default: every run there is"),
        _export_form,
        RESULTS,
    ),
    (
        "results_commands:import_",
        "merge an archive into a results directory by run id; if anything contradicts, nothing is changed",
        "mnist.tar --results results",
        ARCHIVE,
        RESULTS,
    ),
    (
        "results_commands:verify",
        "check every file of a results directory, also during a sweep; exit code 1 if something is wrong",
        "--results results",
        _argument(
            "studies",
            nargs="*",
            metavar="STUDY",
            help="train a few steps of the training functions of these, too: do they repeat, and resume exactly?",
        ),
        RESULTS,
        DATA_DIR,
    ),
    (
        "results_commands:gc",
        "list what can be removed from a results directory, and ask before removing it",
        "--only leftovers --only checkpoints",
        _flag("--yes", "remove it all without asking"),
        _argument(
            "--only",
            action="append",
            choices=["leftovers", "scratch", "checkpoints", "unwanted"],
            metavar="KIND",
            help="leftovers, scratch, checkpoints or unwanted (runs that no study wants); repeatable; default: all",
        ),
        RESULTS,
    ),
)
