"""Weights pretrained on a task: what is saved, the same bytes after a break, and what a study says of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Model

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import find_backbones, is_unknown
from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.sweep.study.model import PretrainedHere
from lr_sweep.tests.support.small_runs import CPU
from lr_sweep.tests.support.tiny_study import in_process, write_study
from lr_sweep.trainables.backbones.gpt2 import GPT2
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.initialise import load_weights
from lr_sweep.trainables.pretraining.on_task import pretrain_on_task
from lr_sweep.trainables.pretraining.recipe import NO_FILES, TaskRecipe, endless_tasks, pretraining_checkpoints
from lr_sweep.trainables.pretraining.weights import WeightsError
from lr_sweep.trainables.run import ModelSize
from lr_sweep.trainables.training import Training

SIZE = ModelSize(layers=1, heads=2, width=16, positions=12)
OPTIONS = TASKS["bit-memory"].Options(
    num_patterns=5, num_bits=40, bits_per_token=20, num_validation=20, num_test=50, num_train_evaluated=20
)
RECIPE = TaskRecipe(task="bit-memory", options=OPTIONS, num_steps=7, batch_size=4)
MODELS = (
    "{tiny: {size: {layers: 1, heads: 2, width: 16, positions: 12}, pretrained: {pretrain: {task: bit-memory, "
    "num_steps: 7, batch_size: 4, num_bits: 40, bits_per_token: 20, num_validation: 20, num_test: 50, "
    "num_train_evaluated: 20}}}}"
)


class KilledError(Exception):
    """Replaces a signal."""


def killed_after(step: int) -> Callable[[int, float], None]:
    def on_step(done: int, loss: float) -> None:
        if done == step:
            raise KilledError

    return on_step


def train(folder: Path, recipe: TaskRecipe = RECIPE, on_step: Any = lambda step, loss: None) -> dict[str, Any]:
    return pretrain_on_task(SIZE, recipe, folder, CPU, on_step, checkpoint_every_s=0.0)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "gpt2"
    pretrain_on_task(SIZE, RECIPE, folder, CPU, lambda step, loss: None)
    return folder


def test_the_body_is_that_of_the_plain_engine(pretrained: Path) -> None:
    data = load_checked("bit-memory", TASKS["bit-memory"], OPTIONS, NO_FILES)
    training = Training(RECIPE.run(SIZE), data, None, CPU)
    evaluation = training.advance()
    assert evaluation
    assert evaluation.step == 7
    expected = training.model.body.state_dict()
    got = load_weights(pretrained)
    assert got.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in got.items())
    facts = json.loads((pretrained / "pretraining.json").read_text())
    assert facts["accuracy"] == evaluation.test_accuracy
    assert 0.3 < facts["accuracy_before"] < 0.7  # 2,000 bits, guessed
    assert facts["recipe"]["options"]["num_bits"] == 40
    assert facts["weights_sha256"] == hash_file(pretrained / "model.safetensors")
    assert facts["duration_s"] > 0


def test_the_folder_is_a_hugging_face_body(pretrained: Path) -> None:
    theirs = GPT2Model.from_pretrained(pretrained).eval()
    ours = GPT2(SIZE)
    ours.load_state_dict(load_weights(pretrained))
    embeddings = torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        hidden = theirs(inputs_embeds=embeddings).last_hidden_state
        torch.testing.assert_close(ours(embeddings), hidden, rtol=0, atol=1e-5)


def test_breaks_leave_the_same_bytes(pretrained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    for step in (1, 4):
        with pytest.raises(KilledError):
            train(folder, on_step=killed_after(step))
        assert checkpoints(pretraining_checkpoints(folder))[0].name.startswith(f"step-{step:09d}-")
        assert not folder.exists()
    seen: list[int] = []
    facts = train(folder, on_step=lambda step, loss: seen.append(step))
    assert seen == [5, 6, 7]
    assert hash_file(folder / "model.safetensors") == hash_file(pretrained / "model.safetensors")
    undisturbed = json.loads((pretrained / "pretraining.json").read_text())
    for name in ("accuracy_before", "accuracy"):
        assert facts[name] == undisturbed[name]
    assert [path.name for path in tmp_path.iterdir()] == ["gpt2"]  # checkpoints are gone


def test_threads_are_those_of_before(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(tmp_path / "gpt2", dataclasses.replace(RECIPE, num_steps=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_divergence_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, learning_rate=1e30)
    with pytest.raises(WeightsError, match=r"bit-memory diverged at step 2: .* Lower learning_rate = 1e\+30"):
        train(tmp_path / "gpt2", recipe)
    assert not (tmp_path / "gpt2").exists()


def test_everything_that_can_change_the_weights_is_in_the_folders_name(tmp_path: Path) -> None:
    other = {"num_steps": 8, "batch_size": 9, "learning_rate": 2e-2, "seed": 1}
    other |= {"options": dataclasses.replace(OPTIONS, mask_probability=0.4), "task": "bit-xor"}
    assert {field.name for field in dataclasses.fields(TaskRecipe)} == other.keys()
    other["task"] = RECIPE.task
    recipes = [dataclasses.replace(RECIPE, **{name: value}) for name, value in other.items()]
    xor = TaskRecipe(task="bit-xor", options=TASKS["bit-xor"].Options(), num_steps=7, batch_size=4)
    folders = {recipe.folder(tmp_path, SIZE) for recipe in [*recipes, xor]}
    folders |= {RECIPE.folder(tmp_path, dataclasses.replace(SIZE, heads=4))}
    assert len(folders) == 8  # RECIPE itself is among them, by its task


def test_only_tasks_without_files_are_offered() -> None:
    assert endless_tasks() == ["bit-memory", "bit-xor"]


def test_a_study_pretrains_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_study(tmp_path, models=MODELS)
    study, results = load_study(path), Results(tmp_path / "results")
    source = study.models["tiny"].pretrained
    assert isinstance(source, PretrainedHere)
    assert source.pretrain == RECIPE
    copy = tmp_path / "copy" / "tiny.yaml"
    copy.parent.mkdir()
    copy.write_text(study_to_yaml(study))
    assert load_study(copy) == study

    assert is_unknown(find_backbones(study, results.pretrained)["tiny"].checksum)
    code, plan = in_process("plan", path, "--results", results.root)
    assert code == 0
    what = "GPT-2 of 1 layers x width 16, all of it trained for 7 steps (28 examples) on bit-memory"
    assert f"tiny: {what} (not here yet; `run` gets or trains them first)" in plan
    code, said = in_process("pretrain", path, "--results", results.root)
    first, last, folder = said.splitlines()
    assert (code, first) == (0, f"pretraining tiny: {what}")
    assert last.endswith("% of test answers right")
    assert folder == str(RECIPE.folder(results.pretrained, SIZE))
    here = find_backbones(study, results.pretrained)["tiny"]
    assert (here.here, here.checksum) == (True, hash_file(Path(folder) / "model.safetensors"))
    assert "already there" in in_process("pretrain", path, "--results", results.root)[1]
    assert main(["verify", "--results", str(results.root)]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("{task: listops, num_steps: 1}", "task: unknown task to pretrain on 'listops'; valid: bit-memory, bit-xor"),
        ("{task: bit-memory}", "num_steps: missing"),
        ("{task: bit-memory, num_steps: 1, num_bits: 7}", "bits_per_token is 50, wanted 1 to 7"),
        ("{task: bit-memory, num_steps: 0}", "num_steps: got 0, want greater than or equal to 1"),
        ("{task: bit-memory, num_steps: 1}", "task: 120 tokens are more than size.positions = 12"),
        ("{task: bit-memory, num_steps: 1, text: python-stdlib}", "text: unknown key 'text'"),
    ],
)
def test_mistakes_of_a_recipe(tmp_path: Path, recipe: str, message: str) -> None:
    size = "{layers: 1, heads: 2, width: 16, positions: 12}"
    path = write_study(tmp_path, models=f"{{tiny: {{size: {size}, pretrained: {{pretrain: {recipe}}}}}}}")
    with pytest.raises(UserError) as raised:
        load_study(path)
    assert message in str(raised.value)


@pytest.mark.slow
def test_a_small_model_learns_bit_memory(tmp_path: Path) -> None:
    """Half of the bits are shown and half of the others guessed: a copy is right for 75%, the most is 99.9%."""
    size = ModelSize(layers=2, heads=4, width=64, positions=12)
    recipe = TaskRecipe(task="bit-memory", options=OPTIONS, num_steps=500, batch_size=32)
    facts = pretrain_on_task(size, recipe, tmp_path / "gpt2", CPU, lambda step, loss: None)
    assert facts["accuracy"] > 0.95
