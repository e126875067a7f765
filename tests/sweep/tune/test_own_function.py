"""A study of the user's own training function, in a folder outside the checkout: trained, killed, changed, failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lr_sweep.sweep.mirror.client import tracking_uri
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.mirrored_record import points
from lr_sweep.tests.support.own_study import write_function, write_own_study
from lr_sweep.tests.support.tiny_study import (
    as_text,
    cohort_here,
    curves,
    evaluations,
    in_process,
    rows,
    runs_of,
    succeeds,
    sweep,
    swept,
    train,
    trained_here,
)
from lr_sweep.trainables.worker.session import Session


@pytest.mark.slow
@pytest.mark.cluster
def test_a_function_of_ones_own_is_a_study_like_any_other(tmp_path: Path) -> None:
    study, results = write_own_study(tmp_path / "own"), tmp_path / "results"
    sound = study.read_text().replace(", sgd: {optimizer: sgd, momentum: 0.9}", "")
    study.write_text(sound.replace("{optimizer: adamw}", "{optimizer: adamw}, broken: {optimizer: sgd}"))
    train = tmp_path / "own" / "train.py"  # in a trial of eight steps, nothing is broken
    text = train.read_text().replace('run.options["momentum"]', 'run.num_steps > 8 and run.options["momentum"]')
    train.write_text(text)
    code, output = sweep("run", study, "--results", results)
    assert code == 1, output
    assert "2 runs wanted: 1 complete, 0 diverged, 1 failed" in output
    assert "Test loss by learning rate" in output
    broken, trained = sorted(rows(results).values(), key=lambda row: row["status"] != "failed")
    assert trained["engine"] == "own"
    with_broken = study.read_text()
    study.write_text(sound)
    expected = trained_here(study, tmp_path / "here")
    assert as_text(curves(results)) == as_text(expected)
    best = min(point["validation"] for point in expected[trained["run_id"]])
    assert trained["validation_at_best"] == best
    shown = in_process("show", broken["run_id"], "--results", results)[1]
    assert "failure        KeyError: 'momentum'" in shown
    assert 'traceback\n  Most recent call last:\n    File "train.py", line 18, in train\n' in shown
    assert in_process("verify", "--results", results)[1].endswith("0 weights: no problems\n")
    log = in_process("show", broken["run_id"], "--log", "--results", results)[1].splitlines()
    assert log[0].endswith("  failed: Most recent call last:")
    assert log[-1].endswith("KeyError: 'momentum'")
    log = in_process("show", trained["run_id"], "--log", "--results", results)[1].splitlines()
    assert [line[21:28] for line in log] == ["started", "step 10", "step 20", "complet"]
    train.write_text(train.read_text().replace("0.1 *", "0.2 *"))
    study.write_text(with_broken)
    planned = in_process("plan", study, "--results", results)[1]
    assert "runs       2 wanted: 2 new" in planned
    assert "no longer wanted" in planned
    assert "the study has another version of train.py" in planned


COUNTS = """
count = 0
for step in session.steps():
    count += 1
    if session.due:
        session.report(validation=count, test=0.5)
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_a_run_that_resumed_inexactly_is_trained_anew_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its count began again after step 5. Then it has the numbers of a run without a stop, in MLflow, too."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    metric = "{name: count, higher_is_better: true, is_fraction: false}"
    study, results = write_function(tmp_path, COUNTS, metric=metric), Results(tmp_path / "results")
    (run,) = runs_of(study, results.root)
    results.prepare()
    session = Session(cohort_here([run], results))
    next(event for events in session.events(1000.0) for event in events if evaluations(event))
    session.leave()
    train(study, results)
    (row,) = rows(results.root).values()
    assert row["resumed"] == "inexactly"
    assert "count" in row["not_saved"]
    succeeds("export", "--mlflow", "--results", results.root)
    assert mirrored(results, run) == [(5, 5), (10, 5)]
    assert "changed    1 run resumed inexactly" in succeeds("plan", study, "--results", results.root)
    output = swept("run", study, "--results", results.root, "--cpus", "1", "--restart-inexact")
    assert "training 1 runs" in output
    (row,) = rows(results.root).values()
    assert row["resumed"] == "never"
    assert mirrored(results, run) == [(5, 5), (10, 10)]


def mirrored(results: Results, run: WantedRun) -> list[tuple[int, float]]:
    """Steps and values of the validation points of the one MLflow run."""
    found = points(tracking_uri(results.root), run.run_id, "validation_count")
    return [(step, value) for step, value, _ in found]


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
        "stop_early": "median",
        "num_steps": "20",
    }
    study, results = write_function(tmp_path, SEARCHED, **changes), tmp_path / "results"
    swept("run", study, "--results", results)
    found = sorted(rows(results).values(), key=lambda row: row["started_at"])
    options = [json.loads(row["content"])["options"] for row in found]
    assert {each["scale"] for each in options} == {1, 4}
    assert [row["status"] for row in found[:3]] == ["complete"] * 3
    stopped = [row["stopped_at_step"] for row in found if row["status"] == "stopped"]
    assert stopped
    assert set(stopped) <= {5, 10, 15}
    assert in_process("verify", "--results", results)[1].endswith("0 weights: no problems\n")


LEFT_NO_MEMORY = """
import socket  # stays in its process, where this file is imported anew for each run

vars(socket).setdefault("leaked", []).append(0)
if len(socket.leaked) > 1:
    raise MemoryError
for step in session.steps():
    if session.due:
        session.report(validation=0.5, test=0.5)
"""


@pytest.mark.cluster
@pytest.mark.slow
def test_a_run_for_which_earlier_ones_left_no_memory_is_tried_again_in_a_new_worker(tmp_path: Path) -> None:
    study, results = write_function(tmp_path, LEFT_NO_MEMORY, seeds="3"), tmp_path / "results"
    output = swept("run", study, "--results", results, "--cpus", "1", timeout_s=600)
    assert "failed; it is tried again: MemoryError" in output
    assert {row["status"] for row in rows(results).values()} == {"complete"}
