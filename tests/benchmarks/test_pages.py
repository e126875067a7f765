"""Pages that are made by a program: of commands, of study files, of numbers of runs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from lr_sweep.benchmarks import command_reference, study_reference
from lr_sweep.benchmarks.lu2021_runs import lines


@pytest.mark.parametrize("reference", [command_reference, study_reference])
def test_references_are_up_to_date(reference: ModuleType) -> None:
    """They say what the command line's own help says, and what the models that read a study say."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), f"run: python -m {reference.__name__}"


def test_the_page_has_the_numbers_of_runs() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "lu2021.md").read_text().split())
    *rows, _, _, sentence = lines()
    counts = [[int(cell) for cell in row.strip("| ").split(" | ")[2::2]] for row in rows[2:]]
    assert all(swept == 9 * runs for runs, swept in counts)
    assert f"A table has {min(counts)[0]} to {max(counts)[0]} runs at the paper's rates, and nine times" in page
    assert sentence in page
