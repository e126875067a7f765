"""The program as typer sees it: how a command is added, how its help looks, and what its errors become."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.text import PROGRAM

EXAMPLE = "Example:\n  "
F = TypeVar("F", bound=Callable[..., int | None])


PANELS = {
    "A study": ("run", "plan", "report", "status", "init"),
    "Results": ("ls", "show", "ui", "verify", "challenge", "export", "gc"),
    "Tables": ("judge", "gate"),
    "Clusters and data": ("data", "submit", "cluster"),
}
"""Commands as `--help` lists them, the most used ones first."""
INSTEAD = {
    "check": "gone: `ray up` checks a cluster file",
    "figure": "gone: `safetensors` reads the tensors of a run's checkpoint",
    "job": "gone: use `cluster jobs`, `cluster logs` or `cluster stop`",
    "merge": "gone: copy the files with `rsync -a --ignore-existing`, then `verify` (docs/guarantees.md)",
    "mlflow": "gone: use `export --mlflow`",
    "pretrain": "gone: use `data STUDY --pretrain`",
    "stop": "gone: stop the sweep (Ctrl-C), then `run` the learning rates that you want with `--only`",
    "laws": "a part of every report: `judge TABLE` or `report STUDY` (docs/laws.md)",
    "decide": "an option of judge: `judge TABLE --decide FRESH`; in a study, write `fresh` (docs/rates-and-seeds.md)",
    "resume": "not needed: `run STUDY` resumes",
    "help": "an option: `--help`",
}
"""Names that users try as commands, or that earlier versions had, and what to use."""
_IN_STUDY = "copy the study and write `resources: {cpus_per_trial: N, runs_per_trial: N}`"
GONE_OPTIONS = {
    "--cpus-per-trial": _IN_STUDY,
    "--runs-per-trial": _IN_STUDY,
    "--max-attempts": "--retry-failed trains all failed runs again",
    "--force": "give a smaller --cpus",
    "--csv": "leave it out, as CSV is the only format",
    "--hf-trainer": "write --kind hf-trainer",
    "--lightning": "write --kind lightning",
    "--command": "write --kind command",
    "--cluster": "write `ui FILE`",
}
"""Options of earlier versions, and what to use."""


class Group(TyperGroup):
    """Commands of one name, such as `cluster jobs` and `cluster logs`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command; without any word, print the help and exit with code 2, as git and uv."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; raises UserError with the known ones for another name."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known:
            instead = f"`{name}` is {INSTEAD[name]}" if name in INSTEAD else None
            raise UserError(instead or unknown("command", name, known, known))
        return super().resolve_command(ctx, args)


class Program(Group):
    """All commands, in panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names as `--help` lists them."""
        return [name for names in PANELS.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List each panel's commands with all of their help; typer draws panels in its own markup alone."""
        for panel, names in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl([(name, self.commands[name].help) for name in names])


class Command(TyperCommand):
    """A command whose help lists arguments and options by their own names."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for param in self.params:
            param.secondary_opts = []  # typer's `--no-strict` of a flag `--strict`

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the arguments and the options."""
        for kind in ("argument", "option"):
            if rows := self.described(ctx, kind):
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(rows)

    def described(self, ctx: Any, kind: str) -> list[tuple[str, str]]:
        """Return names and help of the arguments, without typer's `<list[str]>`, or of the options."""
        params = [param for param in self.get_params(ctx) if param.param_type_name == kind]
        records = [(param, param.get_help_record(ctx)) for param in params]
        return [
            (
                getattr(param, "metavar", None) or record[0] if kind == "argument" else record[0],
                record[1],
            )
            for param, record in records
            if record
        ]


app = typer.Typer(
    cls=Program,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def group(name: str, does: str) -> typer.Typer:
    """Add a command that consists of commands; return what these are added to."""
    made = typer.Typer(cls=Group, rich_markup_mode=None)
    app.add_typer(made, name=name, help=does)
    return made


def command(example: str, of: typer.Typer = app) -> Callable[[F], F]:
    """Add a function as a command: its docstring is the help, what it returns the exit code (None: 0)."""

    def add(function: F) -> F:
        does = " ".join((function.__doc__ or "").split())
        epilog = f"\b\n{EXAMPLE}{PROGRAM} {example}"
        return of.command(
            function.__name__, cls=Command, help=does, short_help=does, epilog=epilog
        )(function)

    return add


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lr-sweep {metadata.version('lr-sweep')}")
        raise typer.Exit


def _let_threads_sleep() -> None:
    """Let torch's threads spin only for a moment at the end of an operation; torch reads this when it is loaded.

    By default they spin for long, which makes pretraining on two busy cores many times slower. If they sleep at once,
    pretraining on idle cores is a fifth slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        # Of GNU's OpenMP, torch's on Linux; others know the policy alone.
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Learning-rate sweeps whose conclusions hold."""
    _let_threads_sleep()
