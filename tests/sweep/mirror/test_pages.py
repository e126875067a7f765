"""MLflow's pages as part of `ui`: when they appear, which artifacts they show, and that nothing else is given away."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from lr_sweep.sweep.mirror import pages
from lr_sweep.sweep.mirror.client import EXPERIMENT, MirrorError, open_client, tracking_uri
from lr_sweep.sweep.mirror.pages import PREFIX, MlflowPages, mlflow_pages
from lr_sweep.tests.support.mirrored_record import find, new_mirror
from lr_sweep.tests.support.servers.live_page import live_page
from lr_sweep.tests.support.waiting import mlflow_answers, wait_until

SERVER = "http://127.0.0.1:5000"


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def client_of(served: MlflowPages) -> TestClient:
    return TestClient(Starlette(routes=[Mount(PREFIX, served)]), base_url=SERVER)


def test_no_store_yet(tmp_path: Path) -> None:
    with mlflow_pages(tmp_path, print, SERVER) as served:
        assert served.address == ""
        assert client_of(served).get("/mlflow/").status_code == 404
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_something_else(tmp_path: Path, store: Path) -> None:
    shutil.copy(store, tmp_path / "mlflow.db")
    said: list[str] = []
    with mlflow_pages(tmp_path, said.append, SERVER) as served:
        wait_until(lambda: said, "what is wrong", 60.0)
        assert f"no experiment {EXPERIMENT}" in said[0]
        assert served.address == ""


def test_the_store_is_opened_once_the_mirror_has_written_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    written: list[str] = []

    def found(_: str) -> str:
        if not written:
            raise MirrorError("no store yet")
        return written[0]

    monkeypatch.setattr(MlflowPages, "open", lambda self, *given: opened.append(given))
    monkeypatch.setattr(pages, "runs_page", found)
    monkeypatch.setattr(pages, "_LOOK_EVERY_S", 0.01)
    said: list[str] = []
    with mlflow_pages(tmp_path, said.append, SERVER) as served:
        assert served.address == ""
        written.append("/mlflow/#runs")
        wait_until(lambda: said, "the link")
        assert served.address == "/mlflow/#runs"
    assert opened == [(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlflow-artifacts")]
    assert said == [f"MLflow  {SERVER}/mlflow/#runs"]


def test_server_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@host:5000/path")
    with mlflow_pages(tmp_path, print, SERVER) as served:
        assert served.address == "http://host:5000/path"


def test_pages_of_the_studies_that_are_mirrored(results: Path) -> None:
    new_mirror(results).sync_all()
    served = MlflowPages()
    assert served.of_studies(["small"]) == {}  # not open yet
    served.address, served._client = "/mlflow/#runs?a=b", open_client(tracking_uri(results))
    assert served.of_studies(["small", "another"]) == {"small": "/mlflow/#runs?a=b&viewStateShareKey=small"}


@pytest.fixture
def opened(results: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """MLflow's pages of a mirrored record whose report, and a file beside its artifacts, can be asked for."""
    from mlflow.server import handlers

    for name in ("_tracking_store", "_model_registry_store"):  # one a process, as MLflow has it
        monkeypatch.setattr(handlers, name, None)
    (report := results.parent / "report").mkdir()
    (report / "report.md").write_text("what we found")
    (results.parent / "secret").write_text("a secret")
    new_mirror(results).log_report(report)
    served = MlflowPages()
    served.open(tracking_uri(results), results / "mlflow-artifacts")
    return client_of(served)


@pytest.mark.slow
def test_only_artifacts_of_the_results_are_shown(opened: TestClient, results: Path) -> None:
    """A client that has the token can still have no other file, nor write one: a page that it opened may be hostile."""
    client, outside = open_client(tracking_uri(results)), results.parent
    (study,) = find(tracking_uri(results), "sweep.study", "small")
    ours = {"run_uuid": study.info.run_id}
    assert opened.get("/mlflow/get-artifact", params=ours | {"path": "report/report.md"}).text == "what we found"
    assert "script-src" not in opened.get("/mlflow/").headers["content-security-policy"]
    artifacts = results / "mlflow-artifacts" / study.info.run_id / "artifacts"
    (artifacts / "link").symlink_to(outside)
    elsewhere = client.create_experiment("elsewhere", artifact_location=outside.as_uri())
    theirs = {"run_uuid": client.create_run(elsewhere).info.run_id}
    (outside / theirs["run_uuid"] / "artifacts").mkdir(parents=True)
    (outside / theirs["run_uuid"] / "artifacts" / "link").symlink_to(outside)
    tried = [
        *((ours, path) for path in ("link/secret", "../../../secret", "%2e%2e/%2e%2e/%2e%2e/secret")),
        *((theirs, path) for path in ("link/secret", "../../secret", "")),
        (ours | {"run_id": theirs["run_uuid"]}, "link/secret"),
        ({}, "secret"),
        ({"run_uuid": "0" * 32}, "secret"),
    ]
    for run, path in tried:
        for address in ("/get-artifact", "/ajax-api/2.0/mlflow/artifacts/list", "/api/2.0/mlflow/artifacts/list"):
            answer = opened.get(f"/mlflow{address}", params=run | {"path": path})
            assert answer.status_code in (400, 403)
    writes = ("/ajax-api/2.0/mlflow/upload-artifact", "/ajax-api/2.0/mlflow/runs/create-promptlab-run")
    for address in (*writes, "/api/2.0/mlflow-artifacts/artifacts/x", "/model-versions/get-artifact"):
        for method in ("GET", "POST", "PUT"):
            asked = opened.request(method, f"/mlflow{address}", params=theirs | {"path": "x"}, content=b"y")
            assert asked.status_code == 403
    listed = "query Q($of: MlflowListArtifactsInput!) { mlflowListArtifacts(input: $of) { files { path } } }"
    for run, path in ((theirs, ""), (theirs, "link"), (ours, "link")):
        asked = opened.post("/mlflow/graphql", json={"query": listed, "variables": {"of": {"runId": run["run_uuid"]}}})
        assert asked.json()["data"]["mlflowListArtifacts"] is None, path
    query = "query Q($of: MlflowGetRunInput!) { mlflowGetRun(input: $of) { run { info { runId } } } }"
    asked = opened.post("/mlflow/graphql", json={"query": query, "variables": {"of": {"runId": ours["run_uuid"]}}})
    assert asked.json()["data"]["mlflowGetRun"]["run"]["info"]["runId"] == ours["run_uuid"]
    assert {path.name for path in outside.iterdir()} == {"results", "report", "secret", theirs["run_uuid"]}


