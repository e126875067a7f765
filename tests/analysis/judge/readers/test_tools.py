"""Stores of Optuna and MLflow: read as copies, of any version, with changes in a journal; no secrets in messages."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lr_sweep.analysis.judge.readers import tools
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.common.errors import UserError
from lr_sweep.common.network import MLFLOW_ENVIRONMENT
from lr_sweep.tests.support.judged import RUNS, accuracy, assert_found, chosen, judge, run_script

MLFLOW_1 = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name TEXT, lifecycle_stage TEXT);
CREATE TABLE runs (run_uuid TEXT, experiment_id INTEGER, status TEXT, start_time INTEGER, lifecycle_stage TEXT);
CREATE TABLE params (run_uuid TEXT, key TEXT, value TEXT);
CREATE TABLE latest_metrics (run_uuid TEXT, key TEXT, value REAL, is_nan BOOLEAN);
INSERT INTO experiments VALUES (0, 'Default', 'active'), (1, 'digits', 'active');
INSERT INTO runs VALUES ('a', 1, 'FINISHED', 1, 'active'), ('b', 1, 'FINISHED', 2, 'active'),
    ('c', 1, 'FINISHED', 3, 'active'), ('d', 1, 'FINISHED', 4, 'deleted');
INSERT INTO params VALUES ('a', 'lr', '0.1'), ('b', 'lr', '0.01'), ('c', 'lr', '1'), ('d', 'lr', '10');
INSERT INTO latest_metrics VALUES ('a', 'val_acc', 0.5, 0), ('b', 'val_acc', 0.75, 0), ('c', 'val_acc', 0, 1);
"""
"""The tables of MLflow 1.0 that have runs; another version of MLflow has others beside them."""


def made(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.executescript(MLFLOW_1)
    return database


def test_a_database_of_an_old_mlflow_is_read_as_it_is(tmp_path: Path) -> None:
    made(tmp_path / "mlflow.db").close()
    found = judge([tmp_path / "mlflow.db"], Reading())
    assert chosen(found) == {"all": (0.01, 0.75)}
    assert found.summary.runs["status"].tolist() == ["complete", "complete", "diverged"]


def test_changes_that_are_in_a_journal_alone_are_read_and_stay_there(tmp_path: Path) -> None:
    with closing(made(tmp_path / "mlflow.db")) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE latest_metrics SET value = 0.875 WHERE run_uuid = 'a'")
        writer.commit()
        assert chosen(judge([tmp_path / "mlflow.db"], Reading())) == {"all": (0.1, 0.875)}


def test_a_database_that_changes_all_the_time_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "mlflow.db").close()
    states = iter(({}, {tmp_path: (1, 1)}))
    monkeypatch.setattr(tools, "_states", lambda _: next(states))
    with pytest.raises(UserError, match="changed while it was copied"):
        judge([tmp_path / "mlflow.db"], Reading())


def test_a_database_that_mlflow_did_not_write_so_is_named(tmp_path: Path) -> None:
    with closing(made(tmp_path / "mlflow.db")) as database:
        database.execute("DROP TABLE params")
        database.commit()
    with pytest.raises(UserError, match=r"mlflow.db cannot be read \(no such table"):
        judge([tmp_path / "mlflow.db"], Reading())


def test_a_server_that_is_not_there_is_said_without_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: MLflow's own client tries seven times, for minutes."""
    mlflow = pytest.importorskip("mlflow")
    for name in MLFLOW_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    asked: list[dict[str, object]] = []

    def request(*_: object, **options: object) -> None:
        asked.append(options)
        raise OSError("refused")

    monkeypatch.setattr(mlflow.utils.rest_utils, "_get_http_response_with_retries", request)
    with pytest.raises(UserError, match="x.csv cannot be read .*refused.*download a table"):
        judge(["http://127.0.0.1:9/x.csv"], Reading())
    assert asked
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"


def trial(
    value: float | None, state: str = "COMPLETE", reports: dict[int, float] | None = None, **params: float | str
) -> Any:
    """Return a trial of Optuna."""
    optuna = pytest.importorskip("optuna")
    kinds = {
        "variant": optuna.distributions.CategoricalDistribution(["a", "b"]),
        "lr": optuna.distributions.FloatDistribution(0, 1),
        "seed": optuna.distributions.IntDistribution(0, 1),
    }
    return optuna.trial.create_trial(
        params=params,
        distributions={name: kinds[name] for name in params},
        state=optuna.trial.TrialState[state],
        value=value,
        intermediate_values=reports or {},
    )


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_study_of_optuna(tmp_path: Path, kind: str) -> None:
    optuna = pytest.importorskip("optuna")
    path = tmp_path / "study"
    backend = optuna.storages.journal.JournalFileBackend(str(path)) if kind == "journal" else None
    storage = optuna.storages.JournalStorage(backend) if backend else f"sqlite:///{path}"
    study = optuna.create_study(storage=storage, direction="maximize", study_name="mine")
    study.add_trials([trial(accuracy(*run), variant=run[0], lr=run[1], seed=run[2]) for run in RUNS])
    found = judge([path], Reading())
    assert_found(found, "trials of Optuna, ")
    assert found.info.metric.higher_is_better


