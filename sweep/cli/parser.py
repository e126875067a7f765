"""The command line: reads arguments, calls the command's function, turns errors into messages and exit codes."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

import typer

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import lead_nowhere
from lr_sweep.common.text import PROGRAM
from lr_sweep.sweep.cli import (  # noqa: F401 - their commands
    challenge_command,
    cluster_commands,
    gate_command,
    results_commands,
    study_commands,
)

from .app import GONE_OPTIONS, app
from .options import say


def command() -> NoReturn:
    """Run the command that this process is, and end it without taking Python apart: after torch that takes 1 to 2 s."""
    code = main()
    with contextlib.suppress(KeyboardInterrupt):  # all work is done
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed runs or problems, 2 cannot be done, 130 stopped."""
    if "_LR_SWEEP_COMPLETE" in os.environ:  # a shell asks what may be typed next
        app(prog_name=PROGRAM)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not in UTF-8
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has ended
        lead_nowhere(1)  # Python would write to it once more at its end
        return 0
    except (KeyboardInterrupt, UserError, typer.TyperException, OSError) as error:
        message, code = _message(error)
        _flush()
        say(message, sys.stderr)
    return code


def _run(arguments: list[str]) -> int:
    program = typer.main.get_command(app)
    try:
        with program.make_context(PROGRAM, arguments) as context:
            return int(program.invoke(context) or 0)
    except typer.Exit as ending:  # `--help` has printed it
        return ending.exit_code


def _message(error: BaseException) -> tuple[str, int]:
    """Return what is printed of an error that ends a command, and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", 130
    if isinstance(error, typer.TyperException):
        context, param = (getattr(error, name, None) for name in ("ctx", "param"))
        text = error.format_message().replace("Value error, ", "")
        option = getattr(error, "option_name", "")
        if option in GONE_OPTIONS:
            text = f"{option} is gone: {GONE_OPTIONS[option]}"
        if param and text.startswith("Missing argument"):
            text = f"{text} {param.help}"
        more = f"\n`{context.command_path} --help` says more" if context else ""
        return f"error: {text}{more}", 2
    return f"error: {_of_system(error) if isinstance(error, OSError) else error}", 2


def _of_system(error: OSError) -> str:
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror or error}"


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError:  # a full disk
        lead_nowhere(1)
