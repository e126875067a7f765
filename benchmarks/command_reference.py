"""Writes docs/commands.md: every command with its arguments, options and an example, from the command line's own help.

python -m benchmarks.command_reference
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from lr_sweep.common.program import PROGRAM
from lr_sweep.sweep.cli.app import EXAMPLE, PANELS, Group
from lr_sweep.sweep.cli.parser import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
INTRODUCTION = """\
# Commands

Every command with its arguments, its options and an example, as `lr-sweep COMMAND --help` prints
them. The most used commands of each group come first. `python -m benchmarks.command_reference`
writes this page.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    program: Any = typer.main.get_command(app)
    context = program.context_class(program, info_name=PROGRAM)
    parts = [INTRODUCTION]
    for panel, names in PANELS.items():
        parts.append(f"## {panel}\n")
        for name in names:
            parts += _sections(program.commands[name], context, name)
    return "\n".join(parts)


def _sections(command: Any, parent: Any, name: str) -> Iterator[str]:
    """Yield a command's section, or those of the commands of a group."""
    context = command.context_class(command, info_name=name, parent=parent)
    if isinstance(command, Group):
        for each, inner in command.commands.items():
            yield from _sections(inner, context, each)
        return
    usage = " ".join([context.command_path, *(row[0] for row in command.described(context, "argument"))])
    yield f"### `{usage.removeprefix(f'{PROGRAM} ')}`\n\n{_filled(command.help)}\n"
    yield f"```bash\n{command.epilog.partition(EXAMPLE)[2]}\n```\n"
    rows = [row for kind in ("argument", "option") for row in command.described(context, kind)]
    lines = [_filled(f"- `{name}`: {' '.join(does.split())}") for name, does in rows if "--help" not in name]
    yield "\n".join([*lines, ""])


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  " * text.startswith("- "), break_on_hyphens=False)


if __name__ == "__main__":
    main()
