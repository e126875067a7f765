"""`run` with real Ray: six starts of it, shared by the tests below."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweep.cli import main
from sweep.errors import UserError
from sweep.mlflow_store import open_client, tracking_uri
from sweep.placement import Placement
from sweep.results import Results
from sweep.trials import assignment
from tests.tiny_study import ROOT, command_line, curves, environment, rows, runs_of, sweep, write_study
from trainables.checkpoint import checkpoints
from trainables.stacked_session import StackedSession

pytestmark = pytest.mark.cluster


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a `run` left behind, read when it had ended."""

    code: int
    output: str
    results: Path
    curves: dict[str, list[dict[str, Any]]]
    rows: dict[str, dict[str, Any]]
    files: dict[str, int]
    """Modification times (ns) below `runs` and `curves`."""
    other_files: set[str]
    """Names right below the results directory, and the report."""


def ended(code: int, output: str, results: Path) -> Ended:
    paths = [path for folder in ("runs", "curves") for path in (results / folder).iterdir()]
    others = [*results.iterdir(), *results.glob("studies/tiny/report/report.md")]
    return Ended(
        code=code,
        output=output,
        results=results,
        curves=curves(results),
        rows=rows(results),
        files={str(path.relative_to(results)): path.stat().st_mtime_ns for path in paths},
        other_files={str(path.relative_to(results)) for path in others},
    )


def run(study: Path, results: Path, *options: str, **env: str) -> Ended:
    code, output = sweep("run", study, "--results", results, "--cpus", "2", *options, env=env)
    assert "Traceback" not in output
    return ended(code, output, results)


def in_process(*arguments: str | Path) -> tuple[int, str]:
    """Run a command that starts no Ray."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main([*map(str, arguments)])
    return code, output.getvalue()


@pytest.fixture(scope="module", autouse=True)
def _own_store() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def first(folder: Path) -> Ended:
    """Two learning rates x two variants, with another package `datasets` in the way."""
    other = folder / "other"
    (other / "datasets").mkdir(parents=True)
    (other / "datasets" / "__init__.py").write_text("raise ImportError('the other datasets')")
    (other / "datasets-9.9.dist-info").mkdir()
    (other / "datasets-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: datasets\nVersion: 9.9\n")
    return run(write_study(folder), folder / "results", PYTHONPATH=str(other))


@pytest.fixture(scope="module")
def again(first: Ended, folder: Path) -> Ended:
    """The same command once more, but strict about what the checks find."""
    code, output = in_process("run", folder / "tiny.yaml", "--results", first.results, "--strict")
    return ended(code, output, first.results)


@pytest.fixture(scope="module")
def second(again: Ended, folder: Path) -> Ended:
    """Two learning rates more, two runs a trial, MLflow out of reach, and a trial's first run cannot be saved."""
    study = write_study(folder, rates=(1e-3, 1e-2, 3e-2, 1e-1), runs_per_trial=2)
    hindrance(study, again.results).touch()
    return run(study, again.results, MLFLOW_TRACKING_URI="http://127.0.0.1:1")


def hindrance(study: Path, results: Path) -> Path:
    """Where the checkpoints of a run should go: a file here makes every attempt fail."""
    new = [run for run in runs_of(study, results) if run.run.learning_rate == 3e-2]
    return Results(results).checkpoints(new[0].run_id)


@pytest.fixture(scope="module")
def third(second: Ended, folder: Path) -> Ended:
    """The step budget raised, the hindrance gone, MLflow back, three runs a trial."""
    study = write_study(folder, rates=(1e-3, 1e-2, 3e-2, 1e-1), num_steps=40, runs_per_trial=3)
    hindrance(study, second.results).unlink()
    return run(study, second.results, "--retry-failed")


def test_a_study_runs_to_its_end(first: Ended) -> None:
    assert first.code == 0, first.output
    assert "4 runs wanted, 4 new" in first.output
    assert [(row["status"], row["num_steps"], row["attempts"]) for row in first.rows.values()] == [
        ("complete", 20, 1)
    ] * 4
    assert first.curves.keys() == first.rows.keys()
    assert all([point["step"] for point in curve] == [10, 20] for curve in first.curves.values())
    assert "studies/tiny/report/report.md" in first.other_files
    assert "tune" not in first.other_files


def test_another_datasets_is_told_of_and_not_used(first: Ended) -> None:
    assert "warning: Hugging Face's distribution `datasets` 9.9 is installed here too" in first.output
    assert first.code == 0


def test_a_second_run_trains_nothing_and_touches_nothing(first: Ended, again: Ended) -> None:
    assert again.code == 1
    assert "problem: digits tiny unfrozen-random: only 2 learning rates were tried" in again.output
    assert "4 complete" in again.output
    assert "nothing to train" in again.output
    assert again.files == first.files


def test_more_learning_rates_train_their_runs_alone(first: Ended, second: Ended) -> None:
    assert "8 runs wanted, 4 complete, 4 new" in second.output
    assert "training 4 runs" in second.output
    new = second.rows.keys() - first.rows.keys()
    assert sorted(second.rows[run_id]["learning_rate"] for run_id in new) == [3e-2, 3e-2, 1e-1, 1e-1]
    assert {name: second.files[name] for name in first.files} == first.files


def test_a_run_that_cannot_be_trained_is_a_row_and_does_not_stop_others(first: Ended, second: Ended) -> None:
    assert second.code == 1
    assert "1 runs failed" in second.output
    new = [second.rows[run_id] for run_id in second.rows.keys() - first.rows.keys()]
    assert sorted(row["status"] for row in new) == ["complete", "complete", "complete", "failed"]
    (failed,) = [row for row in new if row["status"] == "failed"]
    assert (failed["variant"], failed["learning_rate"]) == ("frozen-pretrained", 3e-2)
    assert failed["failure"].startswith("FileExistsError: ")
    assert failed["attempts"] == 4  # `retries: 1`: twice together with another run, twice alone


