"""Pretraining that is cut short: the same bytes as without a break, and what `status` says meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from lr_sweep.common.files import hash_file
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.inspection.gc import find_garbage
from lr_sweep.sweep.inspection.status import status_text
from lr_sweep.sweep.inspection.verify import Verification
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import Reporter, find_backbones, pretrain_model, to_pretrain
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.small_runs import CPU
from lr_sweep.tests.support.tiny_study import ROOT, in_process, write_study
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.initialise import load_weights
from lr_sweep.trainables.pretraining.recipe import PretrainRecipe, pretraining_checkpoints
from lr_sweep.trainables.pretraining.train import _language_model, learning_rate_share, pretrain
from lr_sweep.trainables.randomness import keyed_generator
from lr_sweep.trainables.run import ModelSize

SIZE = ModelSize(layers=1, heads=2, width=16, positions=12)
RECIPE = PretrainRecipe(num_threads=1, num_steps=12, batch_size=2, num_tokens=12, learning_rate=1e-2)
CORPUS = b"the quick brown fox jumps over the lazy dog; " * 100


class KilledError(Exception):
    """Replaces a signal."""


def killed_after(step: int) -> Callable[[int, float], None]:
    def on_step(done: int, loss: float) -> None:
        if done == step:
            raise KilledError

    return on_step


def train(folder: Path, on_step: Callable[[int, float], None] = lambda step, loss: None) -> dict[str, Any]:
    return pretrain(SIZE, RECIPE, CORPUS, folder, CPU, on_step, checkpoint_every_s=0.0)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Bytes depend on the number of threads, which training in another test may have changed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "gpt2"
    pretrain(SIZE, RECIPE, CORPUS, folder, CPU, lambda step, loss: None)
    return folder


def test_weights_are_those_of_the_plain_loop(undisturbed: Path) -> None:
    """Ids of runs depend on these bytes: what pretraining does besides its steps must not change them."""
    model = _language_model(SIZE, RECIPE)
    text = torch.tensor(list(CORPUS[: int(len(CORPUS) * 0.95)]), dtype=torch.uint8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RECIPE.learning_rate, betas=(0.9, 0.95), fused=True)
    model.train()
    for step in range(1, RECIPE.num_steps + 1):
        optimizer.param_groups[0]["lr"] = RECIPE.learning_rate * learning_rate_share(step, RECIPE.num_steps)
        generator = keyed_generator(RECIPE.seed, "pretrain", step)
        starts = torch.randint(len(text) - RECIPE.num_tokens, (RECIPE.batch_size,), generator=generator)  # (B,)
        windows = torch.stack([text[at : at + RECIPE.num_tokens + 1] for at in starts]).long()  # (B, T + 1)
        logits = model(windows[:, :-1]).logits  # (B, T, 256)
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    expected = model.transformer.state_dict()
    got = load_weights(undisturbed)
    assert len(got) == 15  # positions, 12 of the block, 2 of the last layer norm
    assert all(torch.equal(tensor, expected[name]) for name, tensor in got.items())


def test_breaks_at_any_steps_leave_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    for step in (1, 2, 5, 11):
        with pytest.raises(KilledError):
            train(folder, killed_after(step))
        newest, *older = checkpoints(pretraining_checkpoints(folder))
        assert newest.name.startswith(f"step-{step:09d}-")
        assert len(older) <= 1
        assert not folder.exists()
    seen: list[int] = []
    facts = train(folder, lambda step, loss: seen.append(step))
    assert seen == [12]
    assert hash_file(folder / "model.safetensors") == hash_file(undisturbed / "model.safetensors")
    without_a_break = json.loads((undisturbed / "pretraining.json").read_text())
    for name in ("held_out_bits_per_byte_before", "held_out_bits_per_byte"):
        assert facts[name] == without_a_break[name]
    assert [list(pair) for pair in facts["curve"]] == without_a_break["curve"]
    assert [path.name for path in tmp_path.iterdir()] == ["gpt2"]  # checkpoints are gone


def test_a_damaged_checkpoint_is_passed_over(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    with pytest.raises(KilledError):
        train(folder, killed_after(5))
    newest, _ = checkpoints(pretraining_checkpoints(folder))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x55")
    seen: list[int] = []
    train(folder, lambda step, loss: seen.append(step))
    assert seen[0] == 5  # once more, from step 4
    assert hash_file(folder / "model.safetensors") == hash_file(undisturbed / "model.safetensors")


PRETRAIN = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from lr_sweep.tests.trainables.test_pretraining_resumed import train
train(Path(sys.argv[1]), lambda step, loss: print(step, flush=True))
"""


