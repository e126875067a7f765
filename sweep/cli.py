"""The command line: what each command takes. What they do is in `sweep.commands`."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from sweep.errors import UserError

STUDY_HELP = "a shipped study's name or the path of a .yaml file"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 runs failed, 2 cannot be done, 130 stopped."""
    chosen = _parser().parse_args(arguments)
    _warn_of_other_datasets()
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
    from sweep import commands
    from trainables.initialise import WeightsError

    try:
        code = getattr(commands, chosen.command)(chosen)
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
    for name, does in (
        ("status", "how far a study is; while it runs, and after a crash"),
        ("report", "write tables and figures of what the record holds by now"),
        ("pretrain", "train the weights that a study has a recipe for, and nothing else"),
    ):
        command = _command(commands, name, does, f"python -m sweep {name} quickstart")
        _add_studies(command)
        _add_results(command)
    _add_data(commands)
    _add_ui(commands)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, does: str, example: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=does,
        description=does[0].upper() + does[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "print the grid, what is done, what `run` would train and what it needs; start nothing"
    plan = _command(commands, "plan", does, "python -m sweep plan rothermel2021-table1")
    _add_studies(plan)
    _add_results(plan)
    _add_data_dir(plan)
    _add_resources(plan)
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
        "--checkpoint-every-s",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds between checkpoints; default: 60",
    )


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
