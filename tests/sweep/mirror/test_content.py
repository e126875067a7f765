"""What MLflow shows of a study and of a run, without an MLflow."""

from __future__ import annotations

import pytest

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.sweep.mirror.content import MirroredRun, study_note
from lr_sweep.tests.support.records import ended_row, evaluation, wanted_row


def test_names_in_a_note_are_text() -> None:
    seeds = dict.fromkeys(("complete", "num_wanted", "num_tests", "num_seeds", "most_seeds"), 3)
    values = dict.fromkeys(("learning_rate", "test_mean", "test_sem"), 0.001)
    cell = {"task": "a|b", "model": "<b>", "variant": "![x](http://y/z.png)"} | seeds | values
    note = study_note(StudyInfo(study="small", title="<i>"), [cell], "")
    assert note.splitlines()[0] == "&lt;i>"
    assert note.splitlines()[-1].startswith("| a\\|b | &lt;b> | ![x]\\(http://y/z.png) | 1e-3 |")


@pytest.mark.parametrize("number", [1, 99, 100, 101, 196, 197, 750, 100_000])
def test_no_curve_has_more_points_than_a_hundred(number: int) -> None:
    curve = [evaluation("aa", step) for step in range(1, number + 1)]
    row = ended_row(wanted_row("aa"), [], "complete", trained=number) | {"best_step": max(1, number - 1)}
    kept = [each["step"] for each in MirroredRun("aa", {}, row, curve, ACCURACY).thinned()]
    assert min(number, 51) <= len(kept) <= 100
    assert {1, max(1, number - 1), number} <= {*kept}
