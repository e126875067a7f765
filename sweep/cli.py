"""The command line: what each command takes. What they do is in `sweep.commands` and `sweep.results_commands`."""

from __future__ import annotations

import argparse
import importlib
import io
import math
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from sweep.errors import UserError

COMMANDS = "sweep.commands"
"""Where commands are that load studies."""
RESULTS_COMMANDS = "sweep.results_commands"
"""Where commands are that look after a results directory."""

STUDY_HELP = "a shipped study's name or the path of a .yaml file"


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
    from analysis.record import RecordError
    from datasets.task import DataError
    from trainables.pretrained import WeightsError

    try:
        code = getattr(importlib.import_module(chosen.module), chosen.function)(chosen)
    except (UserError, DataError, WeightsError, RecordError) as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return 2
    assert isinstance(code, int)
    return code


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
    _add_report(commands)
    for name, does, module in (
        ("status", "how far a study is; while it runs, and after a crash", RESULTS_COMMANDS),
        ("pretrain", "train the weights that a study has a recipe for, and nothing else", COMMANDS),
    ):
        command = _command(commands, name, does, f"python -m sweep {name} quickstart", module=module)
        _add_studies(command)
        _add_results(command)
    _add_ls(commands)
    _add_show(commands)
    _add_data(commands)
    _add_ui(commands)
    _add_mlflow(commands)
    _add_archives(commands)
    _add_verify(commands)
    _add_gc(commands)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    does: str,
    example: str,
    function: str | None = None,
    module: str = COMMANDS,
) -> argparse.ArgumentParser:
    """Add a command that calls a function of a module, by default one of the command's name."""
    command = commands.add_parser(
        name,
        help=does,
        description=does[0].upper() + does[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(module=module, function=function or name)
    return command


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "print the grid, what is done, what `run` would train, what it needs and costs; train nothing"
    plan = _command(commands, "plan", does, "python -m sweep plan rothermel2021-table1 --measure")
    _add_studies(plan)
    _add_results(plan)
    _add_data_dir(plan)
    _add_resources(plan)
    for device, name in (("CPU", "cpus"), ("GPU", "gpus")):
        plan.add_argument(
            f"--{name}", type=_positive, metavar="N", help=f"{device}s to plan for; default: those of this machine"
        )
    plan.add_argument(
        "--measure", action="store_true", help="time a few steps of each cell here first, and keep the timings"
    )
    plan.add_argument("--ids", action="store_true", help="list every run with its id and state")


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "train what the record lacks of a study, then write its report"
    run = _command(commands, "run", does, "python -m sweep run mnist-small --data-dir ~/data --cpus 2")
    _add_studies(run)
    _add_results(run)
    _add_data_dir(run)
    _add_resources(run)
    run.add_argument(
        "--address", metavar="ADDRESS", help="a running Ray cluster (`auto`, HOST:PORT); default: start one here"
    )
    run.add_argument("--cpus", type=_positive, metavar="N", help="CPUs that a Ray started here may use; default: all")
    run.add_argument("--retry-failed", action="store_true", help="train runs again that ended by an error")
    run.add_argument(
        "--max-attempts",
        type=_positive,
        default=10,
        metavar="N",
        help="with --retry-failed: leave runs alone that were started N times; default: 10",
    )
    run.add_argument(
        "--checkpoint-every-s",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds between checkpoints; default: 60",
    )
    _add_strict(run)


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "write tables, figures and checks of what the record holds by now"
    report = _command(commands, "report", does, "python -m sweep report quickstart --strict", module=RESULTS_COMMANDS)
    _add_studies(report)
    _add_results(report)
    _add_strict(report)


def _add_data(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "fetch and verify data sets and published weights ahead of time"
    data = _command(commands, "data", does, "python -m sweep data mnist cifar10 gpt2 --data-dir ~/data")
    data.add_argument("names", nargs="+", metavar="NAME", help="tasks, known models, or studies (all they need)")
    _add_data_dir(data)


def _add_ui(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ui = _command(commands, "ui", "open the MLflow pages of a results directory", "python -m sweep ui --port 5001")
    _add_results(ui)
    ui.add_argument("--host", default="127.0.0.1", help="address to listen on; default: this machine only")
    ui.add_argument("--port", type=_positive, default=5000, help="default: 5000")


def _add_ls(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "list the studies of a results directory, and every run in it that has ended or started"
    ls = _command(commands, "ls", does, "python -m sweep ls mnist-small", module=RESULTS_COMMANDS)
    ls.add_argument("studies", nargs="*", metavar="STUDY", help="only these studies and their runs, in their order")
    _add_results(ls)


def _add_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "print everything about a run: what defines it, how it ended, what it cost, its files and its curve"
    show = _command(commands, "show", does, "python -m sweep show 0f3a", module=RESULTS_COMMANDS)
    show.add_argument("run", metavar="RUN", help="its id, or at least 4 of its first letters; `ls` lists them")
    _add_results(show)


def _add_mlflow(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "bring MLflow in line with the record: `mlflow sync` fills an empty store, too"
    example = "python -m sweep mlflow sync  # into $MLFLOW_TRACKING_URI, else the database in the results directory"
    mlflow = _command(commands, "mlflow", does, example, "mlflow_sync", RESULTS_COMMANDS)
    mlflow.add_argument("action", choices=["sync"], help="the one action there is")
    mlflow.add_argument("studies", nargs="*", metavar="STUDY", help=f"{STUDY_HELP}; default: all that were run here")
    _add_results(mlflow)


def _add_archives(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "write results into one archive, to carry to another machine; also while a sweep goes on"
    example = "python -m sweep export mnist.tar mnist-small"
    export = _command(commands, "export", does, example, "export_results", RESULTS_COMMANDS)
    export.add_argument("archive", type=Path, metavar="ARCHIVE.tar", help="file to make; one that exists is refused")
    export.add_argument("studies", nargs="*", metavar="STUDY", help="studies by name; default: every run there is")
    export.add_argument(
        "--checkpoints", action="store_true", help="what runs need to be trained further, too; far larger"
    )
    _add_results(export)
    does = "merge an archive into a results directory by run id; nothing changes if anything contradicts"
    example = "python -m sweep import mnist.tar --results results"
    merge = _command(commands, "import", does, example, "import_results", RESULTS_COMMANDS)
    merge.add_argument("archive", type=Path, metavar="ARCHIVE.tar", help="made by `export`")
    _add_results(merge)


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "check every file of a results directory, also while a sweep goes on; exit code 1 if something is wrong"
    verify = _command(commands, "verify", does, "python -m sweep verify --results results", "verify", RESULTS_COMMANDS)
    _add_results(verify)


def _add_gc(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "list what a results directory can do without, and remove what you agree to"
    example = "python -m sweep gc --only leftovers --only checkpoints"
    gc = _command(commands, "gc", does, example, "gc", RESULTS_COMMANDS)
    gc.add_argument("--yes", action="store_true", help="remove it all without asking")
    gc.add_argument(
        "--only",
        action="append",
        choices=["leftovers", "checkpoints", "unwanted"],
        metavar="KIND",
        help="leftovers, checkpoints or unwanted (runs that no recorded study wants); can be given again; default: all",
    )
    _add_results(gc)


def _add_studies(command: argparse.ArgumentParser) -> None:
    command.add_argument("studies", nargs="+", metavar="STUDY", help=STUDY_HELP)


def _add_results(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="results directory; default: ./results"
    )


def _add_data_dir(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="where data sets are or go; default: $SWEEP_DATA_DIR, else lr-sweep/data in your cache folder",
    )


def _add_resources(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cpus-per-trial", type=_positive, metavar="N", help="instead of the study's")
    command.add_argument(
        "--gpus-per-trial", type=float, metavar="G", help="instead of the study's; a fraction shares one"
    )
    command.add_argument("--runs-per-trial", type=_positive, metavar="N", help="instead of the study's")


def _add_strict(command: argparse.ArgumentParser) -> None:
    command.add_argument("--strict", action="store_true", help="exit with code 1 if a report's checks find a problem")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, want a whole number from 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, want a number of seconds above 0")
    return number
