"""A study of the user's own training function, in a folder outside the checkout: trained, killed, changed, failed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.own_study import write_function, write_own_study
from lr_sweep.tests.support.tiny_study import (
    ROOT,
    cohort_here,
    curves,
    environment,
    events_of,
    in_process,
    rows,
    runs_of,
    sweep,
    trained_here,
)
from lr_sweep.trainables.checkpoint import checkpoints

TRAIN_WITHOUT_RAY = """
import sys
from pathlib import Path
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.tiny_study import cohort_here, events_of, runs_of
study, results = map(Path, sys.argv[1:])
events_of(cohort_here(runs_of(study, results)[:1], Results(results), every_s=0.0))
"""


@pytest.mark.cluster
def test_a_function_of_ones_own_is_a_study_like_any_other(tmp_path: Path) -> None:
    study, results = write_own_study(tmp_path / "own"), tmp_path / "results"
    sound = study.read_text()
    study.write_text(sound.replace("variants: {", "variants: {broken: {optimizer: sgd}, "))
    code, output = sweep("run", study, "--results", results)
    assert code == 1, output
    assert "3 runs wanted: 2 complete, 0 diverged, 1 failed" in output
    assert "Test loss by learning rate" in output

    found = rows(results)
    broken, *trained = sorted(found.values(), key=lambda row: row["status"] != "failed")
    assert {row["engine"] for row in trained} == {"own"}
    with_broken = study.read_text()
    study.write_text(sound)
    expected = trained_here(study, tmp_path / "here")
    assert {run_id: repr(curve) for run_id, curve in expected.items()} == {
        row["run_id"]: repr(curves(results)[row["run_id"]]) for row in trained
    }
    best = min(point["validation_accuracy"] for point in curves(results)[trained[0]["run_id"]])
    assert trained[0]["validation_at_best"] == best

    shown = in_process("show", broken["run_id"], "--results", results)[1]
    assert "failure        KeyError: 'momentum'" in shown
    assert 'traceback\n  Most recent call last:\n    File "train.py", line 18, in train\n' in shown
    assert in_process("verify", "--results", results)[1].endswith("0 weights: no problems\n")
    log = in_process("show", broken["run_id"], "--log", "--results", results)[1].splitlines()
    assert log[0].endswith("  failed: Most recent call last:")
    assert log[-1].endswith("KeyError: 'momentum'")
    log = in_process("show", trained[0]["run_id"], "--log", "--results", results)[1].splitlines()
    assert [line[21:28] for line in log] == ["started", "step 10", "step 20", "complet"]

    train = tmp_path / "own" / "train.py"
    train.write_text(train.read_text().replace("0.1 *", "0.2 *"))
    study.write_text(with_broken)
    planned = in_process("plan", study, "--results", results)[1]
    assert "runs       3 wanted: 3 new" in planned
    assert "(2 complete) would no longer be wanted: the study has another version of train.py; 2 of them" in planned


def test_a_run_that_is_killed_resumes_with_the_same_bits(tmp_path: Path) -> None:
    study, results = write_own_study(tmp_path / "own", num_steps=400), tmp_path / "results"
    command = [sys.executable, "-c", TRAIN_WITHOUT_RAY, str(study), str(results)]
    first = runs_of(study, results)[0]
    folder = Results(results).checkpoints(first.run_id)
    process = subprocess.Popen(command, cwd=ROOT, env=environment())
    while process.poll() is None and len(checkpoints(folder)) < 2:
        time.sleep(0.02)
    process.kill()
    process.wait()
    step = int(checkpoints(folder)[0].name.split("-")[1])
    assert 0 < step < 400

    here = cohort_here([first], Results(tmp_path / "here"))
    whole = [event.evaluation for event in events_of(here) if getattr(event, "evaluation", None)]
    resumed = events_of(cohort_here([first], Results(results)))
    assert resumed[0].step == step
    assert resumed[0].curve[-1].step == step // 10 * 10
    rest = [event.evaluation for event in resumed if getattr(event, "evaluation", None)]
    losses = [point.validation_accuracy for point in whole]
    assert [point.validation_accuracy for point in (*resumed[0].curve, *rest)] == losses


SEARCHED = """
import time

for step in session.steps():
    if session.due:
        time.sleep(1.5)  # or it ends before it can be stopped
        value = run.options["scale"] * step / run.learning_rate / 1e6
        session.report(validation=value, test=value)
"""


@pytest.mark.cluster
@pytest.mark.slow
def test_a_function_is_searched_with_its_own_options_and_stopped_early(tmp_path: Path) -> None:
    """Rates train one by one, rising, and values fall with them: the first are kept, of the last some stop."""
    changes = {
        "learning_rates": "null",
        "search": "{sampler: random, low: 1e-3, high: 1e-1, rates: 8, space: {scale: [1, 4]}}",
        "stop_early": "{rule: median, first: 5}",
        "num_steps": "20",
    }
    study, results = write_function(tmp_path, SEARCHED, **changes), tmp_path / "results"
    code, output = sweep("run", study, "--results", results)
    assert code == 0, output
    found = sorted(rows(results).values(), key=lambda row: row["started_at"])
    options = [json.loads(row["content"])["options"] for row in found]
    assert {each["scale"] for each in options} == {1, 4}
    assert [row["status"] for row in found[:3]] == ["complete"] * 3
    stopped = [row["stopped_at_step"] for row in found if row["status"] == "stopped"]
    assert stopped
    assert set(stopped) <= {5, 10, 15}
    assert in_process("verify", "--results", results)[1].endswith("0 weights: no problems\n")
