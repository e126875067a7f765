"""Writes docs/commands.md: every command with its arguments, options and an example, from the command line's own help.

python -m benchmarks.command_reference
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from lr_sweep.common.text import PROGRAM
from lr_sweep.sweep.cli.app import EXAMPLE, PANELS, Group
from lr_sweep.sweep.cli.parser import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
INTRODUCTION = """\
# Commands

Every command with its arguments, its options and an example, as `lr-sweep COMMAND --help` prints
them. The most used commands of each group come first. An option that several commands share is
explained where it comes first. `python -m benchmarks.command_reference` writes this page.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    program: Any = typer.main.get_command(app)
    context = program.context_class(program, info_name=PROGRAM)
    parts, explained = [INTRODUCTION], set[tuple[str, str]]()
    for panel, names in PANELS.items():
        parts.append(f"## {panel}\n")
        for name in names:
            parts += _sections(program.commands[name], context, name, explained)
    return "\n".join(parts)


def _sections(
    command: Any, parent: Any, name: str, explained: set[tuple[str, str]]
) -> Iterator[str]:
    """Yield a command's section, or those of the commands of a group; adds to the options that are explained."""
    context = command.context_class(command, info_name=name, parent=parent)
    if isinstance(command, Group):
        for each, inner in command.commands.items():
            yield from _sections(inner, context, each, explained)
        return
    usage = " ".join([context.command_path, *filter(None, map(_usage, command.params))])
    yield f"### `{usage.removeprefix(f'{PROGRAM} ')}`\n\n{_filled(command.help)}\n"
    yield f"```bash\n{command.epilog.partition(EXAMPLE)[2]}\n```\n"
    described = [row for kind in ("argument", "option") for row in command.described(context, kind)]
    rows = [(name, " ".join(does.split())) for name, does in described if "--help" not in name]
    lines = [f"- `{name}`: {does}" for name, does in rows if (name, does) not in explained]
    if again := [f"`{name}`" for name, does in rows if (name, does) in explained]:
        lines.append(f"- {', '.join(again)}: as above.")
    explained.update(rows)
    yield "\n".join([*map(_filled, lines), ""])


def _usage(param: Any) -> str:
    """Return an argument as a command line has it; empty for an option, which may stand anywhere."""
    if param.param_type_name != "argument":
        return ""
    text = f"{param.metavar}{'...' if param.nargs == -1 else ''}"
    return text if param.required else f"[{text}]"


def _filled(text: str) -> str:
    return textwrap.fill(
        text, 100, subsequent_indent="  " * text.startswith("- "), break_on_hyphens=False
    )


if __name__ == "__main__":
    main()
