"""The live page: who gets an answer, and what it shows."""

from __future__ import annotations

import copy
import html
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from lr_sweep.common.files import write_json
from lr_sweep.sweep.live.server import MOST_LOG, live_app
from lr_sweep.sweep.live.state import Live
from lr_sweep.sweep.mirror.pages import MlflowPages
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.synthetic import HOSTILE, hostile_record, page_record

pytestmark = pytest.mark.usefixtures("undrawn")
TOKEN, PORT = "0123456789abcdef" * 2, 5001
ORIGIN = f"http://127.0.0.1:{PORT}"
COOKIE = {f"lr-sweep-{PORT}": TOKEN}
MLFLOW = "/mlflow/#/all"


def app_of(results: Path) -> Starlette:
    mlflow = MlflowPages()
    mlflow.address = MLFLOW
    mlflow.of_studies = lambda studies: {study: f"{MLFLOW}&{study}" for study in studies}  # type: ignore[method-assign]
    return live_app(Live(Results(results)), TOKEN, PORT, mlflow)


def client_of(app: Starlette, cookies: dict[str, str] | None = None) -> TestClient:
    return TestClient(app, base_url=ORIGIN, cookies=COOKIE if cookies is None else cookies, follow_redirects=False)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> SyntheticRecord:
    record = page_record(tmp_path_factory.mktemp("template") / "results")
    record.write()
    return record


@pytest.fixture
def made(template: SyntheticRecord, tmp_path: Path) -> SyntheticRecord:
    """A copy of the record, since tests change it."""
    made = copy.copy(template)
    made.results, made.wanted = shutil.copytree(template.results, tmp_path / "results"), [*template.wanted]
    return made


@pytest.fixture
def client(made: SyntheticRecord) -> Iterator[TestClient]:
    with client_of(app_of(made.results)) as client:
        yield client


def waiting_run(made: SyntheticRecord) -> str:
    return next(str(row["run_id"]) for row in made.wanted if not Results(made.results).run(row["run_id"]).exists())


def test_the_link_gives_the_token_as_a_cookie_and_only_the_right_one_does(made: SyntheticRecord) -> None:
    new = client_of(app_of(made.results), {})
    for token in ("", "?token=", "?token=" + "0" * 32):
        assert new.get(f"/{token}").status_code == 403
    for path in ("/live.js", "/nothing", f"/studies/small/report?token={TOKEN}"):
        assert new.get(path).status_code == 403
    assert new.post(f"/?token={TOKEN}", headers={"origin": ORIGIN}).status_code == 403
    assert "small" not in new.get("/").text
    entered = new.get(f"/?token={TOKEN}")
    cookie = entered.headers["set-cookie"]
    assert cookie == f"lr-sweep-{PORT}={TOKEN}; HttpOnly; Path=/; SameSite=strict"
    assert 'http-equiv="refresh"' in entered.text
    assert "small" in new.get("/").text
    new.cookies.clear()
    for cookie in ("", "x", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "é"):
        assert new.get("/", headers={"cookie": f"lr-sweep-{PORT}={cookie}".encode()}).status_code == 403, cookie


def test_another_host_is_refused_though_the_token_is_right(client: TestClient) -> None:
    for host in ("evil.example", f"evil.example:{PORT}", "127.0.0.1.evil.example", ""):
        assert client.get("/", headers={"host": host}).status_code == 403, host
    assert client.get("/", headers={"host": f"localhost:{PORT}"}).status_code == 200