def test_what_is_no_reading_of_the_database_is_refused() -> None:
    """Of all that MLflow's server answers: what is new in another version is refused, too."""
    from mlflow.server import app

    served = MlflowPages()
    addresses = {re.sub("<[^>]*>", "x", rule.rule) for rule in app.url_map.iter_rules()}
    allowed = {address for address in addresses if served._is_allowed(f"{PREFIX}{address}", "")}
    assert {address.rpartition("/mlflow/")[2] for address in allowed} == {
        *("/", "/graphql", "/health", "/version", "/static-files/x"),
        *(f"experiments/{end}" for end in ("get", "get-by-name", "search", "search-datasets")),
        *(f"metrics/get-history{end}" for end in ("", "-bulk", "-bulk-interval")),
        *(f"{kind}/search" for kind in ("datasets", "logged-models", "model-versions", "registered-models", "runs")),
        *("runs/get", "traces/search", "traces/metrics", "server-info"),
    }


@pytest.mark.slow
def test_no_host_is_asked_for_artifacts(opened: TestClient, results: Path) -> None:
    """A store that another user sent may name any."""
    client = open_client(tracking_uri(results))
    with socket.create_server(("127.0.0.1", 0)) as host:
        host.settimeout(0.2)
        address = f"http://127.0.0.1:{host.getsockname()[1]}/x"
        for number, place in enumerate((address, "s3://bucket/x", f"mlflow-artifacts://{address[7:]}")):
            made = client.create_experiment(f"elsewhere {number}", artifact_location=place)
            run = {"run_id": client.create_run(made).info.run_id}
            listed = "query Q($of: MlflowListArtifactsInput!) { mlflowListArtifacts(input: $of) { files { path } } }"
            query = {"query": listed, "variables": {"of": {"runId": run["run_id"]}}}
            assert opened.post("/mlflow/graphql", json=query).json()["data"]["mlflowListArtifacts"] is None
            for kind in ("get-artifact", "ajax-api/2.0/mlflow/artifacts/list"):
                assert opened.get(f"/mlflow/{kind}", params=run | {"path": "x"}).status_code in (400, 403, 404)
        with pytest.raises(TimeoutError):
            host.accept()


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
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    code += "from lr_sweep.sweep.cli.parser import main; sys.exit(main(sys.argv[1:]))"
    with live_page(results, [sys.executable, "-c", code], tmp_path / "here") as ui:
        link, page = ui.link(), ui.mlflow()
        address, _, token = link.partition("/?token=")
        wait_until(lambda: mlflow_answers(ui.port, token), "MLflow", 120.0)
        asked = Request(
            f"{address}/mlflow/get-artifact?path=report/report.md&run_uuid={study.info.run_id}",
            headers={"Authorization": f"Bearer {token}"},
        )
        assert urlopen(asked).read() == b"what we found"
        asked.remove_header("Authorization")
        with pytest.raises(HTTPError, match="403"):
            urlopen(asked)
        assert list((tmp_path / "here").iterdir()) == []
        os.killpg(ui.process.pid, end)
        printed, _ = ui.process.communicate(timeout=30)
    assert ui.process.returncode == 0
    assert re.fullmatch(rf"http://127.0.0.1:{ui.port}/\?token=[0-9a-f]{{32}}", link)
    assert page == f"{address}/mlflow/#/experiments/{study.info.experiment_id}/runs?workflowType=machine_learning"
    assert (len(ui.lines), "Traceback" in printed, "Warning" in printed) == (3, False, False)
    assert not mlflow_answers(ui.port, token)
