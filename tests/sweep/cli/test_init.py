"""`init`: what it writes runs as it is, to its report, and resumes to the bit."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.small_runs import same_bits
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
from lr_sweep.tests.support.waiting import wait_until
from lr_sweep.trainables.checkpoint import checkpoints, read_checkpoint

KINDS: dict[str, list[str]] = {
    "torch": [],
    "hf-trainer": ["--kind", "hf-trainer"],
    "lightning": ["--kind", "lightning"],
}


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
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_as_it_is_and_resumes_to_the_bit(kind: str, tmp_path: Path) -> None:
    command("-m", "lr_sweep.sweep", "init", *KINDS[kind], folder=tmp_path)
    printed = command("-m", "lr_sweep.sweep", "run", "mine.yaml", "--cpus", "2", folder=tmp_path)
    assert "runs on fresh seeds: all complete" in printed
    assert (tmp_path / "results" / "studies" / "mine" / "report" / "index.html").is_file()
    probed = command("-m", "lr_sweep.sweep", "verify", "mine.yaml", folder=tmp_path)
    assert "nothing differs" in probed


TRAIN = """
import sys
from pathlib import Path
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.tiny_study import cohort_here, events_of, runs_of
results = Path(sys.argv[1])
started, *_ = events_of(cohort_here(runs_of(Path("mine.yaml"), results)[:1], Results(results), every_s=0.0))
print("resumed from", started.step)
"""


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
def test_shuffled_data_resume_in_mid_epoch(kind: str, tmp_path: Path) -> None:
    """The stops are neither ends of epochs, which have 16 or 64 steps, nor evaluations, of which there are 3."""
    command("-m", "lr_sweep.sweep", "init", *KINDS[kind], folder=tmp_path)
    assert command("-c", RESUME, folder=tmp_path).endswith("resumes exactly: True\n")
    change(tmp_path / "train.py", SHUFFLED[kind])
    assert command("-c", RESUME, folder=tmp_path).endswith("resumes exactly: False\n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ACCUMULATED)
def test_a_step_with_accumulated_gradients_is_an_optimizer_s_step(kind: str, tmp_path: Path) -> None:
    command("-m", "lr_sweep.sweep", "init", *KINDS[kind], folder=tmp_path)
    change(tmp_path / "train.py", *ACCUMULATED[kind])
    assert command("-c", RESUME, folder=tmp_path).endswith("resumes exactly: True\n")


def change(script: Path, *replaced: tuple[str, str]) -> None:
    for old, new in replaced:
        text = script.read_text()
        assert old in text
        script.write_text(text.replace(old, new))


@pytest.mark.slow
def test_a_run_that_is_killed_ends_with_the_bits_of_an_undisturbed_one(tmp_path: Path) -> None:
    command("-m", "lr_sweep.sweep", "init", folder=tmp_path)
    study = tmp_path / "mine.yaml"
    study.write_text(re.sub("num_steps: .*", "num_steps: 400", study.read_text()))  # else it ends before it is killed
    run_id = runs_of(study, tmp_path / "whole")[0].run_id
    whole, killed = (Results(tmp_path / name).checkpoints(run_id) for name in ("whole", "killed"))
    command("-c", TRAIN, "whole", folder=tmp_path)
    with subprocess.Popen([sys.executable, "-c", TRAIN, "killed"], cwd=tmp_path, env=environment()) as process:
        wait_until(lambda: checkpoints(killed) or process.poll() is not None, "a checkpoint", 900)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    step = int(checkpoints(killed)[0].stem.split("-")[1])
    assert 0 < step < 400
    assert command("-c", TRAIN, "killed", folder=tmp_path).endswith(f"resumed from {step}\n")
    (resumed, progress), (tensors, undisturbed) = (last_state(folder) for folder in (killed, whole))
    assert same_bits(resumed, tensors)
    assert (progress.pop("resumed"), undisturbed.pop("resumed")) == ("exactly", "never")
    for each in (progress, undisturbed):
        del each["elapsed_s"], each["own"]["watched"]
        each["curve"] = [{**point, "time_ms": 0, "elapsed_s": 0} for point in each["curve"]]
    assert progress == undisturbed


def last_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    found = read_checkpoint(checkpoints(folder)[0])
    assert found is not None
    return found


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
