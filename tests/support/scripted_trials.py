"""`run` with Ray replaced by a script of what trials report; searched, refined and stopped studies trained by one."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import pytest

from lr_sweep.analysis.report.blocks import Description
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.sweep.mirror.mirror import MirrorThread
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.plan.plan import Plan
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.state import reconcile
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.only import ALL_RUNS, Only
from lr_sweep.sweep.tune import driver, run_study, tuner
from lr_sweep.sweep.tune.nodes import Machines, Share
from lr_sweep.sweep.tune.run_study import Outcome
from lr_sweep.sweep.tune.trials import TrialEvent, TrialFailed
from lr_sweep.sweep.tune.work import Options
from lr_sweep.tests.support.tiny_study import runs_of, write_study
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.worker.messages import Advanced, Cohort, Finished, Started

Events = Generator[TrialEvent | None, None, None]


class NoMirror(MirrorThread):
    notified: list[str]

    def __init__(self, mirror: object, on_problem: Callable[[str], None]) -> None:
        NoMirror.notified = []

    def changed(self, *run_ids: str) -> None:
        NoMirror.notified += run_ids

    def close(self, timeout_s: float) -> list[str]:
        return []

    def finish(self, report: Path, timeout_s: float) -> list[str]:
        return []


def no_report(results: Path, study: str, code_now: object) -> Report:
    """Stand for `write_report`, which takes a second."""
    return Report(folder=results / "studies" / study / "report", files=(), description=Description("", []), findings=())


class Trainer(Protocol):
    """Stands for `tuner.train_cohorts`."""

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events: ...


@dataclass
class Script:
    """Trains nothing; a run fails so many times before it completes, each time ending its trial if not retried."""

    failures: dict[str, int] = field(default_factory=dict)
    """Failures by run id."""
    at_start: set[str] = field(default_factory=set)
    """Those of them that fail before they report their start."""
    inexact: Collection[str] = ()
    """Run ids that resume inexactly."""
    passes: list[list[list[str]]] = field(default_factory=list)
    """Run ids of the cohorts of each call."""

    def train_cohorts(
        self,
        cohorts: Sequence[Cohort],
        placement: Placement,
        scratch: Path,
        machines: Machines,
        leave: threading.Event,
        at_most: int | None,
    ) -> Events:
        """Stand for `tuner.train_cohorts`."""
        assert len({cohort.name for cohort in cohorts}) == len(cohorts)
        self.passes.append([cohort.run_ids for cohort in cohorts])
        for cohort in cohorts:
            retries = placement.resources.retries
            while (failed := (yield from self._train(cohort))) and retries:
                retries -= 1
            if failed:
                yield TrialFailed(run_ids=cohort.run_ids, reason="RuntimeError: scripted")
        yield None

    def _train(self, cohort: Cohort) -> Generator[TrialEvent, None, bool]:
        """Train a cohort from its first run on, as a trial that starts again does; return whether it failed."""
        step = cohort.num_steps
        for run_id in cohort.run_ids:
            fails = self.failures.get(run_id, 0) > 0
            self.failures[run_id] = self.failures.get(run_id, 0) - 1
            if not (fails and run_id in self.at_start):
                yield Started(run_id=run_id, step=0)
            if fails:
                return True
            yield Advanced(run_id=run_id, step=step, evaluation=evaluation(step), step_s=0.1, evaluation_s=1.0)
            end: dict[str, Any] = {"engine": "stacked", "device": "none", "elapsed_s": 1.0}
            if run_id in self.inexact:
                end |= {"resumed": "inexactly", "not_saved": ("average", "scheduler")}
            yield Finished(run_id=run_id, step=step, status="complete", **end)
        return False


class Disturbed(Script):
    """Trains as planned after some passes of which something else happens, one by one."""

    def __init__(self, *passes: Callable[..., Events], **more: Any) -> None:
        super().__init__(**more)
        self.left = list(passes)

    def train_cohorts(self, cohorts: Any, *arguments: Any) -> Events:
        if self.left:
            yield from self.left.pop(0)(cohorts, *arguments)
        else:
            yield from super().train_cohorts(cohorts, *arguments)

    def train_first(self, cohorts: Any, *arguments: Any) -> Events:
        yield from super().train_cohorts([replace(cohorts[0], runs=cohorts[0].runs[:1])], *arguments)


def evaluation(step: int, validation: float = 0.5) -> Evaluation:
    return Evaluation(
        step=step,
        train_loss=0.5,
        train=0.5,
        validation_loss=0.5,
        validation=validation,
        test_loss=0.5,
        test=0.5,
        time_ms=10**12,
        elapsed_s=1.0,
    )


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

    def run(
        self, script: Trainer, *, retry_failed: bool = False, only: Only = ALL_RUNS, report: bool = False, **more: Any
    ) -> Outcome:
        """Run the study, with more options; write no report unless it is asked for."""
        self.said.clear()
        self.monkeypatch.setattr(run_study, "write_report", write_report if report else no_report)
        self.monkeypatch.setattr(tuner, "train_cohorts", script.train_cohorts)
        options = Options(
            results=self.results,
            data_dir=self.folder,
            placement=Placement(resources=self.study.resources),
            retry_failed=retry_failed,
            only=only,
            **more,
        )
        return run_study.run_study(self.study, options, self.said.append)

    def states(self) -> list[str]:
        return [reconcile(self.wanted, self.results).states[run_id].value for run_id in self.ids]


def new_bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Replace Ray and MLflow until the test ends."""
    replace_ray(monkeypatch)
    folder.mkdir(exist_ok=True)
    return Bench(folder, monkeypatch)


def replace_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Ray, but not what trains, and MLflow."""

    @contextlib.contextmanager
    def no_ray(placement: Placement, *arguments: object) -> Iterator[Share]:
        yield Share(placement, list, None)

    monkeypatch.setattr(driver, "ray_session", no_ray)
    monkeypatch.setattr(run_study, "MirrorThread", NoMirror)


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
                measured = replace(evaluation(step, value), test=test)
                yield Advanced(run_id=run_id, step=step, evaluation=measured, step_s=0.1)
            yield Finished(run_id=run_id, step=cohort.num_steps, status="complete", **end)


def searched(folder: Path, search: str, **changes: Any) -> Path:
    """A study file with a search in place of its learning rates."""
    path = write_study(folder, **changes)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("learning_rates")]
    path.write_text("\n".join([*lines, f"search: {search}", ""]))
    return path


def search_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, search: str, **changes: Any) -> Bench:
    made = new_bench(folder, monkeypatch)
    made.study = load_study(searched(folder, search, **changes))
    return made


def grid_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Bench:
    made = new_bench(folder, monkeypatch)
    made.study = load_study(write_study(folder, **changes))
    return made


def with_search(bench: Bench, **changes: Any) -> None:
    assert bench.study.search is not None
    bench.study = bench.study.model_copy(update={"search": bench.study.search.model_copy(update=changes)})


def proposed(bench: Bench) -> pd.DataFrame:
    return pd.read_parquet(bench.results.proposals("tiny"))


def planned(bench: Bench) -> Plan:
    return Plan(bench.study, Placement(resources=bench.study.resources), bench.results, bench.folder)
