"""`init`: what it writes runs as it is, to its report, and resumes to the bit."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.tiny_study import (
    ROOT,
    cohort_here,
    environment,
    evaluations,
    events_of,
    refused,
    runs_of,
    said,
    succeeds,
)


def command(*arguments: str | Path, folder: Path) -> str:
    """What a command prints, run in a folder, in a process that finds no `datasets` but Hugging Face's."""
    line = [sys.executable, *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_writes_files_and_says_what_is_next(tmp_path: Path) -> None:
    code, printed = said("init", tmp_path / "new")
    study = tmp_path / "new" / "mine.yaml"
    assert sorted(path.name for path in study.parent.iterdir()) == ["mine.yaml", "train.py"]
    assert (code, printed.endswith(f" run {study}\n")) == (0, True)
    printed = succeeds("plan", study, "--results", tmp_path / "results")
    assert "1 task x 1 model x 2 variants x 4 learning rates x 2 seeds = 16 runs" in printed
    assert "fresh      4 fresh seeds, at the chosen rate of 2 cells: 8 runs" in printed


def test_the_script_of_a_command_trains(tmp_path: Path) -> None:
    assert said("init", tmp_path / "new", "--kind", "command")[0] == 0
    run, *_ = runs_of(tmp_path / "new" / "mine.yaml", results := tmp_path / "results")
    assert len([each for event in events_of(cohort_here([run], Results(results))) for each in evaluations(event)]) == 10


def test_it_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    assert f"nothing was written: {tmp_path / 'train.py'} would be replaced" in refused("init", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["torch", "hf-trainer", "lightning"])
def test_it_runs_as_it_is_and_resumes_to_the_bit(kind: str, tmp_path: Path) -> None:
    command("-m", "lr_sweep.sweep", "init", "--kind", kind, folder=tmp_path)
    printed = command("-m", "lr_sweep.sweep", "run", "mine.yaml", "--cpus", "2", folder=tmp_path)
    assert "runs on fresh seeds: all complete" in printed
    assert (tmp_path / "results" / "studies" / "mine" / "report" / "index.html").is_file()
    probed = command("-m", "lr_sweep.sweep", "verify", "mine.yaml", folder=tmp_path)
    assert "nothing differs" in probed


RESUME = """
from pathlib import Path
from lr_sweep.tests.support.own_study import resumes_exactly
from lr_sweep.tests.support.tiny_study import runs_of
run, *_ = runs_of(Path("mine.yaml"), Path())
print("resumes exactly:", resumes_exactly(run, 3, 37))
"""
SHUFFLED = {
    "hf-trainer": ("trainer._get_train_sampler = lambda *_: Shuffled(data, 4, run, session)", "pass"),
    "lightning": (", loader=loader", ""),
}
"""Text that makes shuffled data resume, by starter, and the text in a script that does not resume."""
ACCUMULATED = {
    "hf-trainer": (
        ("save_strategy=", "gradient_accumulation_steps=4, save_strategy="),
        ("Shuffled(data, 4,", "Shuffled(data, 16,"),
    ),
    "lightning": (("devices=1", "devices=1, accumulate_grad_batches=4"), ("examples(0, 256)", "examples(0, 264)")),
}
"""Changes of a starter that accumulates the gradients of four batches; Lightning's epochs then end with two."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHUFFLED)
def test_shuffled_data_resume_in_mid_epoch_and_with_accumulated_gradients(kind: str, tmp_path: Path) -> None:
    """The stops are neither ends of epochs, which have 16 or 64 steps, nor evaluations, of which there are 3."""
    command("-m", "lr_sweep.sweep", "init", "--kind", kind, folder=tmp_path)
    script = tmp_path / "train.py"
    starter = script.read_text()
    for changes, exactly in (((), True), (ACCUMULATED[kind], True), ((SHUFFLED[kind],), False)):
        script.write_text(starter)
        change(script, *changes)
        assert command("-c", RESUME, folder=tmp_path).endswith(f"resumes exactly: {exactly}\n")


def change(script: Path, *replaced: tuple[str, str]) -> None:
    for old, new in replaced:
        text = script.read_text()
        assert old in text
        script.write_text(text.replace(old, new))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: pip install trl")
def test_trl_takes_the_classes_for_hugging_faces_trainer(tmp_path: Path) -> None:
    """`train` is changed as docs/own-training.md says."""
    blocks = (ROOT / "docs" / "own-training.md").read_text().split("```python\n")
    (trl,) = (block.split("```")[0] for block in blocks if "SFTTrainer(" in block)
    command("-m", "lr_sweep.sweep", "init", "--kind", "hf-trainer", folder=tmp_path)
    starter = (tmp_path / "train.py").read_text().replace("TrainingArguments(", "SFTConfig(")
    imports = "import datasets\nfrom transformers import ByT5Tokenizer\nfrom trl import SFTConfig, SFTTrainer\n"
    changed = re.sub(r"    data = .*\n    trainer = .*\n", lambda _: trl, starter)
    (tmp_path / "train.py").write_text(imports + changed)
    assert command("-c", RESUME, folder=tmp_path).endswith("resumes exactly: True\n")
