"""Pages that are made by a program: of commands and of study files."""

from __future__ import annotations

from types import ModuleType

import pytest

from lr_sweep.benchmarks import command_reference, study_reference


@pytest.mark.parametrize("reference", [command_reference, study_reference])
def test_references_are_up_to_date(reference: ModuleType) -> None:
    """They say what the command line's own help says, and what the models that read a study say."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), f"run: python -m {reference.__name__}"
