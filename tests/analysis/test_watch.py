"""A report that follows a record which grows: written when a run has ended, and not otherwise."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.analysis.watch import REFRESH_S, watch
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import ROOT

pytestmark = pytest.mark.usefixtures("undrawn")

REFRESHES = f'http-equiv="refresh" content="{REFRESH_S}"'


def growing(results: Path) -> tuple[SyntheticRecord, Callable[[float], None]]:
    """A study of two runs, and what happens in place of waiting: a run ends, nothing, a run ends, Ctrl-C."""
    made = SyntheticRecord(results)
    for rate in (1e-3, 1e-2):
        made.want(rate, 0)
    made.write()
    happens = iter([0, None, 1])

    def wait(seconds: float) -> None:
        assert seconds == REFRESH_S
        try:
            index = next(happens)
        except StopIteration:
            raise KeyboardInterrupt from None
        if index is not None:
            made.end(made.wanted[index], [(300, 0.5, 0.5)], "complete", 300)

    return made, wait


def test_it_is_written_again_only_when_a_run_has_ended_and_at_the_end_as_a_report(tmp_path: Path) -> None:
    made, wait = growing(tmp_path)
    lines: list[str] = []

    def show(report: Report) -> None:
        assert REFRESHES in report.page.read_text()
        lines.extend(line for line in report.text.splitlines() if "runs wanted" in line)

    with pytest.raises(KeyboardInterrupt):
        watch(made.results, ["small"], show=show, wait=wait)
    assert [line.split(":")[1].split(",")[0].strip() for line in lines] == ["0 complete", "1 complete", "2 complete"]
    watched = (tmp_path / "studies" / "small" / "report" / "index.html").read_text()
    assert REFRESHES not in watched
    assert "data-refresh-s" not in watched.split("</main>")[0]
    assert watched == write_report(made.results, "small").page.read_text()


@pytest.mark.slow
def test_ctrl_c_ends_the_command_with_130(tmp_path: Path) -> None:
    made, _ = growing(tmp_path)
    command = [sys.executable, "-m", "sweep", "report", "small", "--watch", "--results", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        first = process.stdout.readline()
        assert first.startswith("2 runs wanted: 0 complete, 0 diverged, 0 failed, 2 missing.")
        made.end(made.wanted[0], [(300, 0.5, 0.5)], "complete", 300)
        assert process.stdout.readline().startswith("2 runs wanted: 1 complete")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "stopped\n")
    assert REFRESHES not in (tmp_path / "studies" / "small" / "report" / "index.html").read_text()


def test_strict_has_no_meaning_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = growing(tmp_path)
    assert main(["report", "small", "--watch", "--strict", "--results", str(made.results)]) == 2
    assert "leave one of them out" in capsys.readouterr().err