def test_a_program_sends_the_token_and_a_page_of_another_origin_changes_nothing(made: SyntheticRecord) -> None:
    """404: MLflow has nothing yet."""
    address, new = "/mlflow/api/2.0/mlflow/runs/search", client_of(app_of(made.results), {})
    assert new.post(address, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 404
    assert new.post(address, headers={"authorization": f"Bearer {TOKEN[1:]}"}).status_code == 403
    with_cookie = client_of(app_of(made.results))
    for origin in ("null", "http://evil.example", "http://127.0.0.1:5000", f"https://127.0.0.1:{PORT}"):
        assert with_cookie.post(address, headers={"origin": origin}).status_code == 403
    assert with_cookie.post(address).status_code == 403
    assert with_cookie.post(address, headers={"origin": ORIGIN}).status_code == 404


def test_nothing_can_be_changed_here(client: TestClient) -> None:
    for path in ("/", "/stop", "/runs/0123456789abcdef/stop", "/studies/small/resume"):
        assert client.post(path, headers={"origin": ORIGIN}).status_code in (404, 405), path


PATHS = [
    *("/studies/../report", "/studies/%2e%2e/report", "/studies/..%2f..%2fetc/report", "/studies/small%2f../report"),
    *("/studies/small/../../format.json", "/studies/nothing/report", "/runs/..%2fformat", "/runs/%2e%2e"),
    *("/runs/0000", "/runs/" + "0" * 15 + "%00", "/runs/ABCDEF0123456789", "/live.css/../live.py", "/format.json"),
]


def test_no_address_leads_out_of_what_is_there(client: TestClient) -> None:
    assert {path: client.get(path).status_code for path in PATHS} == dict.fromkeys(PATHS, 404)
    answer = client.get("/runs/" + "0" * 16)
    assert (answer.status_code, "no run" in answer.text) == (400, True)


def test_the_overview_says_how_far_the_study_is(client: TestClient) -> None:
    answer = client.get("/")
    text = words(answer.text)
    assert "20 of 22 runs ended" in text
    assert " 17 complete 2 diverged 1 failed 2 waiting " in text
    assert "1 failed node lost 1 run mnist gpt2 unfrozen-pretrained 1e-3 seed 1" in text
    assert f'href="{MLFLOW}"' in answer.text
    assert f'href="{MLFLOW}&amp;small"' in answer.text
    assert f'href="{MLFLOW}&amp;small&amp;compareRunsMode=CHART"' in answer.text
    assert "No sweep is running" in text


def test_every_answer_forbids_what_is_not_its_own(client: TestClient) -> None:
    for path in ("/", "/live.js", "/live.css", "/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "same-origin")
    assert re.findall(r'(?:src|href)="(?!/|#|data:|http://127)', client.get("/").text) == []


def test_what_trains_is_shown_with_its_latest_value(client: TestClient, made: SyntheticRecord) -> None:
    results, run_id = Results(made.results), waiting_run(made)
    made.write_curve(run_id, [(100, 0.5, 0.4), (200, 0.75, 0.6)])
    with results.writing("small"):
        state = {"steps_per_s": 10.0, "time_left_s": 60.0, "updated_at": 4e9, "training": {run_id: 210}}
        write_json(results.progress("small"), state)
        page = client.get("/").text
        assert "Training now" in page
        assert "210 of 300" in page
        assert "75.0%" in page
        assert f"kill {os.getpid()}" in client.get("/").text
        results.request_stop(results.sweep_stop.name)
        assert "Stopping: running runs save checkpoints first" in new_page(client)
    assert "kill" not in new_page(client)


def new_page(client: TestClient) -> str:
    """The overview as a later reader has it, when what was read before counts as old."""
    client.app.state.live._read_until = 0.0  # type: ignore[attr-defined]
    return client.get("/").text


@pytest.mark.parametrize("text", ["[]", "1", "[" * 100_000], ids=["list", "number", "deep"])
def test_a_file_of_state_that_is_none_counts_as_missing(client: TestClient, made: SyntheticRecord, text: str) -> None:
    results = Results(made.results)
    results.started("small").write_text(text)
    page = client.get("/")
    assert page.status_code == 200
    assert f"run {results.options('small')} --results {results.root}</code>" in page.text


def test_the_command_that_resumes_names_the_file_and_options_of_the_last_start(
    client: TestClient, made: SyntheticRecord, tmp_path: Path
) -> None:
    results = Results(made.results)
    (file := tmp_path / "of mine" / "small.yml").parent.mkdir()
    write_json(
        results.started("small"),
        {"folder": str(file.parent), "data_dir": "/data", "cpus": 2, "fresh": 5, "address": "x:1"},
    )
    assert f"run {results.options('small')} --data-dir=/data --cpus=2 --fresh=5 --results" in client.get("/").text
    file.touch()
    text = html.unescape(new_page(client))
    assert f"run '{file}' --data-dir=/data --cpus=2 --fresh=5 --results {results.root}</code>" in text
    assert f"run '{file}' --data-dir=/data --cpus=2 --fresh=5 --results {results.root} --retry-failed</code>" in text


def test_the_progress_of_an_earlier_sweep_is_not_that_of_one_that_starts(
    client: TestClient, made: SyntheticRecord
) -> None:
    results, run_id = Results(made.results), waiting_run(made)
    state = {"steps_per_s": 10.0, "time_left_s": 60.0, "training": {run_id: 210}}
    write_json(results.progress("small"), state | {"updated_at": time.time() - 60.0})
    with results.writing("small"):
        page = client.get("/").text
        assert "Training now" not in page
        assert "it has trained nothing yet" in page
        write_json(results.progress("small"), state | {"updated_at": time.time()})
        assert "Training now" in new_page(client)


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))


