"""docs/commands.md says what the command line's own help says."""

from __future__ import annotations

from lr_sweep.benchmarks.command_reference import PAGE, page


def test_the_reference_of_commands_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m benchmarks.command_reference"
