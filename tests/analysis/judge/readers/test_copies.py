"""Databases are read as copies: of an old version, with changes in a journal, while another program writes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.readers import sources
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.common.errors import UserError
from lr_sweep.common.network import MLFLOW_ENVIRONMENT
from lr_sweep.tests.support.judged import chosen, judge

MLFLOW = """
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
    database.executescript(MLFLOW)
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
    states = iter(range(100))
    monkeypatch.setattr(sources, "_states", lambda _: next(states))
    with pytest.raises(UserError, match="changed while it was copied"):
        judge([tmp_path / "mlflow.db"], Reading())


@pytest.mark.parametrize("change", ["DROP TABLE params", "UPDATE latest_metrics SET value = 'high'"])
def test_a_database_that_mlflow_did_not_write_so_is_named(tmp_path: Path, change: str) -> None:
    with closing(made(tmp_path / "mlflow.db")) as database:
        database.execute(change)
        database.commit()
    with pytest.raises(UserError, match=r"mlflow.db cannot be read as a database \("):
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
    with pytest.raises(UserError, match="x.csv cannot be read as a server of MLflow .*refused.*download a table"):
        judge(["http://127.0.0.1:9/x.csv"], Reading())
    assert asked
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