def test_a_report_is_written_again_when_a_run_has_ended(client: TestClient, made: SyntheticRecord) -> None:
    results = Results(made.results)
    answer = client.get("/studies/small/report")
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert "default-src 'none'" in answer.text  # the rest is in the page
    page = results.report("small") / "index.html"
    first = page.stat().st_ino
    assert client.get("/studies/small/report").content == page.read_bytes()
    assert page.stat().st_ino == first
    made.end(made.wanted[-1], [(300, 0.9, 0.9)], "complete", 300)
    assert client.get("/studies/small/report").content == page.read_bytes()
    assert page.stat().st_ino != first


def test_names_are_text(tmp_path: Path) -> None:
    page = client_of(app_of(hostile_record(tmp_path / "results").write())).get("/").text
    assert HOSTILE not in page


def test_the_log_of_a_run(client: TestClient, made: SyntheticRecord) -> None:
    results, run_id = Results(made.results), str(made.wanted[0]["run_id"])
    assert "has no log" in client.get(f"/runs/{run_id}").text
    results.log(run_id).parent.mkdir(parents=True)
    results.log(run_id).write_text("started\n| <script>\n")
    page = client.get(f"/runs/{run_id}").text
    assert "mnist gpt2 frozen-random 1e-4 seed 0" in page
    assert "started\n| &lt;script&gt;" in page
    results.log(run_id).write_text("first\n" + "é" * MOST_LOG + "\nlast\n")  # of a long one the end is read
    page = client.get(f"/runs/{run_id}").text
    assert "first" not in page
    assert "ééé\nlast" in page


def test_failures_are_listed_by_reason(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path / "results")
    for seed in range(3):
        made.add(1e-3, seed, [], "failed", 10, failure="ValueError: no `x.npz`" if seed else "node lost")
    made.write()
    page = client_of(app_of(made.results)).get("/").text
    assert "3 failed node lost 1 run mnist" in words(page)
    assert "seed 0 ValueError: no x.npz 2 runs mnist gpt2 frozen-random 1e-3 seed 1" in words(page)
    assert "`" not in page


def test_a_study_that_cannot_be_read_leaves_the_others(made: SyntheticRecord, tmp_path: Path) -> None:
    other = SyntheticRecord(made.results, "other")
    other.add(1e-3, 0, [(300, 0.5, 0.5)])
    other.write()
    Results(made.results).wanted("small").write_bytes(b"damaged")
    client = client_of(app_of(made.results))
    assert "1 of 1 runs ended" in client.get("/").text
    assert "wanted.parquet" in client.get("/studies/small").text
