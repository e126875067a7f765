"""`run` with real Ray: three starts of it, shared by the first tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.sweep.mirror.client import open_client, tracking_uri
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.background import Watched, is_loopback, watched_run
from lr_sweep.tests.support.tiny_study import (
    curves,
    in_process,
    rows,
    runs_of,
    succeeds,
    sweep,
    swept,
    trained_here,
    write_study,
)

pytestmark = pytest.mark.cluster
SECRETS = {
    "AWS_ACCESS_KEY_ID": "planted-key-id",
    "AWS_SECRET_ACCESS_KEY": "planted-secret-key",
    "AWS_SESSION_TOKEN": "planted-session-token",
    "HF_TOKEN": "planted-hub-token",
    "MLFLOW_TRACKING_PASSWORD": "planted-password",
    "RAY_AUTH_TOKEN": "planted-cluster-token",
}
WATCH_DATASETS = """
import os, sys

class Watch:
    \'\'\'Notes which `datasets` a process gets just before it imports ours, and the digits' module in it.\'\'\'

    def find_spec(self, name, path=None, target=None):
        if name in ("lr_sweep.datasets", "lr_sweep.datasets.digits"):
            import datasets
            with open({log!r}, "a") as log:
                print(os.path.basename(sys.argv[0]), name, datasets.__file__, file=log)
            sys.modules.pop("datasets", None)

sys.meta_path.insert(0, Watch())
"""


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


@pytest.fixture(scope="module", autouse=True)
def _own_store() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def watched(folder: Path) -> Iterator[Watched]:
    """Two learning rates x two variants, beside another package `datasets`, with secrets in the environment."""
    other = folder / "other"
    (other / "datasets").mkdir(parents=True)
    (other / "datasets" / "__init__.py").write_text("from datasets.arrow_dataset import load_dataset\n")
    (other / "datasets" / "arrow_dataset.py").write_text("def load_dataset(path): ...\n")
    (other / "sitecustomize.py").write_text(WATCH_DATASETS.format(log=str(folder / "datasets.log")))
    study, env = write_study(folder), SECRETS | {"PYTHONPATH": str(other)}
    with watched_run("run", study, "--results", folder / "results", "--cpus", "2", env=env) as seen:
        yield seen


@pytest.fixture(scope="module")
def first(watched: Watched, folder: Path) -> Ended:
    """What that run left."""
    assert "Traceback" not in watched.output
    return ended(watched.code, watched.output, folder / "results")


@pytest.fixture(scope="module")
def again(first: Ended, folder: Path) -> Ended:
    """The same command once more, but strict about what the checks find."""
    code, output = in_process("run", folder / "tiny.yaml", "--results", first.results, "--strict")
    return ended(code, output, first.results)


@pytest.fixture(scope="module")
def second(again: Ended, folder: Path) -> Ended:
    """Two rates more, a higher budget, two runs a trial, MLflow out of reach, and a trial's first run is hindered."""
    study = write_study(folder, rates=(1e-3, 1e-2, 3e-2, 1e-1), num_steps=40, runs_per_trial=2)
    hindrance(study, again.results).touch()
    return run(study, again.results, MLFLOW_TRACKING_URI="http://127.0.0.1:1")


def hindrance(study: Path, results: Path) -> Path:
    """Return where a run's checkpoints belong: a file there makes every attempt fail."""
    new = [run for run in runs_of(study, results) if run.run.learning_rate == 3e-2]
    return Results(results).checkpoints(new[0].run_id)


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


def test_nothing_listens_on_the_network(watched: Watched) -> None:
    kinds = {kind for kind, _ in watched.listening}
    assert {"driver", "gcs_server", "raylet"} < kinds, "the test looks at the right processes"
    assert any("Trainable" in kind for kind in kinds), kinds
    assert {(kind, address) for kind, address in watched.listening if not is_loopback(address)} == set()


