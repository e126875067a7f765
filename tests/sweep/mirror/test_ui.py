"""`ui`: MLflow's page beside the live one, served until Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.mirror import client
from lr_sweep.sweep.mirror.client import EXPERIMENT, MirrorError, mlflow_pages, tracking_uri
from lr_sweep.tests.support.mirrored_record import find, new_mirror
from lr_sweep.tests.support.waiting import free_port, mlflow_answers, wait_until


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_no_store_yet(tmp_path: Path) -> None:
    with mlflow_pages(tmp_path, print, port=free_port()) as pages:
        assert pages == {}
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_something_else_and_a_port_that_is_taken(tmp_path: Path, store: Path) -> None:
    shutil.copy(store, tmp_path / "mlflow.db")
    said: list[str] = []
    with mlflow_pages(tmp_path, said.append, port=free_port()) as pages:
        wait_until(lambda: said, "what is wrong", 60.0)
        assert f"no experiment {EXPERIMENT}" in said[0]
        assert pages == {}
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = pytest.raises(UserError, match=rf"cannot listen on 127.0.0.1:{port} .* --port")
        with taken, mlflow_pages(tmp_path, print, port=port):
            pass


def test_one_server_is_started_and_links_follow_as_the_mirror_writes_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    written: dict[str, str] = {}

    @contextmanager
    def server(*arguments: object) -> Iterator[None]:
        started.append(arguments)
        yield
        started.append("ended")

    def found(*_: object) -> dict[str, str]:
        if not written:
            raise MirrorError("no store yet")
        return dict(written)

    monkeypatch.setattr(client, "_server", server)
    monkeypatch.setattr(client, "study_pages", found)
    monkeypatch.setattr(client, "check_answers", lambda *_: None)
    monkeypatch.setattr(client, "_LOOK_EVERY_S", 0.01)
    said: list[str] = []
    with mlflow_pages(tmp_path, said.append, port=free_port()) as pages:
        for study in ("", "small"):
            assert study not in pages
            written[study] = f"http://{study}"
            wait_until(lambda: study in pages, "the link")  # noqa: B023
        assert len(started) == 1
    assert started[1:] == ["ended"]
    assert said == ["MLflow  http://", "MLflow, small  http://small"]


def test_server_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@host:5000/path")
    with mlflow_pages(tmp_path, print) as pages:
        assert pages == {"": "http://host:5000/path"}


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_it_is_ended_and_leaves_nothing_behind(results: Path, tmp_path: Path, end: signal.Signals) -> None:
    """Also in the background of a shell without job control, which has it ignore SIGINT; it takes no files."""
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text("what we found")
    new_mirror(results).log_report(report)
    (study,) = find(tracking_uri(results), "sweep.study", "small")
    (tmp_path / "here").mkdir()
    port = free_port()
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    code += "from lr_sweep.sweep.cli.parser import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["ui", "--results", str(results), "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path / "here",
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as ui:
        try:
            assert ui.stdout
            first = list(islice(ui.stdout, 3))
            wait_until(lambda: mlflow_answers(port), "MLflow", 120.0)
            seen = urlopen(f"http://127.0.0.1:{port}/get-artifact?path=report/report.md&run_uuid={study.info.run_id}")
            assert seen.read() == b"what we found"
            put = f"http://127.0.0.1:{port}/api/2.0/mlflow-artifacts/artifacts/x"
            with pytest.raises(HTTPError):
                urlopen(Request(put, data=b"y", method="PUT"))
            assert list((tmp_path / "here").iterdir()) == []
            os.killpg(ui.pid, end)
            printed, _ = ui.communicate(timeout=30)
        finally:
            ui.terminate()  # a failure must not leave us waiting for it
    assert ui.returncode == 0
    page = f"http://127.0.0.1:{port}/#/experiments/{study.info.experiment_id}/runs?workflowType=machine_learning"
    assert re.fullmatch(rf"live page  http://127.0.0.1:{port + 1}/\?token=[0-9a-f]{{32}}\n", first[0])
    assert first[2] == f"MLflow  {page}\n"
    assert "Traceback" not in printed
    assert not mlflow_answers(port)
