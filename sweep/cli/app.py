"""The program as typer sees it: how a command is added, how its help looks, and what its errors become."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from lr_sweep.common.errors import UserError, path_problem, unknown
from lr_sweep.common.program import PROGRAM

F = TypeVar("F", bound=Callable[..., int | None])


class Group(TyperGroup):
    """All commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; raises UserError with the known ones for another name."""
        if args[0] not in self.commands:
            raise UserError(unknown("command", args[0], self.commands, self.commands))
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command: names all wrong options at once, and explains what the user can put right."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for param in self.params:
            param.secondary_opts = []  # typer's `--no-strict` of a flag `--strict`

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; raises UserError or a TyperException."""
        options = {name: param for param in self.get_params(ctx) for name in param.opts if name.startswith("--")}
        words = args[: args.index("--")] if "--" in args else args
        given = [word.partition("=")[0] for word in words if word.startswith("--")]
        mistakes = [unknown("option", name, options) for name in given if name not in options]
        for name, value in pairwise(words):
            if value.startswith("--") and name in options and not getattr(options[name], "is_flag", False):
                mistakes.append(f"{name}: got no value before {value}")
        if mistakes:
            raise UserError("\n".join(mistakes))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List arguments by their names alone, without typer's `<list[str]>`, and options."""
        for kind in ("argument", "option"):
            rows = []
            for param in self.get_params(ctx):
                if param.param_type_name == kind and (record := param.get_help_record(ctx)):
                    name = kind == "argument" and getattr(param, "metavar", None)
                    rows.append((name or record[0], record[1]))
            if rows:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Call the command's function; raises UserError for what the user can put right."""
        _let_threads_sleep()
        try:
            return super().invoke(ctx)
        except OSError as error:
            if (problem := _explained(error, ctx.params)) is None:
                raise
            raise UserError(problem) from error


app = typer.Typer(
    cls=Group,
    add_completion=PROGRAM == "lr-sweep",  # a shell completes what follows the name of a program
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(example: str) -> Callable[[F], F]:
    """Add a function as a command: its docstring is the help, what it returns the exit code (None: 0)."""

    def add(function: F) -> F:
        name, does = function.__name__.rstrip("_"), " ".join((function.__doc__ or "").split())
        short = does[0].lower() + does[1:].rstrip(".")
        epilog = f"\b\nexample:\n  {PROGRAM} {name} {example}"
        return app.command(name, cls=Command, help=does, short_help=short, epilog=epilog)(function)

    return add


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lr-sweep {metadata.version('lr-sweep')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learning-rate sweeps whose conclusions hold."""


def _let_threads_sleep() -> None:
    """Have torch's threads spin but for a moment at the end of an operation; it is not loaded yet, and may read this.

    By default they spin on, which makes pretraining on two of two busy cores many times as slow; asleep at once, it
    is a fifth slower on idle ones (`benchmarks/pretraining_speed.py`).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # GNU's OpenMP, torch's on Linux; others know the policy alone


def _explained(error: OSError, given: dict[str, Any]) -> str | None:
    """Return what to say of an error to a user who gave these arguments; None: it is a mistake of this program."""
    from lr_sweep.analysis.record.access import denied
    from lr_sweep.datasets.files import cache_dir

    if isinstance(error, PermissionError) and error.filename is not None:
        return denied(Path(error.filename))
    paths = [str(each) for value in given.values() for each in (value if isinstance(value, list) else [value])]
    folders = os.environ.get("SWEEP_DATA_DIR", ""), str(cache_dir().parent), tempfile.gettempdir()
    return path_problem(error, [*paths, *folders])
