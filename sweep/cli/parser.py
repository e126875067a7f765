"""The command line: reads arguments, calls the command's function, turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lr_sweep.common.errors import UserError, path_problem
from lr_sweep.common.program import PROGRAM
from lr_sweep.sweep.cli import streams
from lr_sweep.sweep.cli.commands import COMMANDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed runs or problems, 2 cannot be done, 130 stopped."""
    with streams.mended():
        try:
            chosen = parser().parse_args(arguments)
            _let_threads_sleep()
            code = _run(chosen)
        except KeyboardInterrupt:
            streams.say_last("stopped")
            code = 130
        except SystemExit as ending:  # argparse's, which has printed help or a mistake
            raise SystemExit(streams.ended(int(ending.code or 0))) from None
        except BrokenPipeError:  # the reader, such as `head`, has ended
            code = 0
        return streams.ended(code)


def _let_threads_sleep() -> None:
    """Have torch's threads spin but for a moment at the end of an operation; it is not loaded yet, and may read this.

    By default they spin on, which makes pretraining on two of two busy cores many times as slow; asleep at once, it
    is a fifth slower on idle ones (`benchmarks/pretraining_speed.py`).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # GNU's OpenMP, torch's on Linux; others know the policy alone


def _run(chosen: argparse.Namespace) -> int:
    # Imported late: `--help` does not wait for torch.
    from lr_sweep.analysis.record.access import denied
    from lr_sweep.analysis.record.read import RecordError
    from lr_sweep.datasets.task import DataError
    from lr_sweep.trainables.pretraining.weights import WeightsError

    problem: object
    try:
        return int(pkgutil.resolve_name(f"lr_sweep.sweep.cli.{chosen.function}")(chosen))
    except (UserError, DataError, WeightsError, RecordError) as error:
        problem = error
    except OSError as error:
        refused = isinstance(error, PermissionError) and error.filename is not None
        problem = denied(Path(error.filename)) if refused else path_problem(error, _given_paths(chosen))
        if problem is None:
            raise
    sys.stdout.flush()
    streams.say_last(f"error: {problem}")
    return 2


def _given_paths(chosen: argparse.Namespace) -> list[str]:
    """Return the arguments that may be paths, and the folders that are used by default."""
    from lr_sweep.datasets.files import cache_dir

    names = (
        "results",
        "data_dir",
        "archive",
        "target",
        "cluster",
        "study",
        "studies",
        "tables",
        "names",
        "weights",
        "out",
    )
    given = [getattr(chosen, name, None) or [] for name in (*names, "out")]
    paths = [path for each in given for path in (each if isinstance(each, list) else [each])]
    return [*map(str, paths), os.environ.get("SWEEP_DATA_DIR", ""), str(cache_dir().parent), tempfile.gettempdir()]


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    program = argparse.ArgumentParser(prog=PROGRAM, description="Learning-rate sweeps whose conclusions hold.")
    subparsers = program.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for function, does, example, *arguments in COMMANDS:
        name = function.partition(":")[2].rstrip("_")
        subparser = subparsers.add_parser(
            name,
            help=does,
            description=does[0].upper() + does[1:] + ".",
            epilog=f"example:\n  {PROGRAM} {name} {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.set_defaults(function=function)
        for add in arguments:
            add(subparser)
    return program
