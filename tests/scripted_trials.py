"""`run` with Ray replaced by a script of what trials report: for tests of what the driver does with it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweep import run_study as module
from sweep.options import Options, Outcome
from sweep.placement import Placement
from sweep.reconcile import reconcile
from sweep.results import Results
from sweep.run_study import run_study
from sweep.sharing import Share
from sweep.study_file import load_study
from sweep.trials import TrialEvents
from tests.tiny_study import runs_of, write_study
from trainables.cohort import Assignment
from trainables.run import Run


class NoMirror:
    """Stands for the mirror's thread."""

    told: list[str]

    def __init__(self, mirror: object, on_problem: Callable[[str], None]) -> None:
        NoMirror.told = []

    def changed(self, *run_ids: str) -> None:
        NoMirror.told += run_ids

    def close(self, timeout_s: float) -> list[str]:
        return []


@dataclass
class Script:
    """Trains nothing; a run fails so many times before it completes, each time ending its trial if not retried."""

    failures: dict[str, int] = field(default_factory=dict)
    """By run id."""
    at_start: set[str] = field(default_factory=set)
    """Of those, the ones that fail before they say that they start."""
    passes: list[list[list[str]]] = field(default_factory=list)
    """Run ids of the cohorts of each call."""
    events: list[str] = field(default_factory=list)

    def train_cohorts(
        self,
        cohorts: Sequence[Sequence[Assignment]],
        names: Sequence[str],
        places: Sequence[int],
        placement: Placement,
        results: Results,
        events: TrialEvents,
        stop: threading.Event,
        at_most: int | None,
    ) -> bool:
        assert len(set(names)) == len(names) == len(cohorts)
        self.passes.append([[Run.from_content(each.content).run_id for each in cohort] for cohort in cohorts])
        for cohort, run_ids in zip(cohorts, self.passes[-1], strict=True):
            retries = placement.resources.retries
            while (failed := self._train(cohort, run_ids, events)) and retries:
                retries -= 1
            if failed:
                events.on_failure(run_ids, "RuntimeError: scripted")
        events.on_tick()
        return True

    def _train(self, cohort: Sequence[Assignment], run_ids: Sequence[str], events: TrialEvents) -> bool:
        """Train a cohort from its first run on, as a trial that starts again does; return whether it failed."""
        for assignment, run_id in zip(cohort, run_ids, strict=True):
            fails = self.failures.get(run_id, 0) > 0
            self.failures[run_id] = self.failures.get(run_id, 0) - 1
            if not (fails and run_id in self.at_start):
                events.on_event({"kind": "started", "run_id": run_id, "step": 0, "evaluations": [], "damaged": []})
            if fails:
                return True
            step, facts = assignment.num_steps, {"diverged_at_step": None, "elapsed_s": 1.0, "device": "none"}
            point = dict.fromkeys(("train_loss", "train_accuracy", "validation_loss", "validation_accuracy"), 0.5)
            point |= {"step": step, "test_loss": 0.5, "test_accuracy": 0.5, "time_ms": 10**12, "elapsed_s": 1.0}
            event = {"kind": "progress", "run_id": run_id, "step": step, "evaluations": [point]}
            events.on_event(event | {"step_s": 0.1, "evaluation_s": 1.0})
            events.on_event({"kind": "finished", "run_id": run_id, "step": step, "status": "complete"} | facts)
        return False


@dataclass
class Bench:
    """A study of one cell with four learning rates, and a script that trains it."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        study = write_study(
            self.folder, rates=(1e-4, 1e-3, 1e-2, 1e-1), variants=("unfrozen-random",), runs_per_trial=3
        )
        self.study, self.results = load_study(study), Results(self.folder / "results")
        self.wanted = runs_of(study, self.results.root)
        self.ids = [run.run_id for run in self.wanted]

    def run(self, script: Script, *, max_attempts: int = 0) -> Outcome:
        self.said.clear()
        self.monkeypatch.setattr(module, "train_cohorts", script.train_cohorts)
        options = Options(
            results=self.results,
            data_dir=self.folder,
            placement=Placement(resources=self.study.resources),
            max_attempts=max_attempts,
        )
        return run_study(self.study, options, self.said.append)

    def states(self) -> list[str]:
        return [reconcile(self.wanted, self.results).states[run_id].value for run_id in self.ids]


def new_bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Replace Ray and MLflow until the test ends."""

    @contextlib.contextmanager
    def no_ray(placement: Placement, log_file: Path) -> Iterator[Share]:
        yield Share(placement, list, None)

    monkeypatch.setattr(module, "ray_session", no_ray)
    monkeypatch.setattr(module, "MirrorThread", NoMirror)
    monkeypatch.setattr(module, "Mirror", lambda *arguments: SimpleNamespace(log_report=lambda folder: None))
    return Bench(folder, monkeypatch)
