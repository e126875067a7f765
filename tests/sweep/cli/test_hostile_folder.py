"""No command runs a file of the current folder, whatever its name, in its own process or in one that it starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.tiny_study import environment, write_study
from lr_sweep.tests.support.waiting import free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

OTHERS = ("lr_sweep", "mlflow", "numpy", "pandas", "pyarrow", "ray", "sitecustomize", "torch", "usercustomize", "yaml")
BODY = "for _ in session.steps():\n    if session.due:\n        session.report(validation=0.5, test=0.5)"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of modules that write down that they are imported, and fail."""
    (folder := tmp_path / "hostile").mkdir()
    code = f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__ + '\\n')\nraise ImportError(__name__)\n"
    for name in {*sys.stdlib_module_names, *OTHERS}:
        (folder / f"{name}.py").write_text(code)
    return folder


def test_files_of_the_current_folder_are_not_run(hostile: Path, tmp_path: Path) -> None:
    program, results = Path(sys.executable).with_name("lr-sweep"), tmp_path / "results"

    def says(*words: str | Path) -> str:
        done = subprocess.run(
            [program, *words], cwd=hostile, env=environment(), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    study, mine = write_study(tmp_path, rates=[1e-3], variants=["unfrozen-random"]), write_function(tmp_path, BODY)
    there = ("--results", results)
    for command in ("plan", "run"):
        for each in (study, mine):
            says(command, each, *there)
    run_id = says("ls", *there).split("\n")[-2].split()[0]
    for words in (["status", "tiny"], ["report", "tiny"], ["show", run_id], ["verify", mine], ["export", "--mlflow"]):
        says(*words, *there)
    says("judge", results / "studies" / "tiny" / "report" / "runs.csv", "--out", tmp_path / "judged")
    line = [program, "ui", *there, "--port", str(free_port())]
    with subprocess.Popen(line, cwd=hostile, env=environment(), stdout=subprocess.PIPE, text=True) as ui:
        try:
            assert ui.stdout
            assert any(re.match("MLflow  http", text) for text in ui.stdout)  # its pages are served
        finally:
            ui.terminate()
    line = [program, "run", study, *there, "--ui"]
    with subprocess.Popen(line, cwd=hostile, env=environment(), stdout=subprocess.DEVNULL, text=True) as run:
        try:
            log = results / "logs" / "ui.log"
            wait_until(lambda: log.exists() and "MLflow  http" in log.read_text(), "MLflow's pages")
        finally:
            run.terminate()
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
