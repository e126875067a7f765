"""What is left costs, with timings made up; every number is worked out here by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.cost import Cost, cost_lines, estimate_cost, wall_time
from lr_sweep.sweep.plan.placement import Placement, devices_here
from lr_sweep.sweep.plan.timings import Span, Timing, find_timings, keep_measured, read_measured
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.state import reconcile
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.tests.support.records import NOON, SyntheticRecord
from lr_sweep.tests.support.tiny_study import in_process, runs_of, succeeds, write_study

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


def timing(low: float, middle: float, high: float) -> Timing:
    return Timing(step_s=Span(low=low, middle=middle, high=high), device="CPU", source="made up", written_at=0.0)


def cost_of(
    runs: list[WantedRun], results: Path, known: dict[Cell, Timing], at_once: int = 2, **resources: Any
) -> Cost:
    placement = Placement(resources=Resources(**resources))
    return estimate_cost(reconcile(runs, Results(results)), known, placement, at_once, Results(results))


def measured(run: WantedRun, together: int = 4, at: datetime = NOON, **changed: Any) -> dict[str, Any]:
    """4 runs: 0.2 s a step (0.1 to 0.4), 8 s an evaluation (4 to 16)."""
    entry = {
        **{"content": run.run.content(), "device": "cpu (fast)", "engine": "stacked", "runs_together": together},
        **{"step_s": [0.2, 0.1, 0.4], "evaluation_s": [8.0, 16.0, 4.0], "measured_at": at.timestamp()},
    }
    return entry | changed


def test_runs_of_the_same_cell_are_timings(runs: list[WantedRun], record: SyntheticRecord) -> None:
    """Runs of 20 steps took 2, 3 and 7 s; runs that diverged, or that another engine trained, do not count."""
    for run, wall_s in zip(runs[:2] + runs[4:5], (2.0, 7.0, 3.0), strict=True):
        end(record, run, wall_s)
    end(record, runs[2], 1.0, "diverged")
    end(record, runs[3], 1.0, engine="plain")
    found = timings(runs, record)
    assert found.keys() == {FROZEN}
    assert found[FROZEN].step_s == Span(low=0.1, middle=0.15, high=0.35)
    assert (found[FROZEN].source, found[FROZEN].device) == ("3 recorded", "CPU")
    assert timings(runs, record, device="cuda") == {}
    assert timings(runs, record, engine="plain").keys() == {UNFROZEN}
    end(record, runs[6], 1.0, engine=None)  # rows of earlier versions do not name it: they count for both
    both = timings(runs, record)[UNFROZEN], timings(runs, record, engine="plain")[UNFROZEN]
    assert [each.source for each in both] == ["1 recorded", "2 recorded"]


def test_another_study_s_runs_of_the_same_kind_are_timings(tmp_path: Path, record: SyntheticRecord) -> None:
    """A task with other options and the same shape; a run of another width does not count."""
    folders = [tmp_path / name for name in ("mine", "wide")]
    for folder in folders:
        folder.mkdir()
    (other,) = runs_of(write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",)), record.results)
    end(record, other, 2.0)
    task = "{digits: {num_steps: 20, split_seed: 1}}"
    mine = runs_of(write_study(folders[0], tasks=task), record.results)
    assert timings(mine, record).keys() == {UNFROZEN}
    wide = "{tiny: {size: {layers: 1, heads: 2, width: 32, positions: 12}}}"
    other_size = runs_of(write_study(folders[1], models=wide, variants=("unfrozen-random",)), record.results)
    assert timings(other_size, record) == {}


def test_a_measured_stack_is_shared_out_with_its_evaluations(runs: list[WantedRun], record: SyntheticRecord) -> None:
    """(0.2 + 8 / 10) / 4, (0.1 + 4 / 10) / 4, (0.4 + 16 / 10) / 4 seconds a step of a run."""
    results = Results(record.results)
    keep_measured(results, measured(runs[0]))
    keep_measured(results, measured(runs[0], engine="plain"))
    found = timings(runs, record)
    assert found.keys() == {FROZEN}
    assert found[FROZEN].step_s == Span(low=0.125, middle=0.25, high=0.5)
    assert found[FROZEN].source == "measured, 4 together"


def test_of_several_timings_the_latest_counts(runs: list[WantedRun], record: SyntheticRecord) -> None:
    results = Results(record.results)
    end(record, runs[0], 2.0)
    os.utime(results.run(runs[0].run_id), (NOON.timestamp(), NOON.timestamp()))
    keep_measured(results, measured(runs[0], at=NOON - timedelta(hours=1)))
    assert timings(runs, record)[FROZEN].source == "1 recorded"
    keep_measured(results, measured(runs[0], at=NOON + timedelta(hours=1)))
    assert timings(runs, record)[FROZEN].source == "measured, 4 together"
    assert len(read_measured(results)) == 1  # the second took the first one's place
    results.timings.write_text("{")
    with pytest.raises(UserError, match=r"timings\.json .*delete it"):
        timings(runs, record)


@pytest.mark.parametrize(
    ("trials_s", "at_once", "end_s"),
    [([], 2, 0.0), ([3, 1, 1, 1], 2, 3.0), ([1, 1, 1, 3], 2, 4.0), ([2, 2], 1, 4.0), ([2, 5], 8, 5.0)],
)
def test_wall_time_is_that_of_trials_in_their_order(trials_s: list[float], at_once: int, end_s: float) -> None:
    assert wall_time(trials_s, at_once) == end_s


def test_cost_of_everything(runs: list[WantedRun], tmp_path: Path) -> None:
    """4 runs a cell; 20 steps of 90 s are half an hour, on 2 cores an hour; a trial is a cell's 4 runs."""
    known = {FROZEN: timing(45, 90, 180), UNFROZEN: timing(90, 180, 360)}
    cost = cost_of(runs, tmp_path / "results", known, cpus_per_trial=2)
    assert cost.of(runs).middle == 3600 * (4 * 1 + 4 * 2)
    assert cost.wall_s == Span(low=3600 * 2, middle=3600 * 4, high=3600 * 8)
    lines = cost_lines(cost)
    assert lines[0] == "cost       12 core-hours (6 to 24) for what is left, if no run diverges"
    assert lines[2].split() == [*FROZEN, "4", "4", "2", "to", "8", "made", "up"]
    assert lines[3].split() == [*UNFROZEN, "4", "8", "4", "to", "16", "made", "up"]
    assert lines[4] == "wall time  4:00:00 (2:00:00 to 8:00:00) with 2 trials at once; starting Ray is not in it"
    assert lines[5:] == ["range      from the fastest to the slowest of the steps that were timed; timed on CPU"]
    cheap = replace(cost_of(runs, tmp_path / "results", known, cpus_per_trial=2, at_once=500), price=0.001)
    assert cost_lines(cheap)[4].endswith("with 8 trials at once; starting Ray is not in it")  # one a run
    assert cost_lines(cheap)[5] == "price      0.012 (0.006 to 0.024) at 0.001 for each of the core-hours"