def test_pruned_and_failed_trials_of_optuna(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/s.db", study_name="s")
    study.add_trial(trial(0.5, reports={1: 0.5}, lr=0.1))
    study.add_trial(trial(0.1, "PRUNED", {1: 0.1}, lr=0.2))  # Optuna writes the last report as its value
    study.add_trial(trial(None, "FAIL", lr=0.3))
    study.add_trial(trial(None, "PRUNED", lr=0.4))  # evicted before its first report, by no pruner
    found = judge([tmp_path / "s.db"], Reading())
    assert found.summary.runs["status"].tolist() == ["complete", "stopped", "failed", "missing"]
    assert chosen(found) == {"all": (0.1, 0.5)}


MLFLOW = """
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("sweep")
for variant, rate, seed, value in eval(sys.argv[2]):
    with mlflow.start_run():
        mlflow.log_params({"variant": variant, "lr": rate, "seed": seed})
        mlflow.log_metrics({"val_acc": value, "val_loss": 1 - value})
mlflow.search_runs(experiment_names=["sweep"]).to_csv("../table.csv")
"""


@pytest.mark.slow
def test_a_database_of_mlflow_and_its_table_of_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    run_script(MLFLOW, f"sqlite:///{store}/mlflow.db", repr([(*run, accuracy(*run)) for run in RUNS]), folder=store)
    assert_found(judge([store / "mlflow.db"], Reading()), "runs of MLflow")
    assert_found(judge([store], Reading()), "store: 1 *.db, ")
    table = judge([tmp_path / "table.csv"], Reading(metric="accuracy"))
    assert_found(table)
    assert set(table.summary.runs["status"]) == {"complete"}


LAST_VALUES = """
import math, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
for rate, curve in eval(sys.argv[2]).items():
    with mlflow.start_run():
        mlflow.log_params({"lr": rate, "seed": 0})
        for step, value in enumerate(curve):
            mlflow.log_metric("val_loss", value, step=step)
"""


@pytest.mark.slow
def test_the_last_values_of_mlflow_are_said_to_be_that(tmp_path: Path) -> None:
    curves = {"0.1": "[0.2, 0.9]", "0.01": "[0.5]", "0.001": "[0.6, 0.7]", "1": "[0.1, math.nan]"}
    text = "{" + ", ".join(f"'{rate}': {curve}" for rate, curve in curves.items()) + "}"
    run_script(LAST_VALUES, f"sqlite:///{tmp_path}/mlflow.db", text, folder=tmp_path)
    found = judge([tmp_path / "mlflow.db"], Reading())
    rates = found.summary.learning_rates.set_index("learning_rate")["validation_mean"]
    assert rates.dropna().to_dict() == {0.001: 0.7, 0.01: 0.5, 0.1: 0.9}
    assert found.summary.runs.set_index("learning_rate")["status"][1.0] == "diverged"
    assert any("runs of MLflow, the last value of each metric" in line for line in found.about_table)


def test_several_studies_are_variants_and_several_objectives_are_refused(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path}/s.db"
    for variant in "ab":
        study = optuna.create_study(storage=storage, study_name=variant, direction="maximize")
        study.add_trials([trial(accuracy(variant, rate, seed), lr=rate, seed=seed) for _, rate, seed in RUNS[:6]])
    assert_found(judge([tmp_path / "s.db"], Reading()), "trials of Optuna, 2 variants")
    optuna.create_study(storage=storage, study_name="two", directions=["maximize", "minimize"])
    with pytest.raises(UserError, match="the study two has several objectives"):
        judge([tmp_path / "s.db"], Reading())


def test_a_database_in_a_folder_of_any_name_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "50%25 a?b#c"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "x.db")) as database:
        database.execute("CREATE TABLE other (id INTEGER)")
    with pytest.raises(UserError, match="a database of neither Optuna nor MLflow"):
        judge([folder / "x.db"], Reading())


def test_a_password_in_an_address_is_in_no_message_and_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that refuses, with the address in its message, as MLflow's does; then one with a run."""
    asked: list[str] = []

    class Client:
        def __init__(self, tracking_uri: str) -> None:
            asked.append(tracking_uri)
            if len(asked) == 1:
                raise OSError(f"API request to {tracking_uri}/api failed")

        def search_experiments(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name="x", experiment_id="1")]

        def search_runs(self, experiments: list[str], **settings: object) -> Page:
            params, metrics = {"lr": "0.1"}, {"val_acc": 0.5}
            info = SimpleNamespace(run_id="r", status="FINISHED", experiment_id="1")
            return Page([SimpleNamespace(info=info, data=SimpleNamespace(params=params, metrics=metrics))])

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    with pytest.raises(UserError, match="http://host:1 cannot be read .API request to http://host:1/api"):
        read_sources(["http://me:secret@host:1"])
    (table,) = read_sources(["http://me:secret@host:1"])
    assert asked == ["http://me:secret@host:1"] * 2
    assert "secret" not in f"{table.path} {table.name}"


class Page(list[SimpleNamespace]):
    token = None
