"""Stores of Optuna and MLflow: read as copies, of any version, with changes in a journal."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.readers import databases
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.tables import texts_of


def read(path: Path) -> TableFile:
    (table,) = read_sources([path])
    return table


def texts(table: TableFile) -> dict[str, str]:
    return {name: " ".join(text or "-" for text in fields) for name, fields in texts_of(table).items()}


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


def test_a_database_of_an_old_mlflow_is_read_as_it_is_with_the_changes_in_its_journal(tmp_path: Path) -> None:
    with closing(made(tmp_path / "mlflow.db")) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE latest_metrics SET value = 0.875 WHERE run_uuid = 'a'")
        writer.commit()
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        table = read(tmp_path / "mlflow.db")
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    runs = {"run_id": "a b c", "status": "FINISHED FINISHED FINISHED", "experiment": "digits digits digits"}
    assert texts(table) == {**runs, "params.lr": "0.1 0.01 1", "metrics.val_acc": "0.875 0.75 nan"}


def test_a_database_that_changes_all_the_time_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "mlflow.db").close()
    states = iter(({}, {tmp_path: 1}))
    monkeypatch.setattr(databases, "_files_of", lambda _: next(states))
    with pytest.raises(UserError, match="changed while it was copied"):
        read(tmp_path / "mlflow.db")


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_studies_of_optuna(tmp_path: Path, kind: str) -> None:
    """Written by Optuna 5; trials of several studies have their names, and several objectives are refused."""
    optuna = pytest.importorskip("optuna")
    path = tmp_path / "study"
    backend = optuna.storages.journal.JournalFileBackend(str(path)) if kind == "journal" else None
    storage = optuna.storages.JournalStorage(backend) if backend else f"sqlite:///{path}"
    space = {"lr": optuna.distributions.FloatDistribution(0, 1)}
    states = {"COMPLETE": 0.5, "PRUNED": 0.1, "FAIL": None}
    trials = [
        optuna.trial.create_trial(
            **{"params": {"lr": 0.1}, "distributions": space, "user_attrs": {"test_acc": 0.25}},
            **{"state": optuna.trial.TrialState[state], "value": value},
        )
        for state, value in states.items()
    ]
    optuna.create_study(storage=storage, direction="maximize", study_name="mine").add_trials(trials)
    table = read(path)
    assert table.known == {"run": "number", "validation": "value"}
    assert table.higher_is_better
    runs = {"study_name": "mine mine mine", "number": "0 1 2", "state": "COMPLETE PRUNED FAIL"}
    settings = {"params_lr": "0.1 0.1 0.1", "user_attrs_test_acc": "0.25 0.25 0.25"}
    assert texts(table) == {**runs, **settings, "value": "0.5 0.1 -"}
    optuna.create_study(storage=storage, study_name="other", direction="minimize").add_trial(trials[0])
    assert texts_of(read(path))["number"] == ["mine/0", "mine/1", "mine/2", "other/0"]
    assert read(path).higher_is_better is None
    optuna.create_study(storage=storage, study_name="two", directions=["maximize", "minimize"])
    with pytest.raises(UserError, match="the study two has several objectives"):
        read(path)


MLFLOW = """
import math, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
for rate, curve in {0.1: [0.2, 0.9], 0.01: [0.5], 1: [0.1, math.nan]}.items():
    with mlflow.start_run():
        mlflow.log_params({"lr": rate})
        for step, value in enumerate(curve):
            mlflow.log_metric("val_loss", value, step=step)
"""


@pytest.mark.slow
def test_a_database_of_mlflow_has_the_last_values(tmp_path: Path) -> None:
    """Written by MLflow 3.17."""
    command = [sys.executable, "-c", MLFLOW, f"sqlite:///{tmp_path}/mlflow.db"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    table = read(tmp_path / "mlflow.db")
    assert (texts(table)["params.lr"], texts(table)["metrics.val_loss"]) == ("0.1 0.01 1", "0.9 0.5 nan")
    assert table.reader == "runs of MLflow, the last value of each metric"


def test_a_database_of_no_tool_in_a_folder_of_any_name_is_named(tmp_path: Path) -> None:
    (folder := tmp_path / "50%25 a?b#c").mkdir()
    with closing(sqlite3.connect(folder / "x.db")) as database:
        database.execute("CREATE TABLE other (id INTEGER)")
    with pytest.raises(UserError, match="a database of neither Optuna nor MLflow"):
        read(folder / "x.db")
