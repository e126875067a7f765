"""docs/study-file.md says what the models that read a study say."""

from __future__ import annotations

from lr_sweep.benchmarks.study_reference import PAGE, page


def test_the_reference_of_study_files_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m benchmarks.study_reference"