def test_only_what_a_sweep_uses_of_ray_is_started(watched: Watched) -> None:
    assert any("raylet" in command for command in watched.commands)
    assert [each for each in watched.commands if "monitor.py" in each or "dashboard.py" in each] == []


def test_other_users_of_the_machine_are_kept_out_of_ray(watched: Watched) -> None:
    assert watched.modes == {"folder": 0o700, "token": 0o600}
    assert watched.answers == {"no token": "UNAUTHENTICATED", "a wrong token": "UNAUTHENTICATED", "the token": "OK"}
    assert not list(watched.folder.glob("lr-sweep-*/r-*/token")), "it goes with the session"


def test_secrets_are_in_no_file_and_reach_workers(watched: Watched, first: Ended) -> None:
    """A cluster's token does not reach them: a Ray that `run` starts does not use it."""
    left = [*watched.files, *(path for path in first.results.rglob("*") if path.is_file())]
    assert {"runtime_env_agent.log", "gcs_server.out", "mlflow.db"} < {path.name for path in left}
    leaks = [(path, name) for path in left for name, value in SECRETS.items() if value.encode() in path.read_bytes()]
    assert leaks == []
    needed = {name: value for name, value in SECRETS.items() if name != "RAY_AUTH_TOKEN"}
    assert watched.environments["worker"].items() >= needed.items()


def test_datasets_is_the_other_package_in_driver_and_workers(first: Ended, folder: Path) -> None:
    """This holds before ours is imported, and although `python -m` and Ray put the checkout on the import path."""
    seen = {tuple(line.split(" ")) for line in (folder / "datasets.log").read_text().splitlines()}
    theirs = str(folder / "other" / "datasets" / "__init__.py")
    assert seen == {
        (process, before, theirs)
        for process in ("__main__.py", "default_worker.py")
        for before in ("lr_sweep.datasets", "lr_sweep.datasets.digits")
    }


def test_a_second_run_trains_nothing_and_touches_nothing(first: Ended, again: Ended) -> None:
    assert again.code == 1
    assert "2 of 2 learning rates with values, want at least 3" in again.output
    assert "4 complete" in again.output
    assert "nothing to train" in again.output
    assert again.files == first.files


@pytest.mark.slow
def test_more_learning_rates_and_a_higher_budget_train_what_is_missing(first: Ended, second: Ended) -> None:
    assert "8 runs wanted, 4 started, 4 new" in second.output
    assert "training 8 runs" in second.output
    new = second.rows.keys() - first.rows.keys()
    assert sorted(second.rows[run_id]["learning_rate"] for run_id in new) == [3e-2, 3e-2, 1e-1, 1e-1]
    for run_id, curve in first.curves.items():
        assert second.curves[run_id][: len(curve)] == curve
        assert [point["step"] for point in second.curves[run_id]] == [10, 20, 30, 40]


@pytest.mark.slow
def test_a_run_that_cannot_be_trained_is_a_row_and_does_not_stop_others(second: Ended) -> None:
    assert second.code == 1
    assert "1 run failed" in second.output
    assert sorted(row["status"] for row in second.rows.values()) == [*["complete"] * 7, "failed"]
    (failed,) = [row for row in second.rows.values() if row["status"] == "failed"]
    assert (failed["variant"], failed["learning_rate"]) == ("frozen-pretrained", 3e-2)
    assert failed["failure"].startswith("FileExistsError: ")
    assert failed["attempts"] == 4  # `retries: 1`: twice together with another run, twice alone


@pytest.mark.slow
def test_mlflow_out_of_reach_does_not_stop_a_sweep(second: Ended) -> None:
    assert "127.0.0.1:1: " in second.output
    assert "training continues" in second.output
    assert "not in MLflow yet: 8 runs; the next `run` of this study mirrors the rest" in second.output


@pytest.mark.slow
def test_runs_of_one_trial_equal_runs_trained_alone(second: Ended, folder: Path, tmp_path: Path) -> None:
    """In `second` two runs shared a process; here each has the process to itself."""
    for run_id, curve in trained_here(folder / "tiny.yaml", tmp_path).items():
        if second.rows[run_id]["status"] == "complete":
            assert second.curves[run_id] == curve


