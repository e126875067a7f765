"""Options that several commands take, and what they may say."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from sweep.cluster_jobs import DEFAULT_ADDRESS

COMMANDS = "sweep.commands"
"""Where commands are that load studies."""
RESULTS_COMMANDS = "sweep.results_commands"
"""Where commands are that look after a results directory."""
CLUSTER_COMMANDS = "sweep.cluster_commands"
"""Where commands are that speak to a cluster's job server."""

LONGEST_S = 1_000_000
"""Of seconds between checkpoints: eleven days."""

STUDY_HELP = "a shipped study's name or the path of a .yaml file"

Subparsers = argparse._SubParsersAction
"""Of the program's parser, to add a command to."""


def add_command(
    commands: Subparsers,
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


def add_address(command: argparse.ArgumentParser) -> None:
    """Where the cluster is."""
    command.add_argument(
        "--address",
        default=DEFAULT_ADDRESS,
        metavar="URL",
        help=f"of its job server; default: {DEFAULT_ADDRESS}",
    )


def add_retries(command: argparse.ArgumentParser) -> None:
    """What of failures is tried again, and how much a crash may cost."""
    command.add_argument("--retry-failed", action="store_true", help="train runs again that ended by an error")
    command.add_argument(
        "--max-attempts",
        type=positive,
        default=10,
        metavar="N",
        help="with --retry-failed: leave runs alone that were started N times; default: 10",
    )
    command.add_argument(
        "--checkpoint-every-s",
        type=seconds,
        default=60.0,
        metavar="S",
        help="seconds between checkpoints; default: 60",
    )


def add_studies(command: argparse.ArgumentParser) -> None:
    """One study or more."""
    command.add_argument("studies", nargs="+", metavar="STUDY", help=STUDY_HELP)


def add_results(command: argparse._ActionsContainer) -> None:
    """The results directory."""
    command.add_argument(
        "--results",
        type=location,
        default="results",
        metavar="DIR",
        help="results directory, or s3://BUCKET/PREFIX (docs/storage.md); default: ./results",
    )


def add_data_dir(command: argparse.ArgumentParser) -> None:
    """Where data sets are."""
    command.add_argument(
        "--data-dir",
        type=local_file,
        metavar="DIR",
        help="where data sets are or go; default: $SWEEP_DATA_DIR, else lr-sweep/data in your cache folder",
    )


def add_resources(command: argparse.ArgumentParser) -> None:
    """What a trial holds."""
    command.add_argument("--cpus-per-trial", type=positive, metavar="N", help="instead of the study's")
    command.add_argument(
        "--gpus-per-trial", type=float, metavar="G", help="instead of the study's; a fraction shares one"
    )
    command.add_argument("--runs-per-trial", type=positive, metavar="N", help="instead of the study's")


def add_priority(command: argparse.ArgumentParser) -> None:
    """Beside other sweeps."""
    command.add_argument(
        "--priority",
        type=positive,
        default=1,
        metavar="N",
        help="beside other sweeps on the cluster: twice as many trials at once with 2 as with 1; default: 1",
    )


def add_strict(command: argparse.ArgumentParser) -> None:
    """Whether checks decide the exit code."""
    command.add_argument("--strict", action="store_true", help="exit with code 1 if a report's checks find a problem")


def positive(text: str) -> int:
    """Read a whole number from 1."""
    return _whole(text, 1_000_000)


def port(text: str) -> int:
    """Read a TCP port."""
    return _whole(text, 65_535)


def _whole(text: str, most: int) -> int:
    if not text.isdecimal() or len(text) > 20 or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"got {_cut(text)}, want a whole number from 1 to {most}")
    return int(text)


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"got {_cut(text)}, want a number of seconds above 0, {LONGEST_S} at most")
    return number


def location(text: str) -> str:
    """Check a path, or the URI of a store."""
    try:
        Path(text).expanduser().resolve()
    except (RuntimeError, OSError) as error:  # `~nouser`, a link that leads to itself, a folder that may not be read
        raise argparse.ArgumentTypeError(f"got {_cut(text)}: {error}; write the path out") from error
    return text


def local_file(text: str) -> Path:
    """Read a path; `~` is the user's home, as in a shell."""
    return Path(location(text)).expanduser()


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
