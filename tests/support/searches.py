"""Searched, refined and stopped studies, trained by a script whose accuracies are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.plan.plan import Plan
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.tune.trial_events import TrialEvent, TrialFailed
from lr_sweep.tests.support.scripted_trials import Bench, Script, evaluation, new_bench
from lr_sweep.tests.support.tiny_study import write_study
from lr_sweep.trainables.worker.cohort import Cohort
from lr_sweep.trainables.worker.events import Advanced, Finished, Started

VARIANTS = ("frozen-pretrained", "unfrozen-random")


class Killed(BaseException):
    """Stands for `kill -9`: nothing catches it."""


@dataclass
class Landscape(Script):
    """Trains nothing; a run's accuracy falls from 1e-3 on, and it diverges above 3e-2."""

    events_left: float = math.inf
    """Until it is killed."""
    fails_at: float | None = None
    """Learning rate at which trials fail."""
    failing_variant: str = ""
    """Part of the name of trials that fail."""
    failing_from: int = 0
    """Smallest seed of these."""
    tests: Mapping[str, Callable[[int], float]] = field(default_factory=dict)
    """Test accuracy by seed, of variants whose is not 0.5."""
    cohorts: list[Cohort] = field(default_factory=list)
    """All that it was given."""
    rounds: list[set[float]] = field(default_factory=list)
    """Learning rates of each call."""

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Generator[TrialEvent | None, None, None]:
        self.cohorts += cohorts
        self.rounds.append({run.learning_rate for cohort in cohorts for run in cohort.runs})
        for cohort in cohorts:
            for event in self._events(cohort):
                if self.events_left <= 0:
                    raise Killed
                self.events_left -= 1
                yield event
        yield None

    def _events(self, cohort: Cohort) -> Generator[TrialEvent, None, None]:
        fails = any(run.learning_rate == self.fails_at for run in cohort.runs)
        late = cohort.runs[-1].seed >= self.failing_from
        if fails or (late and self.failing_variant and self.failing_variant in cohort.name):
            yield TrialFailed(run_ids=cohort.run_ids, reason="RuntimeError: scripted")
            return
        for run, run_id in zip(cohort.runs, cohort.run_ids, strict=True):
            yield Started(run_id=run_id, step=0)
            end = {"elapsed_s": 1.0, "engine": "stacked", "device": "none"}
            if run.learning_rate > 3e-2:
                yield Finished(run_id=run_id, step=10, status="diverged", diverged_at_step=10, **end)
                continue
            test = next((of for variant, of in self.tests.items() if variant in cohort.name), lambda _: 0.5)(run.seed)
            value = 0.9 - 0.1 * abs(math.log10(run.learning_rate / 1e-3)) + 0.01 * run.seed
            for step in (10, cohort.num_steps):
                measured = replace(evaluation(step, value), test_accuracy=test)
                yield Advanced(run_id=run_id, step=step, evaluation=measured, step_s=0.1)
            yield Finished(run_id=run_id, step=cohort.num_steps, status="complete", **end)


def searched(folder: Path, search: str, **changes: Any) -> Path:
    """A study file with a search in place of its learning rates."""
    path = write_study(folder, **changes)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("learning_rates")]
    path.write_text("\n".join([*lines, f"search: {search}", ""]))
    return path


def search_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, search: str, **changes: Any) -> Bench:
    """A bench of two cells that are searched."""
    made = new_bench(folder, monkeypatch)
    made.study = load_study(searched(folder, search, **changes))
    return made


def grid_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Bench:
    """A bench of two cells with a grid."""
    made = new_bench(folder, monkeypatch)
    made.study = load_study(write_study(folder, **changes))
    return made


def with_search(bench: Bench, **changes: Any) -> None:
    """Edit the search of a bench's study."""
    assert bench.study.search is not None
    bench.study = bench.study.model_copy(update={"search": bench.study.search.model_copy(update=changes)})


def proposed(bench: Bench) -> pd.DataFrame:
    return pd.read_parquet(bench.results.proposals("tiny"))


def planned(bench: Bench) -> Plan:
    return Plan(bench.study, Placement(resources=bench.study.resources), bench.results, bench.folder)
