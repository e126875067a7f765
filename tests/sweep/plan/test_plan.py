"""What `plan` says, for a study small enough to count by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.plan.cost import disk_bytes
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.plan.plan import Plan, plan_on
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.own_study import NOISY, write_function
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import runs_of, write_study

INPUT = 16 * 16 + 16  # 16 pixels a token, width 16
OUTPUT = 16 * 10 + 10
POSITIONS = 12 * 16
LAYER_NORMS = 3 * 2 * 16  # two in the block, the final one
ATTENTION = (16 * 48 + 48) + (16 * 16 + 16)
FEEDFORWARD = (16 * 64 + 64) + (64 * 16 + 16)
FROZEN = INPUT + OUTPUT + POSITIONS + LAYER_NORMS  # 730
ALL = FROZEN + ATTENTION + FEEDFORWARD  # 3946


def planned(study_file: Path, results: Path, noise: float | None = None) -> Plan:
    study = load_study(study_file)
    placement = Placement(resources=study.resources)
    return Plan(study, placement, Results(results), Path("/data"), noise=noise)


def plan(study_file: Path, results: Path) -> list[str]:
    return plan_on(planned(study_file, results), {"CPU": 2.0}).splitlines()


def test_disk_is_checkpoints_and_the_record(tmp_path: Path) -> None:
    runs = runs_of(write_study(tmp_path, rates=(1e-3,)), tmp_path / "results")
    # model, two moments of Adam and the best model, 4 bytes a number; at once: two more of the largest
    checkpoints = 16 * (FROZEN + ALL)
    record = 2 * (2 * 80 + 12_000)  # two evaluations a run
    assert disk_bytes(runs, num_at_once=1) == checkpoints + 2 * 16 * ALL + record
    assert disk_bytes(runs, num_at_once=2) == checkpoints + 2 * checkpoints + record
    assert disk_bytes([], num_at_once=2) == 0


def test_plan_of_a_new_study(tmp_path: Path) -> None:
    study = write_study(tmp_path, seeds=2, runs_per_trial=2)
    lines = plan(study, tmp_path / "results")
    assert lines[:6] == [
        "tiny: A tiny study",
        "",
        "grid       1 task x 1 model x 2 variants x 2 learning rates x 2 seeds = 8 runs",
        "rates      1e-3, 1e-2",
        "seeds      0, 1",
        "finds      not known without runs of this task and model, or `plan --noise SD`",
    ]
    assert [line.split() for line in lines[8:10]] == [
        ["digits", "tiny", "frozen-pretrained", "4", "20", f"{FROZEN}", "0", "4"],
        ["digits", "tiny", "unfrozen-random", "4", "20", f"{ALL:,}", "0", "4"],
    ]
    assert "weights    tiny: the weights in weights (here)" in lines
    assert "runs       8 wanted: 8 new" in lines
    assert "to train   8 runs in 4 trials, at most 160 gradient steps" in lines
    assert "resources  1 CPU and 0 GPU a trial" in lines
    assert "data       /data" in lines
    assert lines[-1].startswith("cost       unknown: no cell is timed yet; ")
    assert not any("run ids depend on the weights" in line for line in lines)
    assert not (tmp_path / "results").exists()  # a plan makes nothing


def test_the_processes_of_a_run_are_part_of_what_a_trial_holds(tmp_path: Path) -> None:
    lines = plan(write_function(tmp_path, NOISY, resources="{processes_per_run: 2}"), tmp_path / "results")
    assert "resources  2 CPU and 0 GPU a trial, of 2 processes that train a run together" in lines


def test_plan_leaves_out_what_is_done(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    record = SyntheticRecord(tmp_path / "results")
    frozen, diverged, short, _ = runs_of(study, record.results)
    record.end(frozen.row(), [(10, 0.5, 0.5), (20, 0.5, 0.5)], "complete", 20)
    record.end(diverged.row(), [], "diverged", 3, diverged_at=3)
    record.end(short.row(), [(10, 0.5, 0.5)], "complete", 10)
    lines = plan(study, record.results)
    assert [line.split()[-2:] for line in lines[8:10]] == [["2", "0"], ["0", "2"]]
    assert "runs       4 wanted: 1 complete, 1 diverged, 1 started, 1 new" in lines
    assert "to train   2 runs in 2 trials, at most 40 gradient steps" in lines


def test_plan_says_when_ids_are_not_known_yet(tmp_path: Path) -> None:
    model = "{size: {layers: 1, heads: 2, width: 16, positions: 128}, pretrained: {pretrain: {num_steps: 2}}}"
    lines = plan(write_study(tmp_path, models=f"{{tiny: {model}}}"), tmp_path / "results")
    (first,) = [index for index, line in enumerate(lines) if line.startswith("weights ")]
    assert lines[first].startswith("weights    tiny: byte-level GPT-2 of 1 layers x width 16, trained for 2 steps")
    assert lines[first].endswith("(not here yet; `run` gets or trains them first)")
    assert lines[first + 1] == "           the ids of its pretrained runs depend on these weights: not known yet"


@pytest.mark.parametrize(("name", "noise_of"), [("tiny", "tiny"), ("earlier", "earlier"), ("damaged", None)])
def test_the_plan_says_what_recorded_noise_lets_it_find(tmp_path: Path, name: str, noise_of: str | None) -> None:
    """Two variants with tests of 0.50 and 0.52, so a standard deviation of 1.41 points."""
    study = write_study(tmp_path, rates=(1e-3,), seeds=2, fresh="5")
    record = SyntheticRecord(tmp_path / "results", study=name)
    for run in runs_of(study, record.results):
        record.wanted.append(run.row())
        record.end(run.row(), [(20, 0.5, 0.5 + 0.02 * run.run.seed)], "complete", 20)
    record.write()
    if name == "damaged":
        Results(record.results).facts(name).write_text("{")
    found = planned(study, record.results).finds
    assert [each["noise_of"] for each in found] == ([noise_of] if noise_of else [])
    lines = plan(study, record.results)
    text = "in 80% of studies 2 own seeds find no difference, 3 find 3.8 points; 5 fresh seeds find a difference of 2.9"
    assert any(line.startswith(f"finds      {text}") for line in lines) == bool(noise_of)


def test_a_plan_without_pairs_of_variants_says_nothing_of_them(tmp_path: Path) -> None:
    study = write_study(tmp_path, variants=("unfrozen-random",))
    assert planned(study, tmp_path / "results", noise=2.0).finds == []
    assert not any(line.startswith("finds") for line in plan(study, tmp_path / "results"))


def test_the_plan_computes_with_the_noise_of_an_option(tmp_path: Path) -> None:
    found = planned(write_study(tmp_path, seeds=3), tmp_path / "results", noise=2.0).finds
    assert [each["noise_of"] for each in found] == ["--noise"]
    wanted = {"own": (3, 2.69, 2.18), "fresh": (5, 2.08, 1.83)}
    for kind, (seeds, *sizes) in wanted.items():
        assert found[0][kind]["seeds"] == seeds
        assert [found[0][kind][name] / 0.02 for name in ("difference", "one_more")] == pytest.approx(sizes, rel=0.01)
