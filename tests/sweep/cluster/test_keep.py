"""A job's driver that is killed is started again, a few times; what a lost head needs is kept until the job ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lr_sweep.sweep.cluster import head, keep
from lr_sweep.sweep.cluster.jobs import STUDY_KEY

NAME = "tiny-20261123-041500"
JOB = {"job_submission_id": NAME, STUDY_KEY: "tiny", "lr_sweep_results": "/shared/results"}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The head's folder of jobs; a job runs in a folder with a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr_sweep").mkdir()
    (tmp_path / "lr_sweep" / "a.py").write_text("")
    monkeypatch.setattr(keep, "RESTART_AFTER_S", 0.0)
    for module in (keep, head):
        monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path / "kept"
    signal.signal(signal.SIGTERM, before)


def drivers(monkeypatch: pytest.MonkeyPatch, *scripts: str) -> list[str]:
    """Have the drivers run these scripts of Python, one after the other; return those to come."""
    left, call = list(scripts), subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        if command[1:3] == ["-m", "lr_sweep.sweep"]:
            command = [sys.executable, "-c", left.pop(0), *command[3:]]
        return call(command, **options)

    monkeypatch.setattr(keep, "subprocess", SimpleNamespace(run=run))
    return left


KILLED = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(("scripts", "code", "printed"), [
    (["import sys; sys.exit(1)"], 1, ""),
    ([KILLED, "import sys; assert sys.argv[1:] == ['run', 'a b']"], 0, "by SIGKILL; started again (1 of 3 times)"),
    ([KILLED] * 4, 137, "error: the driver was killed by SIGKILL 4 times, and is not started again; "),
])  # fmt: skip
def test_a_driver_that_is_killed_is_started_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, scripts: list[str], code: int, printed: str
) -> None:
    left = drivers(monkeypatch, *scripts)
    assert keep.Keeper(JOB, ["run", "a b"]).run() == code
    assert left == []
    assert printed in capfd.readouterr().out
    assert list(kept.iterdir()) == []


def test_a_job_that_lacked_a_machine_is_kept_until_its_study_is_submitted_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("lr_sweep")
    drivers(monkeypatch, *["import sys; sys.exit(2)"] * 3)
    for number, study in enumerate(("tiny", "another", "tiny")):
        assert keep.Keeper(JOB | {"job_submission_id": f"job-{number}", STUDY_KEY: study}, []).run() == 2
    assert sorted(path.parent.name for path in kept.glob("*/job.json")) == ["job-1", "job-2"]


def test_a_job_that_is_stopped_is_neither_started_again_nor_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers(monkeypatch, "import os, signal; os.kill(os.getppid(), signal.SIGTERM); os.kill(os.getpid(), 9)", KILLED)
    assert keep.Keeper(JOB, []).run() == 137
    assert list(kept.iterdir()) == []


def test_a_head_that_comes_back_starts_the_jobs_that_had_not_ended(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """Under their names, with their programs; not those that Ray still has."""
    look = "import os; assert os.path.isfile('kept/NAME/job.json'); os.kill(os.getppid(), 9)".replace("NAME", NAME)
    text = f"import json, lr_sweep.sweep.cluster.keep as k; from pathlib import Path; k.KEPT = Path('kept'); " \
        f"k.subprocess.run = (lambda run: lambda words, **o: run([words[0], '-c', {look!r}]))(k.subprocess.run); " \
        f"k.Keeper({JOB!r}, ['run', 'tiny.yaml']).run()"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", text], env=os.environ, check=False).returncode == -9
    started: list[tuple[Any, ...]] = []
    there = [SimpleNamespace(name="another")]
    cluster = SimpleNamespace(jobs=lambda: there, start=lambda *given: started.append(given))
    monkeypatch.setattr(head, "ClusterJobs", lambda: cluster)
    monkeypatch.setattr(head, "set_cron", lambda line: None)
    head.start()
    command = "exec sh lr_sweep/sweep/cluster/start.sh run tiny.yaml"
    assert started == [("tiny", "/shared/results", command, kept / NAME / "program", NAME)]
    assert (kept / NAME / "program" / "lr_sweep" / "a.py").is_file()
    assert capfd.readouterr().out == f"{NAME} resumes\n"
    there.append(SimpleNamespace(name=NAME))
    head.start()
    assert len(started) == 1
    assert json.loads((kept / NAME / "job.json").read_text())["arguments"] == ["run", "tiny.yaml"]
