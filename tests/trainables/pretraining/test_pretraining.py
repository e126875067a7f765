"""Pretraining on text and on a task: what is saved, the same bytes whatever happens, and the names of folders."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from transformers import GPT2Model

from lr_sweep.common.files import hash_file
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.tests.support.small_runs import CPU, same_bits
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.numerics import keyed_generator
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.pretraining.loop import _language_model, learning_rate_share, pretrain
from lr_sweep.trainables.pretraining.recipe import (
    NO_FILES,
    PretrainRecipe,
    TaskRecipe,
    endless_tasks,
    pretraining_checkpoints,
    read_corpus,
)
from lr_sweep.trainables.pretraining.weights import WeightsError, load_weights, weights_checksum
from lr_sweep.trainables.run import ModelSize

SIZE = ModelSize(layers=1, heads=2, width=16, positions=12)
CORPUS = b"the quick brown fox jumps over the lazy dog; " * 100
TEXT = PretrainRecipe(num_threads=1, num_steps=12, batch_size=2, num_tokens=12, learning_rate=1e-2)
OPTIONS = TASKS["bit-memory"].Options(
    num_patterns=5, num_bits=40, bits_per_token=20, num_validation=20, num_test=50, num_train_evaluated=20
)
TASK = TaskRecipe(task="bit-memory", options=OPTIONS, num_steps=12, batch_size=4)
OnStep = Callable[[int, float], None]
each_kind = pytest.mark.parametrize("kind", ["text", "task"])


class KilledError(Exception):
    """Replaces a signal."""


def killed_after(step: int) -> OnStep:
    def on_step(done: int, loss: float) -> None:
        if done == step:
            raise KilledError

    return on_step


def train(kind: str, folder: Path, on_step: OnStep = lambda *_: None, *, every_s: float = 0.0, **changes: Any) -> Any:
    recipe = dataclasses.replace(TEXT if kind == "text" else TASK, **changes)
    return pretrain(SIZE, recipe, CORPUS, folder, CPU, on_step, checkpoint_every_s=every_s)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of weights by kind, trained without a checkpoint."""
    root = tmp_path_factory.mktemp("undisturbed")
    for kind in ("text", "task"):
        train(kind, root / kind, every_s=1e9)
    return {kind: root / kind for kind in ("text", "task")}


@pytest.mark.slow
def test_held_out_text_becomes_likelier(tmp_path: Path) -> None:
    size = dataclasses.replace(SIZE, width=32, positions=32)
    recipe = PretrainRecipe(num_steps=60, batch_size=8, num_tokens=32, learning_rate=1e-2)
    pretrain(size, recipe, CORPUS, tmp_path / "weights", CPU, lambda *_: None)
    facts = json.loads((tmp_path / "weights" / "pretraining.json").read_text())
    assert facts["held_out_bits_per_byte_before"] == pytest.approx(8.0, abs=0.1)  # 256 bytes, nothing known
    assert facts["held_out_bits_per_byte"] < 4.0
    assert facts["text_sha256"] == hashlib.sha256(CORPUS).hexdigest()
    assert facts["recipe"]["num_steps"] == 60
    steps, bits = zip(*facts["curve"], strict=True)
    assert (steps[:4], steps[-1], len(steps)) == ((0, 2, 3, 4), 60, 51)  # 50 of 60 steps: 1.2, 2.4, 3.6, rounded up
    assert (bits[0], bits[-1]) == (facts["held_out_bits_per_byte_before"], facts["held_out_bits_per_byte"])
    assert bits[-1] < bits[25] < bits[0]
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]  # nothing half-made beside it


@each_kind
def test_the_folder_is_a_hugging_face_model_and_our_body(kind: str, undisturbed: dict[str, Path]) -> None:
    model = GPT2Model.from_pretrained(undisturbed[kind])
    assert (model.config.n_layer, model.config.n_head, model.config.n_embd) == (1, 2, 16)
    ours, theirs = load_weights(undisturbed[kind]), model.state_dict()
    assert ours.keys() == theirs.keys() - {"wte.weight"}
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_weights_are_those_of_the_plain_loop(undisturbed: dict[str, Path]) -> None:
    """Ids of runs depend on these bytes: what pretraining does besides its steps must not change them."""
    torch.set_num_threads(1)
    model = _language_model(SIZE, TEXT)
    text = torch.tensor(list(CORPUS[: int(len(CORPUS) * 0.95)]), dtype=torch.uint8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=TEXT.learning_rate, betas=(0.9, 0.95), fused=True)
    model.train()
    for step in range(1, TEXT.num_steps + 1):
        optimizer.param_groups[0]["lr"] = TEXT.learning_rate * learning_rate_share(step, TEXT.num_steps)
        generator = keyed_generator(TEXT.seed, "pretrain", step)
        starts = torch.randint(len(text) - TEXT.num_tokens, (TEXT.batch_size,), generator=generator)  # (B,)
        windows = torch.stack([text[at : at + TEXT.num_tokens + 1] for at in starts]).long()  # (B, T + 1)
        logits = model(windows[:, :-1]).logits  # (B, T, 256)
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    expected, got = model.transformer.state_dict(), load_weights(undisturbed["text"])
    assert len(got) == 15  # positions, 12 of the block, 2 of the last layer norm
    assert all(torch.equal(tensor, expected[name]) for name, tensor in got.items())


