"""Whole sweeps of the live page: `run --ui`, whose page stays until Ctrl-C and dies with its sweep; resuming."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from lr_sweep.common.files import write_json
from lr_sweep.sweep.live.resume import Resumed
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import wanted_runs
from lr_sweep.sweep.tune.prepare import write_wanted
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, rows, write_study
from lr_sweep.tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def page(link: str) -> str:
    """Return the page behind a link; empty: no server answers."""
    parts = urlsplit(link)
    cookie = f"lr-sweep-{parts.port}={parts.query.removeprefix('token=')}"
    try:
        with urlopen(Request(f"http://{parts.netloc}/", headers={"Cookie": cookie}), timeout=10) as answer:
            return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", answer.read().decode()))
    except (URLError, OSError):
        return ""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_the_page_is_there_from_the_start_and_until_ctrl_c(tmp_path: Path, end: signal.Signals) -> None:
    study, results = write_study(tmp_path, variants=("unfrozen-random",)), tmp_path / "results"
    command = command_line("run", study, "--results", results, "--ui")
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout
            link = next(found[0] for line in run.stdout if (found := re.search(r"http://\S+/\?token=\w+", line)))
            wait_until(lambda: "Studies" in page(link), "the page")
            assert any("stays until Ctrl-C" in line for line in run.stdout)
            wait_until(lambda: "2 of 2 runs ended 2 complete" in page(link), "the end of the study")
            run.send_signal(end)
            assert run.wait(60) == (0 if end == signal.SIGINT else -end)
        finally:
            run.kill()
    wait_until(lambda: not page(link), "the end of the page")


def test_a_function_s_study_is_resumed_by_its_own_code(tmp_path: Path) -> None:
    body = "for _ in session.steps():\n    if session.due:\n        session.report(validation=0.5, test=0.5)"
    study, results = load_study(write_function(tmp_path, body)), Results(tmp_path / "results")
    results.prepare()
    write_wanted(results, study, wanted_runs(study, {}, tmp_path))
    write_json(results.started("mine"), {"folder": str(tmp_path)})
    resumed = Resumed(results)
    resumed.start("mine", retry=False)
    wait_until(lambda: not resumed.is_running(), "the end of the run")
    assert resumed.problems() == {}
    assert [row["status"] for row in rows(results.root).values()] == ["complete"]
