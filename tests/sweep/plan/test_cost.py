"""What is left costs, by runs of made-up durations; every number is worked out here by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lr_sweep.sweep.plan.cost import Cost, cost_text, estimate_cost, wall_time
from lr_sweep.sweep.plan.placement import Placement, devices_here
from lr_sweep.sweep.plan.timings import find_timings, keep_measured, read_measured, timing_keys
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.state import reconcile
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import runs_of, said, succeeds, write_study

FROZEN, UNFROZEN = Cell("digits", "tiny", "frozen-pretrained"), Cell("digits", "tiny", "unfrozen-random")


@pytest.fixture
def runs(tmp_path: Path) -> list[WantedRun]:
    """2 seeds x 2 variants x 2 learning rates of 20 steps, evaluated every 10."""
    return runs_of(write_study(tmp_path, seeds=2), tmp_path / "results")


@pytest.fixture
def record(tmp_path: Path) -> SyntheticRecord:
    return SyntheticRecord(tmp_path / "results", "tiny")


def end(record: SyntheticRecord, run: WantedRun, wall_s: float, status: str = "complete", **changed: Any) -> None:
    curve = [(10, 0.5, 0.5), (20, 0.5, 0.5)]
    made = {"content": run.run.canonical_json(), "wall_s": wall_s, "device_s": wall_s} | changed
    record.end(run.row(), curve, status, 20, 15 if status == "diverged" else None, **made)


def timings(runs: list[WantedRun], record: SyntheticRecord, device: str = "cpu", engine: str = "stacked") -> dict:
    results = Results(record.results)
    resources = Resources.model_validate({"gpus_per_trial": float(device == "cuda"), "engine": engine})
    return find_timings(reconcile(runs, results), results, Placement(resources=resources))


def cost_of(runs: list[WantedRun], results: Path, at_once: int = 2, **resources: Any) -> Cost:
    placement = Placement(resources=Resources(**resources))
    return estimate_cost(reconcile(runs, Results(results)), placement, at_once, Results(results))


def test_the_median_of_a_cell_s_recorded_runs_is_its_time(runs: list[WantedRun], record: SyntheticRecord) -> None:
    """Runs of 20 steps took 2, 3 and 7 s; runs that diverged, or that another engine trained, do not count."""
    for run, wall_s in zip(runs[:2] + runs[4:5], (2.0, 7.0, 3.0), strict=True):
        end(record, run, wall_s)
    end(record, runs[2], 1.0, "diverged")
    end(record, runs[3], 1.0, engine="plain")
    assert timings(runs, record) == {FROZEN: 0.15}
    assert timings(runs, record, device="cuda") == {}
    assert timings(runs, record, engine="plain") == {UNFROZEN: 0.05}
    end(record, runs[6], 3.0, engine=None)  # rows of earlier versions do not name it: they count for both
    assert timings(runs, record)[UNFROZEN] == 0.15
    assert timings(runs, record, engine="plain")[UNFROZEN] == 0.1


def test_runs_of_another_study_count(tmp_path: Path, record: SyntheticRecord) -> None:
    """Its rates and seeds are others; a run of another width does not count."""
    folders = [tmp_path / name for name in ("mine", "wide")]
    for folder in folders:
        folder.mkdir()
    (other,) = runs_of(write_study(tmp_path, rates=(1e-4,), variants=("unfrozen-random",)), record.results)
    end(record, other, 2.0)
    assert timings(runs_of(write_study(folders[0]), record.results), record) == {UNFROZEN: 0.1}
    wide = "{tiny: {size: {layers: 1, heads: 2, width: 32, positions: 12}}}"
    other_size = runs_of(write_study(folders[1], models=wide, variants=("unfrozen-random",)), record.results)
    assert timings(other_size, record) == {}


@pytest.mark.parametrize(
    ("trials_s", "at_once", "end_s"),
    [([], 2, 0.0), ([3, 1, 1, 1], 2, 3.0), ([1, 1, 1, 3], 2, 4.0), ([2, 2], 1, 4.0), ([2, 5], 8, 5.0)],
)
def test_wall_time_is_that_of_trials_in_their_order(trials_s: list[float], at_once: int, end_s: float) -> None:
    assert wall_time(trials_s, at_once) == end_s


def test_cost_of_what_is_left(runs: list[WantedRun], record: SyntheticRecord) -> None:
    """20 steps take an hour. In the first cell one run is complete and one resumes at step 15, so 45 steps are left."""
    results = record.results
    assert cost_text(cost_of(runs, results)).startswith("cost       unknown: no cell is timed yet; ")
    end(record, runs[0], 3600.0)
    folder = Results(results).checkpoints(runs[1].run_id)
    folder.mkdir(parents=True)
    (folder / "step-000000015-0123456789abcdef.safetensors").touch()
    cost = cost_of(runs, results, at_once=1, gpus_per_trial=0.5)
    assert (cost.device_s, cost.wall_s, cost.not_timed) == (0.0, 0.0, [FROZEN, UNFROZEN]), "timed on a CPU"
    cost = cost_of(runs, results, at_once=1, cpus_per_trial=2)
    assert (cost.device_s, cost.wall_s) == (45 * 180 * 2, 45 * 180)
    assert cost_text(cost).splitlines() == [
        "cost       at least 4.5 core-hours, 2:15:00 with 1 trial at once; `plan --measure` times the other cells",
        "unknown    digits tiny unfrozen-random",
    ]
    end(record, runs[2], 7200.0)  # the other cell: twice as long, 3 runs are left
    cost = cost_of(runs, results)
    assert cost_text(cost) == "cost       about 8.25 core-hours, 6:00:00 with 2 trials at once"
    for run in runs:
        end(record, run, 1.0)
    assert cost_text(cost_of(runs, results)) == "cost       nothing: everything is trained"


def test_devices_given_count_before_those_here() -> None:
    assert devices_here(7, 3) == {"CPU": 7, "GPU": 3}
    assert devices_here(None, None)["CPU"] >= 1


def test_what_was_measured_counts_until_a_run_is_recorded(runs: list[WantedRun], record: SyntheticRecord) -> None:
    """A CPU's timing says nothing of a GPU; a damaged file counts as none, and is replaced."""
    results = Results(record.results)
    keys = timing_keys(runs, Placement(resources=Resources()))
    results.root.mkdir(exist_ok=True)
    end(record, runs[0], 2.0)  # the first cell: 20 steps in 2 s
    for cell, step_s in ((FROZEN, 7.0), (UNFROZEN, 0.25)):
        keep_measured(results, keys[cell], step_s, "cpu (fast)")
    assert timings(runs, record) == {FROZEN: 0.1, UNFROZEN: 0.25}
    assert timings(runs, record, device="cuda") == {}
    results.timings.write_text(results.timings.read_text()[:-3])
    assert timings(runs, record) == {FROZEN: 0.1}
    with pytest.raises(ValueError, match=r"timings\.json is ignored"):
        read_measured(results)
    keep_measured(results, keys[UNFROZEN], 0.5, "cpu (fast)")
    assert read_measured(results) == {keys[UNFROZEN]: {"step_s": 0.5, "device": "cpu (fast)"}}


