"""`verify STUDY`: a training function repeats and resumes exactly, or its line says what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.probe_study import probe_study
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.own_study import write_function, write_own_study
from lr_sweep.tests.support.tiny_study import in_process, write_study

UNSAVED = """
unsaved = torch.zeros(1)
weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], lr=run.learning_rate)
for step in session.steps(optimizer=optimizer):
    unsaved += 0.1
    if session.due:
        session.report(validation=unsaved.item(), test=0.5)
"""


def lines(study: Path) -> tuple[int, list[str]]:
    found: list[str] = []
    return probe_study(load_study(study), study.parent, found.append), found


def test_a_sound_function(tmp_path: Path) -> None:
    assert lines(write_own_study(tmp_path / "own")) == (
        0,
        [f"cnn digits conv {variant}: deterministic, and resumes exactly" for variant in ("adamw", "sgd")],
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [(UNSAVED, "deterministic, but resumes inexactly: a resumed training"), ("raise KeyError('x')", "KeyError: 'x'")],
)
def test_a_function_with_a_problem(tmp_path: Path, code: str, found: str) -> None:
    number, (line,) = lines(write_function(tmp_path, code))
    assert (number, line.startswith("problem: mine "), found in line) == (1, True, True)


def test_a_study_without_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tiny has no training function of its own"):
        lines(write_study(tmp_path))


def test_the_command(tmp_path: Path) -> None:
    """Without results there is nothing to verify, and the probe does not begin."""
    code, output = in_process("verify", write_function(tmp_path, UNSAVED), "--results", tmp_path / "none")
    assert (code, "problem:" in output) == (2, False)
