"""What a killed `report` leaves: `gc` and the next report remove it; a living one's stays."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from lr_sweep.analysis.report.folder import LOCK, abandoned, new_report
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.inspection.gc import LEFTOVERS, leftovers
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import SyntheticRecord


@pytest.fixture
def study(tmp_path: Path) -> Path:
    record = SyntheticRecord(tmp_path)
    record.add(1e-3, 0, [(300, 0.5, 0.5)])
    return record.write() / "studies" / "small"


def begin_and_hang(study: Path, begun: Connection) -> None:
    with new_report(study) as folder:
        (folder / "report.md").write_text("half")
        begun.send(True)
        signal.pause()


@pytest.fixture
def writer(study: Path) -> multiprocessing.process.BaseProcess:
    """A process in the middle of a report."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    process = fork.Process(target=begin_and_hang, args=(study, there), daemon=True)
    process.start()
    assert here.poll(30)
    return process


def kill(process: multiprocessing.process.BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def scratch(study: Path) -> list[Path]:
    return list(study.glob(".report-*"))


def test_a_living_report_is_left_alone_and_what_a_killed_one_left_is_removed(
    study: Path, writer: multiprocessing.process.BaseProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    gc = ["gc", "--yes", "--only", LEFTOVERS, "--results", str(study.parent.parent)]
    (left,) = scratch(study)
    assert main(gc) == 0
    assert scratch(study) == [left]
    kill(writer)
    assert main(gc) == 0
    assert "removed 1 file," in capsys.readouterr().out
    assert scratch(study) == []


def test_the_next_report_removes_what_a_killed_one_left(
    study: Path, writer: multiprocessing.process.BaseProcess
) -> None:
    kill(writer)
    assert len(scratch(study)) == 1
    with new_report(study) as folder:
        assert scratch(study) == [folder.parent]
    assert scratch(study) == []
    assert (study / "report").is_dir()


def test_a_folder_without_files_is_left_over_too(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Most of a report's time passes before its first file. An older version has no lock beside it."""
    folder = study / ".report-abc"
    (folder / "new").mkdir(parents=True)
    assert list(leftovers(Results(study.parent.parent))) == abandoned(study) == [folder]
    assert not (study / LOCK).exists()  # looking changes nothing
    assert main(["gc", "--yes", "--only", LEFTOVERS, "--results", str(study.parent.parent)]) == 0
    assert not folder.exists()