def test_plan_measures_each_cell_once_as_it_would_train(tmp_path: Path) -> None:
    given = ["plan", write_study(tmp_path, seeds=2, runs_per_trial=3), "--results", tmp_path / "results"]
    measured = succeeds(*given, "--measure")
    assert "digits tiny frozen-pretrained: " in measured
    assert measured.count(" s a step of a run, 3 runs together, cpu (") == 2
    assert "cost       about " in measured
    assert " together" not in (again := succeeds(*given, "--measure"))
    assert measured.endswith(again), "the same plan, below what was measured"
    assert not any((tmp_path / "results" / "runs").iterdir())
    (tmp_path / "results" / "timings.json").write_text("{")
    assert "timings.json is ignored" in succeeds(*given)


def test_a_cell_that_cannot_be_trained_is_named_and_unknown(tmp_path: Path) -> None:
    """One of two functions' variants fails; the other is timed."""
    body = "assert run.options['fine'], 'broken'\nfor step in session.steps():\n    "
    body += "if session.due:\n        session.report(validation=0.5, test=0.5)"
    study = write_function(tmp_path, body, variants="{good: {fine: true}, bad: {fine: false}}")
    code, text = said("plan", study, "--results", tmp_path / "results", "--measure")
    assert code == 0
    assert "mine train bad: not measured: " in text
    assert "broken" in text
    assert text.splitlines()[-1] == "unknown    mine train bad"
