"""A finished grid grows, shrinks and is shared: which runs are then trained, and which files change.

Runs are trained by the real trainer in this process; what Ray adds is in `test_sweep_end_to_end.py`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.tune import tuner
from lr_sweep.sweep.tune.run_study import run_study
from lr_sweep.sweep.tune.work import Options
from lr_sweep.tests.support.scripted_trials import replace_ray
from lr_sweep.tests.support.tiny_study import curves, events_of, rows, write_study
from lr_sweep.trainables.worker.messages import Cohort, Event, Started

RATES = (1e-4, 1e-3, 1e-2)
VARIANTS = ("frozen-pretrained", "unfrozen-random")


@dataclass
class Grid:
    """A results directory, and studies run into it."""

    folder: Path
    trained: list[str] = field(default_factory=list)
    """Ids of the runs that the last study trained."""
    said: list[str] = field(default_factory=list)

    def run(self, **changes: Any) -> str:
        """Run the study of 12 runs with changes; return its report."""
        study = write_study(self.folder, **{"rates": RATES, "variants": VARIANTS, "seeds": 2} | changes)
        if "study" in changes:
            study = study.rename(self.folder / f"{changes['study']}.yaml")
        self.trained, self.said = [], []
        loaded = load_study(study)
        options = Options(
            results=Results(self.results), data_dir=self.folder, placement=Placement(resources=loaded.resources)
        )
        return run_study(loaded, options, self.said.append).report.text

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def files(self) -> dict[str, tuple[int, int, bytes]]:
        """Inode, time and content of every file of a run."""
        paths = [path for name in ("runs", "curves", "checkpoints") for path in (self.results / name).rglob("*.*")]
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    def train_cohorts(self, cohorts: Sequence[Cohort], *arguments: object) -> Generator[Event, None, None]:
        for cohort in cohorts:
            for event in events_of(cohort):
                self.trained += [event.run_id] if isinstance(event, Started) else []
                yield event


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a grid of 12 runs, finished."""
    made = Grid(tmp_path_factory.mktemp("grid"))
    with pytest.MonkeyPatch.context() as patch:
        replace_ray(patch)
        patch.setattr(tuner, "train_cohorts", made.train_cohorts)
        made.run()
    assert len(made.trained) == len(rows(made.results)) == 12
    return made.folder


@pytest.fixture
def grid(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    """A copy of it."""
    made = Grid(Path(shutil.copytree(finished, tmp_path / "grid")))
    replace_ray(monkeypatch)
    monkeypatch.setattr(tuner, "train_cohorts", made.train_cohorts)
    return made


def test_one_learning_rate_more_trains_its_four_runs_and_touches_no_old_file(grid: Grid) -> None:
    before, old = grid.files(), set(rows(grid.results))
    grid.run(rates=(*RATES, 3e-3))
    new = {run_id: row for run_id, row in rows(grid.results).items() if run_id not in old}
    assert sorted(grid.trained) == sorted(new)
    assert sorted((row["variant"], row["learning_rate"], row["seed"]) for row in new.values()) == [
        (variant, 3e-3, seed) for variant in VARIANTS for seed in (0, 1)
    ]
    assert {name: content for name, content in grid.files().items() if name in before} == before


@pytest.mark.slow
def test_a_second_study_trains_nothing_for_the_cell_it_shares(grid: Grid) -> None:
    """Its other variant is new, and so are its names, its title and its retries."""
    before = grid.files()
    grid.run(
        study="other",
        title="Another question",
        variants=("unfrozen-random", "unfrozen-pretrained"),
        resources="{runs_per_trial: 3, retries: 0}",
    )
    assert {rows(grid.results)[run_id]["variant"] for run_id in grid.trained} == {"unfrozen-pretrained"}
    assert len(grid.trained) == 6
    assert {name: content for name, content in grid.files().items() if name in before} == before
    grid.run(study="third", variants=("unfrozen-random",), rates=RATES[:2])
    assert grid.trained == []


@pytest.mark.slow
def test_a_higher_budget_resumes_and_a_lower_one_reports_at_it(grid: Grid) -> None:
    short, report = curves(grid.results), untimed(grid.run())
    grid.run(num_steps=50)
    assert len(grid.trained) == 12
    assert {row["num_steps"] for row in rows(grid.results).values()} == {50}
    for run_id, curve in curves(grid.results).items():
        assert curve[: len(short[run_id])] == short[run_id]
        assert [point["step"] for point in curve] == [10, 20, 30, 40, 50]
    before = grid.files()
    assert untimed(grid.run()) == report  # at 20 steps
    assert grid.trained == []
    assert grid.files() == before


def untimed(report: str) -> str:
    """Leave out what further seeds cost: the time of 50 steps, cut to 20, is another."""
    return re.sub(r" \(\S+ device\s+hours\)", "", report)


@pytest.mark.slow
def test_a_smaller_grid_reports_on_itself_and_forgets_nothing(grid: Grid) -> None:
    before = grid.files()
    assert "12 runs wanted: all complete" in grid.run()
    assert "4 runs wanted: all complete" in grid.run(rates=RATES[:1])
    assert grid.trained == []
    assert grid.files() == before