def test_cost_of_what_is_left(runs: list[WantedRun], record: SyntheticRecord) -> None:
    """In the first cell one run is complete and one resumes at step 15; the second cell has no timings."""
    end(record, runs[0], 1.0)
    folder = Results(record.results).checkpoints(runs[1].run_id)
    folder.mkdir(parents=True)
    (folder / "step-000000015-0123456789abcdef.safetensors").touch()
    cost = cost_of(runs, record.results, {FROZEN: timing(90, 180, 360)}, at_once=1, gpus_per_trial=0.5)
    assert cost.of(runs).middle == 180 * (5 + 20 + 20) * 0.5
    assert cost.wall_s.middle == 180 * (5 + 20 + 20)
    lines = cost_lines(cost)
    assert lines[0].startswith("cost       at least 1.12 GPU-hours (0.562 to 2.25)")
    assert lines[3].split() == [*UNFROZEN, "4", "unknown"]
    assert lines[4].startswith("           1 cell not timed yet; `plan --measure`")
    assert lines[5].startswith("wall time  at least 2:15:00 (1:07:30 to 4:30:00) with 1 trial at once")


def test_nothing_left_costs_nothing(runs: list[WantedRun], record: SyntheticRecord) -> None:
    for run in runs:
        end(record, run, 1.0)
    assert cost_lines(cost_of(runs, record.results, {})) == ["cost       nothing: everything is trained"]


def test_devices_given_count_before_those_here() -> None:
    assert devices_here(7, 3) == {"CPU": 7, "GPU": 3}
    assert devices_here(None, None)["CPU"] >= 1


def test_plan_measures_here_and_keeps_the_timings(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    given = ["plan", study, "--results", tmp_path / "results", "--cpus", "1"]
    code, text = in_process(*given)
    assert (code, "cost       not known" in text) == (0, True)
    assert not (tmp_path / "results").exists()
    text = succeeds(*given, "--measure")
    assert "digits tiny frozen-pretrained: measured, 1 run together" in text
    assert "with 1 trial at once" in text
    assert "measured alone on this machine" in text
    assert {entry["content"]["task"] for entry in read_measured(Results(tmp_path / "results"))} == {"digits"}
    assert in_process(*given)[1] == text[text.index("tiny: A tiny study") :]


def test_a_cell_without_its_data_is_named_and_left_out(tmp_path: Path) -> None:
    study = write_study(tmp_path, tasks="{mnist: {num_steps: 20}}", variants=("unfrozen-random",))
    code, text = in_process(
        *("plan", study, "--results", tmp_path / "results", "--data-dir", tmp_path / "none", "--measure")
    )
    assert code == 0
    assert "mnist tiny unfrozen-random: not measured: " in text
    assert "cost       not known" in text