def test_mlflow_out_of_reach_does_not_stop_a_sweep(second: Ended) -> None:
    assert "127.0.0.1:1: " in second.output
    assert "training goes on" in second.output
    assert "8 runs are not in MLflow yet; the next `run` of this study mirrors them" in second.output


def test_a_higher_budget_goes_on_and_keeps_the_curves(second: Ended, third: Ended) -> None:
    assert third.code == 0, third.output
    assert "8 runs wanted, 1 failed, 7 started" in third.output
    assert {(row["status"], row["num_steps"]) for row in third.rows.values()} == {("complete", 40)}
    for run_id, curve in second.curves.items():
        assert third.curves[run_id][: len(curve)] == curve
        assert [point["step"] for point in third.curves[run_id]] == [10, 20, 30, 40]


def test_runs_of_one_trial_equal_runs_trained_alone(third: Ended, folder: Path, tmp_path: Path) -> None:
    """In `third` three runs shared a process; here each has the process to itself."""
    for run_id, curve in _trained_here(folder / "tiny.yaml", tmp_path).items():
        assert third.curves[run_id] == curve


def _trained_here(study: Path, results: Path) -> dict[str, list[dict[str, Any]]]:
    """Curves of a study's runs without Ray."""
    expected = {}
    for wanted in runs_of(study, results):
        here = Placement(resources=_load(study).resources)
        alone = assignment(wanted, here, Results(results), results, 1000.0)
        events = list(itertools.chain.from_iterable(StackedSession([alone], 1).events(1000.0)))
        assert events[-1]["status"] == "complete"
        expected[wanted.run_id] = [
            {"run_id": wanted.run_id} | {k: v for k, v in point.items() if k not in ("time_ms", "elapsed_s")}
            for event in events
            for point in event.get("evaluations", [])
        ]
    return expected


def _load(study: Path) -> Any:
    from sweep.study_file import load_study

    return load_study(study)


def test_mlflow_holds_every_run_and_point_once(third: Ended) -> None:
    uri = tracking_uri(third.results)
    client = open_client(uri)
    experiment = client.get_experiment_by_name("lr-sweep")
    found = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in found if run.data.tags["sweep.kind"] == "study"]
    children = [run for run in found if run.data.tags["sweep.kind"] == "run"]
    assert sorted(run.data.tags["sweep.run_id"] for run in children) == sorted(third.rows)
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in found} == {"FINISHED"}
    for run in children:
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "test_accuracy")]
        assert sorted(steps) == [10, 20, 30, 40]
    assert [item.path for item in client.list_artifacts(parent.info.run_id)] == ["report"]


def test_status_after_the_end(third: Ended, folder: Path) -> None:
    code, output = in_process("status", folder / "tiny.yaml", "--results", third.results)
    assert code == 0
    assert "no sweep is going on" in output
    (total,) = [line.split() for line in output.splitlines() if line.startswith("all")]
    assert total == ["all", "8", "0", "0", "0", "0"]  # complete, diverged, failed, started, waiting


def test_killed_then_interrupted_then_finished_equals_undisturbed(tmp_path: Path) -> None:
    """SIGKILL to the whole process group, then Ctrl-C, then to the end; `status` looks on."""
    study = write_study(tmp_path, rates=(1e-2,), num_steps=3000, protocol="{evaluate_every: 300}")
    results = tmp_path / "results"
    with _started(study, results) as (process, wait_for):
        wait_for(lambda: _newest_steps(results) and curves(results))
        os.killpg(process.pid, signal.SIGKILL)
    assert not rows(results)

    progress = Results(results).progress("tiny")
    killed_at_ns = time.time_ns()
    with _started(study, results) as (process, wait_for):
        wait_for(lambda: progress.exists() and progress.stat().st_mtime_ns > killed_at_ns)
        before = _newest_steps(results)
        wait_for(lambda: _newest_steps(results) != before)
        code, output = in_process("status", study, "--results", results)
        assert code == 0
        assert f"process {process.pid} on " in output
        with pytest.raises(UserError, match=f"is being written to by process {process.pid} "):
            Results(results).writing("tiny").__enter__()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(timeout=60) == 130  # takes 8 s on two busy cores
        assert process.stdout
        output = process.stdout.read()
        assert "stopped; the same command goes on from here" in output
        assert "Traceback" not in output
    assert not rows(results)
    assert all(step > before.get(run_id, 0) for run_id, step in _newest_steps(results).items())

    last = run(study, results)
    assert last.code == 0, last.output
    assert "2 runs wanted, 2 started" in last.output
    assert last.curves == _trained_here(study, tmp_path / "undisturbed")
    assert all(len(checkpoints(folder)) == 1 for folder in (results / "checkpoints").iterdir())


@contextlib.contextmanager
def _started(study: Path, results: Path) -> Iterator[tuple[subprocess.Popen[str], Callable[[Callable[[], Any]], None]]]:
    """Start `run` in a process group of its own; yield it and a function that waits for something while it runs."""
    process = subprocess.Popen(
        command_line("run", study, "--results", results, "--cpus", "2", "--checkpoint-every-s", "0.1"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def wait_for(happened: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 120
        while not happened():
            assert process.poll() is None, process.stdout and process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    try:
        yield process, wait_for
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _newest_steps(results: Path) -> dict[str, int]:
    """Steps of the newest checkpoints, by run id."""
    folders = (results / "checkpoints").glob("*")
    return {folder.name: int(newest.name.split("-")[1]) for folder in folders for newest in checkpoints(folder)[:1]}
