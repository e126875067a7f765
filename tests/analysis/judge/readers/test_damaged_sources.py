"""What other libraries did not write so: messages that name the file, and no secrets in them."""

from __future__ import annotations

import sqlite3
import struct
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import judge


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"lr": 0.1}\n' + "[" * 100_000, "runs.json:2: no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"columns": ["lr", "val_acc"], "data": [1, 2, 3]}', "no column of learning rates in columns, data"),
    ],
    ids=["a line", "the first line", "rows that are none"],
)
def test_json_that_is_no_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(UserError, match=message):
        judge([tmp_path / "runs.json"], Reading())


@pytest.mark.parametrize("text", ["day: 2001-13-45", "x: " + "[" * 1000, "x: ["], ids=["date", "deep", "cut"])
def test_settings_that_yaml_cannot_read_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "hparams.yaml").write_text(text)
    (tmp_path / "metrics.csv").write_text("step,val_acc\n1,0.5\n")
    with pytest.raises(UserError, match=r"hparams.yaml cannot be read"):
        judge([tmp_path], Reading())


def test_a_trial_of_ray_tune_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('{"lr": 0.1}')
    (tmp_path / "result.json").write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(UserError, match="result.json: a line is no JSON"):
        judge([tmp_path], Reading())


def test_damaged_hyperparameters_of_tensorboard_are_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    event = Event()
    value = event.summary.value.add(tag="_hparams_/session_start_info")
    value.metadata.plugin_data.plugin_name, value.metadata.plugin_data.content = "hparams", b"\xff\xff"
    content = event.SerializeToString()
    framed = struct.pack("<Q", len(content)) + b"\0" * 4 + content + b"\0" * 4
    (tmp_path / "events.out.tfevents.1").write_bytes(framed)
    with pytest.raises(UserError, match="events.out.tfevents.1 is damaged"):
        judge([tmp_path], Reading())


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
            info = SimpleNamespace(run_id="r", status="FINISHED")
            return Page([SimpleNamespace(info=info, data=SimpleNamespace(params=params, metrics=metrics))])

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    with pytest.raises(
        UserError, match="http://host:1 cannot be read as a server of MLflow .API request to http://host:1/api"
    ):
        read_sources(["http://me:secret@host:1"])
    (table,) = read_sources(["http://me:secret@host:1"])
    assert asked == ["http://me:secret@host:1"] * 2
    assert "secret" not in f"{table.path} {table.stem} {table.name}"


class Page(list[SimpleNamespace]):
    token = None
