"""Another user of the machine reads and writes nothing, through any port that `ui` or a sweep's Ray opens."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.mirrored_record import find
from lr_sweep.tests.support.servers.live_page import live_page
from lr_sweep.tests.support.tiny_study import swept, write_study

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user"),
    pytest.mark.slow,
    pytest.mark.cluster,
]
NOBODY = 65534


def as_nobody(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or raises, in a process of another user, who may not read this installation."""
    "localhost".encode("idna")  # imported late, by sockets
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            theirs.send(ask(*arguments))
        except BaseException as error:
            theirs.send(error)

    process = context.Process(target=run)
    process.start()
    assert ours.poll(120), "no answer"
    process.join()
    answer = ours.recv()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def ports_of(pid: int) -> dict[int, str]:
    """The TCP ports on which a process and its children listen, each with an address."""
    tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    found = [each for process in tree for each in process.net_connections("inet")]
    return {each.laddr.port: each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


def attack(port: int, secret: Path) -> list[tuple[int, str]]:
    """Ask MLflow, at each place where it may be, for a file of another user, and to write one.

    Returns the statuses and texts of all answers; none where the port has no web server.
    """
    answers: list[tuple[int, str]] = []

    def ask(method: str, path: str, body: Any = None) -> Any:
        server = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            given = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            server.request(method, path, given, {"Content-Type": "application/json"})
            answer = server.getresponse()
            answers.append((answer.status, text := answer.read().decode(errors="replace")))
            return json.loads(text)
        except (OSError, ValueError, http.client.HTTPException):  # no web server, or no JSON
            return {}
        finally:
            server.close()

    for prefix in ("", "/mlflow"):
        api = f"{prefix}/api/2.0/mlflow"
        made = ask(
            "POST", f"{api}/experiments/create", {"name": f"n{port}", "artifact_location": secret.parent.as_uri()}
        )
        run = ask("POST", f"{api}/runs/create", {"experiment_id": made.get("experiment_id", "1")})
        run_id = run.get("run", {}).get("info", {}).get("run_id", "0" * 32)
        ask("GET", f"{prefix}/get-artifact?run_uuid={run_id}&path=../../{secret.name}")
        ask("POST", f"{prefix}/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run_id}&path=written", b"x")
        ask("PUT", f"{prefix}/api/2.0/mlflow-artifacts/artifacts/written", b"x")
    for path in ("/", "/?token=" + "0" * 32, "/state", "/studies/tiny/report"):
        ask("GET", path)
    return answers


def ray_answers(port: int) -> str:
    """Ask a port for the nodes of a Ray without its token; return the error, or nothing."""
    from ray._raylet import GcsClient

    try:
        GcsClient(address=f"127.0.0.1:{port}").get_all_node_info(timeout=5)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check(pid: int, secret: Path) -> tuple[set[int], int]:
    """Attack every port; return them, and how many refuse everything.

    Ray's metrics (2.60) are open to all users of the machine, and hold no file.
    """
    ports, refusing = ports_of(pid), 0
    assert set(ports.values()) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    for port in ports:
        answers = as_nobody(attack, port, secret)
        assert not any(secret.read_text() in text for _, text in answers)
        is_metrics = any("# HELP ray_" in text or "# HELP python_" in text for _, text in answers)
        statuses = {status for status, _ in answers}
        assert is_metrics or statuses <= {401, 403}, (port, answers)  # Ray's answer, and ours
        refusing += statuses == {403}
    assert not list(secret.parent.rglob("written"))
    return set(ports), refusing


def test_no_port_gives_or_takes_a_file(tmp_path: Path) -> None:
    (secret := tmp_path / "secret").write_text("a secret")
    study = write_study(tmp_path, rates=[1e-3], variants=["unfrozen-random"])
    results = tmp_path / "results"
    swept("run", study, "--results", results)
    with live_page(results) as ui:
        ui.mlflow()  # its pages are served
        assert check(ui.process.pid, secret) == ({ui.port}, 1)
    assert find(f"sqlite:///{results}/mlflow.db", "sweep.study", "tiny")  # the store answers us


def test_ray_s_ports_want_the_token(tmp_path: Path) -> None:
    """The sweep trains meanwhile."""
    import ray._raylet  # noqa: F401 - before this process becomes another user's

    (secret := tmp_path / "secret").write_text("a secret")
    study = write_study(tmp_path, rates=[1e-3], variants=["unfrozen-random"], num_steps=200_000)
    with Background(tmp_path / "log", study, "--results", tmp_path / "results", "--cpus", "1") as run:
        run.wait_until(lambda: list(tmp_path.glob("results/curves/*.parquet")))
        ports, _ = check(run.process.pid, secret)
        assert len(ports) > 2
        errors = {port: as_nobody(ray_answers, port) for port in ports if is_open(port)}
        assert all(errors.values()), errors


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
