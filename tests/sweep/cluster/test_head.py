"""What a cluster's head does: a job's driver is kept, a lost head's jobs resume, an idle head ends itself."""

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

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster import head
from lr_sweep.sweep.cluster.jobs import STUDY_KEY

NAME = "tiny-20261123-041500"
JOB = {"job_submission_id": NAME, STUDY_KEY: "tiny", "lr_sweep_results": "/shared/results"}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The head's folder of jobs; a job runs in a folder with a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr_sweep").mkdir()
    (tmp_path / "lr_sweep" / "a.py").write_text("")
    monkeypatch.setattr(head, "RESTART_AFTER_S", 0.0)
    monkeypatch.setattr(head, "KEPT", tmp_path / "kept")
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

    monkeypatch.setattr(head, "subprocess", SimpleNamespace(run=run))
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
    assert head._Keeper(JOB, ["run", "a b"]).run() == code
    assert left == []
    assert printed in capfd.readouterr().out
    assert list(kept.iterdir()) == []


def test_a_job_that_lacked_a_machine_is_kept_until_its_study_is_submitted_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("lr_sweep")
    drivers(monkeypatch, *["import sys; sys.exit(2)"] * 3)
    for number, study in enumerate(("tiny", "another", "tiny")):
        assert head._Keeper(JOB | {"job_submission_id": f"job-{number}", STUDY_KEY: study}, []).run() == 2
    assert sorted(path.parent.name for path in kept.glob("*/job.json")) == ["job-1", "job-2"]


def test_a_job_that_is_stopped_is_neither_started_again_nor_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers(monkeypatch, "import os, signal; os.kill(os.getppid(), signal.SIGTERM); os.kill(os.getpid(), 9)", KILLED)
    assert head._Keeper(JOB, []).run() == 137
    assert list(kept.iterdir()) == []


def test_a_head_that_comes_back_starts_the_jobs_that_had_not_ended(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """Under their names, with their programs; not those that Ray still has."""
    look = "import os; assert os.path.isfile('kept/NAME/job.json'); os.kill(os.getppid(), 9)".replace("NAME", NAME)
    text = f"import json, lr_sweep.sweep.cluster.head as k; from pathlib import Path; k.KEPT = Path('kept'); " \
        f"k.subprocess.run = (lambda run: lambda words, **o: run([words[0], '-c', {look!r}]))(k.subprocess.run); " \
        f"k._Keeper({JOB!r}, ['run', 'tiny.yaml']).run()"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", text], env=os.environ, check=False).returncode == -9
    started: list[tuple[Any, ...]] = []
    there = [SimpleNamespace(name="another")]
    cluster = SimpleNamespace(jobs=lambda: there, start=lambda *given: started.append(given))
    monkeypatch.setattr(head, "ClusterJobs", lambda: cluster)
    monkeypatch.setattr(head, "_set_cron", lambda line: None)
    head.start()
    command = "exec sh lr_sweep/sweep/cluster/start.sh run tiny.yaml"
    assert started == [("tiny", "/shared/results", command, kept / NAME / "program", NAME)]
    assert (kept / NAME / "program" / "lr_sweep" / "a.py").is_file()
    assert capfd.readouterr().out == f"{NAME} resumes\n"
    there.append(SimpleNamespace(name=NAME))
    head.start()
    assert len(started) == 1
    assert json.loads((kept / NAME / "job.json").read_text())["arguments"] == ["run", "tiny.yaml"]


@pytest.mark.parametrize(("machines", "drivers", "busy"), [(1, 0, False), (1, 1, True), (2, 0, True), (3, 2, True)])
def test_a_driver_or_a_worker_keeps_the_head(
    monkeypatch: pytest.MonkeyPatch, machines: int, drivers: int, busy: bool
) -> None:
    there = SimpleNamespace(machines=lambda: machines, drivers=lambda: drivers)
    monkeypatch.setattr(head, "ClusterJobs", lambda: there)
    assert head._is_busy() == busy


def test_a_head_without_ray_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> None:
        raise UserError("nothing answers")

    monkeypatch.setattr(head, "ClusterJobs", connect)
    assert not head._is_busy()


def test_the_command_runs_once_after_an_hour_without_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in its last minute starts the hour again."""
    now, asked_at = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(head, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(head, "_is_busy", lambda: asked_at.append(now) or now == 59 * 60)
    assert head.idle("60", "sh", "-c", f"echo down >> {tmp_path}/calls; exit 3") == 3
    assert (tmp_path / "calls").read_text() == "down\n"
    assert asked_at[-1] == (59 + 60) * 60
