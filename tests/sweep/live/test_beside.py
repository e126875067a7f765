"""Whole sweeps of the live page: `run --ui`, whose page stays until Ctrl-C and dies with its sweep."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, write_study
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
