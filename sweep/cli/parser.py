"""The command line: reads arguments, calls the command's function, turns errors into messages and exit codes.

It works also where the standard streams are closed, full, or a pipe that no process reads.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import typer

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import FULL, lead_nowhere
from lr_sweep.common.text import PROGRAM
from lr_sweep.sweep.cli import cluster_commands, judge_command, results_commands, study_commands  # noqa: F401 - their commands
from lr_sweep.sweep.cli.app import app

REDIRECT = "Redirect it to a file with room, or to /dev/null; the same command can be given again."


def command() -> NoReturn:
    """Run the command that this process is, and end it without taking Python apart: after torch that takes 1 to 2 s."""
    code = main()
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    _say_last()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed runs or problems, 2 cannot be done, 130 stopped."""
    if "_LR_SWEEP_COMPLETE" in os.environ:  # a shell asks what may be typed next
        app(prog_name=PROGRAM)
    code = 0
    try:
        with _usable():
            code = _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        _say_last("stopped")
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has ended
        lead_nowhere(1)  # Python would write to it once more at its end
    except (UserError, typer.TyperException) as error:
        _say_last(f"error: {_mistake(error) if isinstance(error, typer.TyperException) else error}")
        return 2
    return code


def _run(arguments: list[str]) -> int:
    program = typer.main.get_command(app)
    try:
        with program.make_context(PROGRAM, arguments) as context:
            return int(program.invoke(context) or 0)
    except typer.Exit as ending:  # `--help` has printed it
        return ending.exit_code


def _mistake(error: typer.TyperException) -> str:
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    message = error.format_message()
    if param is not None and error.message:
        message = f"{_name(param)}: {error.message.removeprefix('Value error, ')}"
    elif param is not None and context is not None:
        needed = [each for each in context.command.params if each.required and each.name not in context.params]
        message = f"missing: {', '.join(map(_name, needed))}"
    return f"{message}\n`{context.command_path} --help` says more" if context else message


def _name(param: Any) -> str:
    return param.opts[0] if param.param_type_name == "option" else param.metavar or param.name


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    """Give a command standard streams that can be used: a closed one leads to the null device.

    Raises UserError if the output is closed, or cannot be written to: what a command prints would be lost.
    """
    closed = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # the file opened next would get its number, and what is printed
            lead_nowhere(number)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    if closed:
        raise UserError(f"the standard output is closed. {REDIRECT}")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not in UTF-8 lacks the blocks of `show`
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in FULL:  # `whole_file` names every other file
            raise
        lead_nowhere(1)
        raise UserError(f"cannot write to the standard output: {error.strerror}. {REDIRECT}") from error


def _say_last(line: str = "") -> None:
    """Print what is left of the output, then a line to the standard errors, as far as they can be written to."""
    for number, stream, text in ((1, sys.stdout, ""), (2, sys.stderr, f"{line}\n" if line else "")):
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            lead_nowhere(number)