def test_a_body_trained_on_a_task_is_that_of_the_plain_engine(undisturbed: dict[str, Path]) -> None:
    data = load_checked("bit-memory", TASKS["bit-memory"], OPTIONS, NO_FILES)
    training = Training(TASK.run(SIZE), data, None, CPU)
    evaluation = training.advance()
    assert evaluation
    assert evaluation.step == 12
    assert same_bits(load_weights(undisturbed["task"]), training.model.body.state_dict())
    facts = json.loads((undisturbed["task"] / "pretraining.json").read_text())
    assert facts["accuracy"] == evaluation.test
    assert 0.3 < facts["accuracy_before"] < 0.7  # 2,000 bits, guessed
    assert facts["recipe"]["options"]["num_bits"] == 40
    assert facts["weights_sha256"] == hash_file(undisturbed["task"] / "model.safetensors")
    assert facts["duration_s"] > 0


@pytest.mark.parametrize(("kind", "changes"), [("text", {"num_threads": None}), ("text", {}), ("task", {})])
def test_weights_follow_from_the_recipe_alone(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Not from the number of the process's threads, or from the global generator."""
    before = torch.get_num_threads()
    try:
        for number in (1, 2, 4):
            torch.set_num_threads(number)
            torch.rand(7)
            train(kind, tmp_path / str(number), num_steps=3, **changes)
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)
    train(kind, tmp_path / "seed", num_steps=3, seed=1, **changes)
    checksums = [weights_checksum(tmp_path / name) for name in ("1", "2", "4", "seed")]
    assert checksums[0] == checksums[1] == checksums[2] != checksums[3]


@each_kind
def test_breaks_at_any_steps_leave_the_same_bytes(kind: str, undisturbed: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    for step in (1, 2, 5, 11):
        with pytest.raises(KilledError):
            train(kind, folder, killed_after(step))
        newest, *older = checkpoints(pretraining_checkpoints(folder))
        assert newest.name.startswith(f"step-{step:09d}-")
        assert len(older) <= 1
        assert not folder.exists()
    seen: list[int] = []
    facts = json.loads(json.dumps(train(kind, folder, lambda step, loss: seen.append(step))))
    assert seen == [12]
    assert hash_file(folder / "model.safetensors") == hash_file(undisturbed[kind] / "model.safetensors")
    whole = json.loads((undisturbed[kind] / "pretraining.json").read_text())
    names = facts.keys() - {"duration_s"}
    assert {name: facts[name] for name in names} == {name: whole[name] for name in names}
    assert [path.name for path in tmp_path.iterdir()] == ["gpt2"]  # checkpoints are gone


def test_a_divergence_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"bit-memory diverged at step 2: .* Lower learning_rate = 1e\+30"):
        train("task", tmp_path / "gpt2", learning_rate=1e30)
    assert not (tmp_path / "gpt2").exists()


def changed(one: Any, *but: str) -> list[Any]:
    """Return as many as there are fields but these, each with another value of one."""
    values = {name: value for name, value in vars(one).items() if name not in but}
    return [dataclasses.replace(one, **{name: 2 * value or 1}) for name, value in values.items()]


def test_everything_that_can_change_the_weights_is_in_the_folders_name(tmp_path: Path) -> None:
    folders = [TEXT.folder(tmp_path, SIZE, corpus) for corpus in (CORPUS, b"other")]
    folders += [recipe.folder(tmp_path, SIZE, CORPUS) for recipe in changed(TEXT, "text")]
    folders += [TEXT.folder(tmp_path, size, CORPUS) for size in changed(SIZE)]
    xor = TaskRecipe(task="bit-xor", options=TASKS["bit-xor"].Options(), num_steps=12, batch_size=4)
    masked = dataclasses.replace(TASK, options=dataclasses.replace(OPTIONS, mask_probability=0.4))
    recipes = [TASK, xor, masked, *changed(TASK, "task", "options")]
    folders += [recipe.folder(tmp_path, SIZE, b"") for recipe in recipes]
    folders += [TASK.folder(tmp_path, size, b"") for size in changed(SIZE)]
    assert len(set(folders)) == len(folders) == 12 + 11
    # where the text lies does not matter, its bytes do
    moved = dataclasses.replace(TEXT, text=(Path("elsewhere.txt"),))
    assert moved.folder(tmp_path, SIZE, CORPUS) == folders[0]
    earlier = PretrainRecipe(num_steps=60, batch_size=8, num_tokens=32, learning_rate=1e-2)
    named = earlier.folder(tmp_path, dataclasses.replace(SIZE, width=32, positions=32), CORPUS)
    assert named.name == "gpt2-1x32-f1d81f725b32"  # results directories hold such names


def test_only_tasks_without_files_are_offered() -> None:
    assert endless_tasks() == ["bit-memory", "bit-xor"]


def test_a_text_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="it is no plain file"):
        read_corpus([Path("/dev/zero")])
    monkeypatch.setattr("lr_sweep.trainables.pretraining.recipe.MAX_TEXT_BYTES", 5)
    for name, content in (("a", b"123"), ("b", b"456")):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(OSError, match="it has more than 2 bytes"):
        read_corpus([tmp_path / "a", tmp_path / "b"])


@pytest.mark.slow
def test_a_small_model_learns_bit_memory(tmp_path: Path) -> None:
    """Half of the bits are shown and half of the others guessed: a copy is right for 75%, the most is 99.9%."""
    size = ModelSize(layers=2, heads=4, width=64, positions=12)
    recipe = dataclasses.replace(TASK, num_steps=500, batch_size=32)
    facts = pretrain(size, recipe, b"", tmp_path / "gpt2", CPU, lambda step, loss: None)
    assert facts["accuracy"] > 0.95
