"""Two results directories that are joined by copying files: all runs are there, and `verify` names a mixed run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lr_sweep.analysis.record.columns import CURVES
from lr_sweep.sweep.inspection.verify import verify
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import (
    Trained,
    add,
    add_study,
    files,
    four_runs,
    new_results,
    points,
    run_id_of,
    summary_of,
    write,
)

FOLDERS = ("runs", "curves", "checkpoints", "studies", "pretrained")


@pytest.fixture
def source(tmp_path: Path) -> Results:
    """Runs 0, 2 and 3 have ended; run 1 has not."""
    return four_runs(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> Results:
    return new_results(tmp_path / "target")


def joined(source: Results, target: Results) -> list[str]:
    """Copy the files that the target does not have, as `rsync -a --ignore-existing`; return what `verify` prints."""
    for name, content in files(source.root).items():
        path = target.root / name
        if name.startswith(FOLDERS) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    lines: list[str] = []
    verify(target, lines.append)
    return lines


def test_a_report_counts_the_runs_of_both(source: Results, target: Results) -> None:
    add(target, 0, Trained(evaluations=2))
    add(target, 7, Trained(evaluations=2))
    add_study(target, "both", {0: 20, 2: 20, 7: 20})
    assert joined(source, target) == ["5 runs, 7 evaluations, 1 checkpoint, 1 weights: no problems"]
    assert summary_of(target.root, "both").runs["status"].value_counts().to_dict() == {"complete": 2, "diverged": 1}
    assert summary_of(target.root, "second").runs["status"].tolist() == ["diverged"]


def test_a_copy_over_existing_files_is_sound_too(source: Results, target: Results) -> None:
    add(target, 0, Trained(evaluations=3))
    shutil.copytree(source.root, target.root, dirs_exist_ok=True)
    assert files(target.root) == files(source.root)


@pytest.mark.parametrize(
    ("evaluations", "changed", "problem"),
    [
        (1, {}, "its last evaluation is at step 10, want 20: its row says complete at step 20"),
        (2, {"validation": 0.99}, "its validation at step 10 is 0.99, "),
        (2, {"test": 0.99}, "its test at step 10 is 0.99, "),
    ],
)
def test_a_row_beside_the_curve_of_another_training_is_named(
    source: Results, target: Results, evaluations: int, changed: dict[str, float], problem: str
) -> None:
    run_id = run_id_of(0)
    first, *rest = points(run_id, Trained(evaluations=evaluations))
    write(target.curve(run_id), [first | changed, *rest], CURVES)
    named, _ = joined(source, target)
    assert named.startswith(f"problem: {target.curve(run_id)}: {problem}")
    assert named.endswith(f": delete it, and {target.run(run_id)} if there is one, and run the study again")
