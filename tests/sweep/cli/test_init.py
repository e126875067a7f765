"""`init`: what it writes runs as it is, to its report, and resumes to the bit."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.tiny_study import ROOT, environment

KINDS = ("torch", "hf-trainer", "lightning")


def command(*arguments: str | Path, folder: Path) -> str:
    """What a command prints, run in a folder, in a process that finds no `datasets` but Hugging Face's."""
    line = [sys.executable, *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_writes_files_and_says_what_is_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "new")]) == 0
    study = tmp_path / "new" / "mine.yaml"
    assert sorted(path.name for path in study.parent.iterdir()) == ["mine.yaml", "train.py"]
    assert capsys.readouterr().out.endswith(f" run {study}\n")
    assert main(["plan", str(study), "--results", str(tmp_path / "results")]) == 0
    assert "1 task x 1 model x 2 variants x 4 learning rates x 3 seeds = 24 runs" in capsys.readouterr().out


def test_it_replaces_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert f"nothing was written: {tmp_path / 'train.py'} would be replaced" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert main(["init", str(tmp_path / "new"), "--hf-trainer", "--judge"]) == 2
    assert "got --hf-trainer and --judge, want one of them" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_as_it_is_and_resumes_to_the_bit(kind: str, tmp_path: Path) -> None:
    command("-m", "lr_sweep.sweep", "init", f"--{kind}", folder=tmp_path)
    printed = command("-m", "lr_sweep.sweep", "run", "mine.yaml", "--cpus", "2", folder=tmp_path)
    assert "complete, 0 diverged, 0 failed, 0 missing" in printed
    assert (tmp_path / "results" / "studies" / "mine" / "report" / "index.html").is_file()
    probed = command("-m", "lr_sweep.sweep", "verify", "mine.yaml", folder=tmp_path)
    assert "deterministic, and resumes exactly" in probed


@pytest.mark.slow
@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: pip install trl")
def test_trl_takes_the_callback_for_hugging_faces_trainer(tmp_path: Path) -> None:
    """`train` is that of docs/own-training.md, below the `train.py` that `init` writes."""
    blocks = (ROOT / "docs" / "own-training.md").read_text().split("```python\n")
    (trl,) = (block.split("```")[0] for block in blocks if "SFTTrainer(" in block)
    command("-m", "lr_sweep.sweep", "init", "--hf-trainer", folder=tmp_path)
    with (tmp_path / "train.py").open("a") as file:
        file.write(trl)
    printed = command("-m", "lr_sweep.sweep", "run", "mine.yaml", "--cpus", "2", folder=tmp_path)
    assert "18 complete, 0 diverged, 0 failed, 0 missing" in printed
    probed = command("-m", "lr_sweep.sweep", "verify", "mine.yaml", folder=tmp_path)
    assert "deterministic, and resumes exactly" in probed


@pytest.mark.slow
def test_a_sweep_without_this_program_is_judged(tmp_path: Path) -> None:
    command("-m", "lr_sweep.sweep", "init", "--judge", folder=tmp_path)
    command("sweep.py", folder=tmp_path)
    printed = command("-m", "lr_sweep.sweep", "judge", "runs.csv", folder=tmp_path)
    assert "read as: variant = variant, learning rate = lr" in printed
    assert "Tuned, " in printed