@pytest.mark.slow
def test_mlflow_is_brought_up_to_date_and_holds_every_run_and_point_once(second: Ended, folder: Path) -> None:
    succeeds("export", "--mlflow", folder / "tiny.yaml", "--results", second.results)
    client = open_client(tracking_uri(second.results))
    experiment = client.get_experiment_by_name("lr-sweep")
    found = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in found if run.data.tags["sweep.kind"] == "study"]
    children = [run for run in found if run.data.tags["sweep.kind"] == "run"]
    assert sorted(run.data.tags["sweep.run_id"] for run in children) == sorted(second.rows)
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert sorted(run.info.status for run in found) == ["FAILED", *["FINISHED"] * 8]
    for run in [child for child in children if child.info.status == "FINISHED"]:
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "test_accuracy")]
        assert sorted(steps) == [10, 20, 30, 40]
    assert [item.path for item in client.list_artifacts(parent.info.run_id)] == ["report"]


@pytest.mark.slow
def test_a_failed_run_is_trained_again_on_request(second: Ended, folder: Path) -> None:
    """The hindrance is gone, MLflow is back, and three runs share a trial."""
    study = write_study(folder, rates=(1e-3, 1e-2, 3e-2, 1e-1), num_steps=40, runs_per_trial=3)
    hindrance(study, second.results).unlink()
    third = run(study, second.results, "--retry-failed")
    assert third.code == 0, third.output
    assert "8 runs wanted, 7 complete, 1 failed" in third.output
    assert {(row["status"], row["num_steps"]) for row in third.rows.values()} == {("complete", 40)}
    assert {run_id: third.curves[run_id] for run_id in second.curves} == second.curves


@pytest.mark.slow
def test_optimizers_are_trained_by_their_engines_and_reported(tmp_path: Path) -> None:
    parts = "initialisation: random, trained: [input, output, positions, layer_norms, attention, feedforward]"
    variants = [
        f"with-{name}: {{{parts}, protocol: {{optimizer: {name}, schedule: cosine}}}}" for name in ("sgd", "muon")
    ]
    study = write_study(tmp_path, selection="final", rates=(1e-3, 1e-2))
    text = study.read_text().replace("[frozen-pretrained, unfrozen-random]", f"{{{', '.join(variants)}}}")
    study.write_text(text)
    results = tmp_path / "results"
    swept("run", study, "--results", results, "--cpus", "2")
    assert curves(results) == trained_here(study, tmp_path / "elsewhere")
    ended = rows(results)
    contents = {run_id: json.loads(row["content"]) for run_id, row in ended.items()}
    engines = {(contents[run_id]["protocol"]["optimizer"], row["engine"]) for run_id, row in ended.items()}
    assert engines == {("sgd", "stacked"), ("muon", "plain")}
    assert {content["schedule_steps"] for content in contents.values()} == {20}
    report = (results / "studies" / "tiny" / "report" / "report.md").read_text()
    assert "with-sgd" in report
    assert "with-muon" in report
    assert "in each run the last step" in report


@pytest.mark.slow
def test_listops_at_its_real_length(tmp_path: Path) -> None:
    """2,000 tokens, on two cores."""
    listops = "num_steps: 2, source: generated, num_train: 16, num_validation: 8, num_test: 8"
    study = write_study(
        tmp_path,
        variants=("frozen-random", "unfrozen-random"),
        tasks=f"{{listops: {{{listops}}}}}",
        protocol="{batch_size: 2, evaluate_every: 2, train_examples_evaluated: 8}",
        runs_per_trial=2,
    )
    swept("run", study, "--results", tmp_path / "results", "--cpus", "2")
    recorded = rows(tmp_path / "results").values()
    assert [row["status"] for row in recorded] == ["complete"] * 4
    assert all('"attention":"blocked"' in row["content"] for row in recorded)