def test_a_killed_process_leaves_what_another_resumes(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    with subprocess.Popen(
        [sys.executable, "-c", PRETRAIN, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        os.kill(process.pid, signal.SIGKILL)
    seen: list[int] = []
    train(folder, lambda step, loss: seen.append(step))
    assert seen[0] > 1
    assert hash_file(folder / "model.safetensors") == hash_file(undisturbed / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["gpt2"]


def recipe_study(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_bytes(CORPUS)
    recipe = "{text: [text.txt], num_steps: 2, batch_size: 2, num_tokens: 12}"
    size = "{layers: 1, heads: 2, width: 16, positions: 12}"
    return write_study(tmp_path, models=f"{{tiny: {{size: {size}, pretrained: {{pretrain: {recipe}}}}}}}")


def test_lines_say_the_time_left_and_where_it_resumes(tmp_path: Path) -> None:
    said: list[str] = []
    now = 0.0
    reporter = Reporter("tiny", 100, tmp_path / "progress.json", said.append, lambda: now)
    for step in range(40, 61):  # two seconds a step
        reporter(step, 2.5)
        now += 2.0
    assert said[0] == "  resumes after step 39 of 100"
    assert said[1] == "  step 45 of 100, training loss 2.50 nats per byte, 0:01:50 left"
    written = json.loads((tmp_path / "progress.json").read_text())
    assert {name: written[name] for name in ("model", "step", "num_steps", "time_left_s")} == {
        **{"model": "tiny", "step": 60, "num_steps": 100, "time_left_s": 80.0}
    }


def test_status_reports_a_pretraining(tmp_path: Path) -> None:
    study, results = load_study(recipe_study(tmp_path)), Results(tmp_path / "results")
    results.prepare()
    progress = {"model": "tiny", "step": 30, "num_steps": 90, "time_left_s": 125.0, "updated_at": 1000.0}
    with results.writing("tiny"):
        results.pretraining_progress.write_text(json.dumps(progress))
        lines = status_text(results, "tiny", 1003.0).splitlines()
        assert lines[0] == "tiny: no run yet"
        assert lines[1].endswith(" pretrains tiny for tiny: step 30 of 90, about 0:02:05 left (as of 3 s ago)")
        code, output = in_process("status", tmp_path / "tiny.yaml", "--results", results.root)
        assert (code, output.splitlines()[0]) == (0, "tiny: no run yet")
    results.pretraining_progress.write_text(json.dumps(progress))  # its process was killed
    with results.writing("other"):
        assert not results.pretraining_progress.exists()
    seen: list[str] = []
    pretrain_model("tiny", study.models["tiny"], results.pretrained, results.pretraining_progress, CPU, seen.append)
    assert not results.pretraining_progress.exists()


def test_a_disk_that_cannot_hold_it_is_reported_before_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = recipe_study(tmp_path)
    arguments = [str(study), "--results", str(tmp_path / "results")]
    monkeypatch.setattr("lr_sweep.trainables.pretraining.train.pretrain", lambda *_: pytest.fail("has begun"))
    monkeypatch.setattr(Results, "free_bytes", lambda self: 100_000)
    # 4 bytes x (3,520 numbers of the body + 256 x 16 of the token table) x (1 + 3 checkpoints x 3 copies) = 0.3 MB
    for command, what in (("pretrain", "the weights to pretrain and the runs"), ("run", "the weights to pretrain and")):
        assert main([command, *arguments]) == 2
        assert f"has 0.1 MB free and {what}" in capsys.readouterr().err
    assert main(["plan", *arguments]) == 0
    assert "for weights, checkpoints and record, 0.1 MB free: not enough" in capsys.readouterr().out


def test_checkpoints_of_a_pretraining_are_kept_until_it_ends(tmp_path: Path) -> None:
    study, results = load_study(recipe_study(tmp_path)), Results(tmp_path / "results")
    results.prepare()
    backbone = find_backbones(study, results.pretrained)["tiny"]
    assert to_pretrain(study, {"tiny": backbone}) == [SIZE]
    assert backbone.source
    assert backbone.source.folder
    folder = pretraining_checkpoints(Path(backbone.source.folder))
    folder.mkdir()
    (folder / "step-000000001-ab.safetensors").write_bytes(b"1")
    assert not find_garbage(results, ["leftovers"]).kinds
    notes = list(Verification(results).notes())
    assert notes[0].startswith(f"{folder}: a pretraining that has not ended; `run` and `pretrain` resume it")
    pretrained = Path(backbone.source.folder)
    pretrained.mkdir()
    (pretrained / "model.safetensors").write_bytes(b"")
    (left,) = find_garbage(results, ["leftovers"]).kinds["leftovers"].files
    assert left.parent == folder
