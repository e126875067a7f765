"""Weights: trained here by a recipe or found in folders, and what the errors say when they are missing or damaged."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import ensure_backbones, find_backbones, is_unknown
from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.tests.support.small_runs import CPU, run_of
from lr_sweep.tests.support.tiny_study import SIZE as TINY
from lr_sweep.tests.support.tiny_study import sweep, write_study, write_weights
from lr_sweep.trainables.initialise import load_weights
from lr_sweep.trainables.pretraining.recipe import PretrainRecipe, pretrained_folder, read_corpus
from lr_sweep.trainables.pretraining.train import pretrain
from lr_sweep.trainables.pretraining.weights import WeightsError, WeightsSource, find_weights, weights_checksum
from lr_sweep.trainables.run import ModelSize
from lr_sweep.trainables.session import pretrained_tensors

SIZE = ModelSize(layers=1, heads=2, width=32, positions=32)
RECIPE = PretrainRecipe(num_steps=60, batch_size=8, num_tokens=32, learning_rate=1e-2)
CORPUS = b"the quick brown fox jumps over the lazy dog; " * 100


def train(folder: Path, recipe: PretrainRecipe = RECIPE) -> dict[str, Any]:
    return pretrain(SIZE, recipe, CORPUS, folder, CPU, lambda step, loss: None)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "weights"
    train(folder)
    return folder


def test_held_out_text_becomes_likelier(pretrained: Path) -> None:
    facts = json.loads((pretrained / "pretraining.json").read_text())
    assert facts["held_out_bits_per_byte_before"] == pytest.approx(8.0, abs=0.1)  # 256 bytes, nothing known
    assert facts["held_out_bits_per_byte"] < 4.0
    assert facts["text_sha256"] == hashlib.sha256(CORPUS).hexdigest()
    assert facts["recipe"]["num_steps"] == 60
    steps, bits = zip(*facts["curve"], strict=True)
    assert (steps[:4], steps[-1], len(steps)) == ((0, 2, 3, 4), 60, 51)  # 50 of 60 steps: 1.2, 2.4, 3.6, rounded up
    assert (bits[0], bits[-1]) == (facts["held_out_bits_per_byte_before"], facts["held_out_bits_per_byte"])
    assert bits[-1] < bits[25] < bits[0]
    assert sorted(path.name for path in pretrained.parent.iterdir()) == ["weights"]  # nothing half-made beside it


def test_the_folder_is_a_hugging_face_model_and_our_body(pretrained: Path) -> None:
    model = GPT2LMHeadModel.from_pretrained(pretrained)
    assert (model.config.n_layer, model.config.n_head, model.config.n_embd) == (1, 2, 32)
    ours = load_weights(pretrained)
    theirs = model.transformer.state_dict()
    assert ours.keys() == theirs.keys() - {"wte.weight"}
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_the_same_recipe_gives_the_same_weights(tmp_path: Path) -> None:
    short = dataclasses.replace(RECIPE, num_steps=3)
    for name in ("one", "other"):
        torch.rand(7)  # the global generator must not matter
        train(tmp_path / name, short)
    train(tmp_path / "seed", dataclasses.replace(short, seed=1))
    one, other, seed = (weights_checksum(tmp_path / name) for name in ("one", "other", "seed"))
    assert one == other
    assert one != seed


@pytest.mark.parametrize("num_threads", [None, 1])
def test_weights_do_not_depend_on_the_number_of_the_processs_threads(tmp_path: Path, num_threads: int | None) -> None:
    before = torch.get_num_threads()
    recipe = dataclasses.replace(RECIPE, num_steps=3, num_threads=num_threads)
    try:
        for number in (1, 2, 4):
            torch.set_num_threads(number)
            train(tmp_path / str(number), recipe)
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)
    assert len({weights_checksum(tmp_path / number) for number in ("1", "2", "4")}) == 1


@pytest.mark.slow
def test_pretrain_and_run_make_the_same_weights_with_one_two_and_four_threads(tmp_path: Path) -> None:
    """`ray up` and Slurm set OMP_NUM_THREADS; the ids of runs follow the weights."""
    pretrain_it = "{pretrain: {num_steps: 2, batch_size: 16, num_tokens: 128}}"
    size = "{layers: 2, heads: 4, width: 128, positions: 128}"  # large enough for threads to divide the sums
    study = write_study(tmp_path, models=f"{{small: {{size: {size}, pretrained: {pretrain_it}}}}}", num_steps=10)
    made = {}
    for command in ("pretrain", "run"):
        for number in ("1", "2", "4"):
            results = tmp_path / f"{command}-{number}"
            code, printed = sweep(command, study, "--results", results, env={"OMP_NUM_THREADS": number})
            assert code == 0, printed
            (folder,) = (path for path in (results / "pretrained").iterdir() if path.is_dir())
            made[results.name] = weights_checksum(folder)
    assert len(set(made.values())) == 1, made


def test_everything_that_can_change_the_weights_is_in_the_folders_name(tmp_path: Path) -> None:
    other_recipe = {"num_steps": 61, "batch_size": 9, "num_tokens": 31, "learning_rate": 2e-2, "seed": 1} | {
        "num_threads": 1
    }
    other_size = {"layers": 2, "heads": 4, "width": 64, "positions": 33}
    assert {field.name for field in dataclasses.fields(PretrainRecipe)} == other_recipe.keys() | {"text"}
    assert {field.name for field in dataclasses.fields(ModelSize)} == other_size.keys()
    folders = [pretrained_folder(tmp_path, SIZE, RECIPE, CORPUS), pretrained_folder(tmp_path, SIZE, RECIPE, b"other")]
    for name, value in other_recipe.items():
        folders.append(pretrained_folder(tmp_path, SIZE, dataclasses.replace(RECIPE, **{name: value}), CORPUS))
    for name, value in other_size.items():
        folders.append(pretrained_folder(tmp_path, dataclasses.replace(SIZE, **{name: value}), RECIPE, CORPUS))
    assert len(set(folders)) == len(folders) == 12
    assert folders[0].name == "gpt2-1x32-f1d81f725b32"  # results directories hold such names
    # where the text lies does not matter, its bytes do
    moved = dataclasses.replace(RECIPE, text=(Path("elsewhere.txt"),))
    assert pretrained_folder(tmp_path, SIZE, moved, CORPUS) == folders[0]


def test_weights_are_pretrained_once_and_quietly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_bytes(CORPUS)
    recipe = "{text: [text.txt], num_steps: 2, batch_size: 2, num_tokens: 12}"
    size = "{layers: 1, heads: 2, width: 16, positions: 12}"
    path = write_study(tmp_path, models=f"{{tiny: {{size: {size}, pretrained: {{pretrain: {recipe}}}}}}}")
    study, results = load_study(path), Results(tmp_path / "results")
    root = results.pretrained
    before = find_backbones(study, root)["tiny"]
    assert (before.here, is_unknown(before.checksum)) == (False, True)

    said: list[str] = []
    made = ensure_backbones(study, root, results.pretraining_progress, CPU, said.append)["tiny"]
    assert said[0].startswith("pretraining tiny: byte-level GPT-2 of 1 layers x width 16, trained for 2 steps")
    assert said[0].endswith("on text.txt")
    assert "bits per held-out byte" in said[-1]
    (folder,) = root.iterdir()
    assert (made.here, made.checksum) == (True, weights_checksum(folder))
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""

    said.clear()
    assert ensure_backbones(study, root, results.pretraining_progress, CPU, said.append)["tiny"] == made
    assert said == []
    (tmp_path / "text.txt").unlink()
    assert find_backbones(study, root)["tiny"].missing_text == str(tmp_path / "text.txt")
    with pytest.raises(UserError, match=r"cannot read the text to pretrain on: .*text\.txt: No such file.*Put a text"):
        ensure_backbones(study, root, results.pretraining_progress, CPU, said.append)


def test_text_in_the_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A study names it without saying where that directory is, or whether the text is there."""
    recipe = "{text: [DATA/text/books.txt], num_steps: 2, batch_size: 2, num_tokens: 12}"
    size = "{layers: 1, heads: 2, width: 16, positions: 12}"
    path = write_study(tmp_path, models=f"{{tiny: {{size: {size}, pretrained: {{pretrain: {recipe}}}}}}}")
    study, data_dir = load_study(path), tmp_path / "data"
    copy = tmp_path / "elsewhere" / "tiny.yaml"
    copy.parent.mkdir()
    copy.write_text(study_to_yaml(study))
    assert load_study(copy) == study

    command = ["plan", str(path), "--results", str(tmp_path / "results"), "--data-dir", str(data_dir)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "on books.txt (their text is missing)" in printed
    assert f"no file {data_dir}/text/books.txt, which `run` needs. Put a text file there" in printed
    assert main(["pretrain", *command[1:]]) == 2
    assert f"cannot read the text to pretrain on: {data_dir}/text/books.txt" in capsys.readouterr().err

    (data_dir / "text").mkdir(parents=True)
    (data_dir / "text" / "books.txt").write_bytes(CORPUS)
    assert main(["pretrain", *command[1:]]) == 0
    backbone = find_backbones(study, tmp_path / "results" / "pretrained", data_dir)["tiny"]
    assert (backbone.here, backbone.missing_text) == (True, None)
    named = PretrainRecipe(num_steps=2, batch_size=2, num_tokens=12)
    assert backbone.source == WeightsSource(  # the text's bytes name it, not where they are
        folder=str(pretrained_folder(tmp_path / "results" / "pretrained", TINY, named, CORPUS))
    )


def test_a_text_that_is_too_short_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """41 bytes hold out 3, 40 bytes 2: a sequence of 2 tokens needs the token after it, too."""
    text = tmp_path / "short.txt"
    recipe = "{pretrain: {text: [short.txt], num_tokens: 2, num_steps: 1}}"
    models = f"{{tiny: {{size: {{layers: 1, heads: 2, width: 16, positions: 12}}, pretrained: {recipe}}}}}"
    for length in (0, 40):
        text.write_bytes(b"x" * length)
        study = load_study(write_study(tmp_path, models=models))
        with pytest.raises(UserError, match=f"short.txt. has {length} bytes, want at least 41: 5% is held out"):
            find_backbones(study, tmp_path)
    text.write_bytes(b"x" * 41)
    assert is_unknown(find_backbones(study, tmp_path)["tiny"].checksum)
    facts = pretrain(TINY, study.models["tiny"].pretrained.pretrain, b"x" * 41, tmp_path / "w", CPU, lambda *_: None)  # type: ignore[union-attr]
    assert facts["text_bytes"] == 41


def test_a_text_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="it is no plain file"):
        read_corpus(PretrainRecipe(text=(Path("/dev/zero"),)), tmp_path)
    monkeypatch.setattr("lr_sweep.trainables.pretraining.recipe.MAX_TEXT_BYTES", 5)
    for name, content in (("a", b"123"), ("b", b"456")):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(OSError, match="it has more than 2 bytes"):
        read_corpus(PretrainRecipe(text=(tmp_path / "a", tmp_path / "b")), tmp_path)


def test_random_variants_want_no_weights(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, variants=("unfrozen-random",)))
    (tmp_path / "weights" / "model.safetensors").unlink()
    assert find_backbones(study, tmp_path) == {}


def test_a_folder_without_weights_is_reported(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path))
    (tmp_path / "weights" / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"no pretrained weights at .*weights: wanted a folder with model\.safetens"):
        find_backbones(study, tmp_path)


def test_other_bytes_than_wanted_are_refused(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "weights")
    right = WeightsSource(folder=str(folder), sha256=weights_checksum(folder))
    assert find_weights(right, download=False) == folder
    with pytest.raises(WeightsError, match=r"has sha256 [0-9a-f]{64}, wanted 0000"):
        find_weights(dataclasses.replace(right, sha256="0" * 64), download=False)
    write_weights(folder, dataclasses.replace(SIZE, width=16))  # a file that changes is read again
    with pytest.raises(WeightsError, match="has sha256"):
        find_weights(right, download=False)


def test_weights_of_another_size_are_reported_before_anything_starts(tmp_path: Path) -> None:
    write_weights(tmp_path / "weights", dataclasses.replace(TINY, width=32, heads=4))
    study = load_study(write_study(tmp_path))
    with pytest.raises(WeightsError) as caught:
        find_backbones(study, tmp_path)
    *fields, tensors = str(caught.value).splitlines()[1:-1]
    assert fields == [
        "  config.json: n_head: got 4, want 2: the study's model has heads: 2",
        "  config.json: n_embd: got 32, want 16: the study's model has width: 16",
    ]
    assert tensors.startswith("  model.safetensors: wpe.weight has shape (12, 32), want (12, 16), h.0.ln_1.weight has")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.safetensors.index.json", "they are in several files (model.safetensors.index.json lists them)"),
        ("pytorch_model.bin", "it has pytorch_model.bin, and only safetensors are read"),
    ],
)
def test_weights_in_another_form_are_reported_with_how_to_convert_them(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(WeightsError) as caught:
        find_weights(WeightsSource(folder=str(tmp_path)), download=False)
    assert message in str(caught.value)
    assert f".from_pretrained('{tmp_path}').save_pretrained('NEW', max_shard_size='1TB')" in str(caught.value)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.fixture
def damaged(pretrained: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A study file whose pretrained weights have a flipped bit, and their folder."""
    (tmp_path / "text.txt").write_bytes(CORPUS)
    recipe = "{text: [text.txt], num_steps: 60, batch_size: 8, num_tokens: 32, learning_rate: 1e-2}"
    size = "{layers: 1, heads: 2, width: 32, positions: 32}"
    study = write_study(tmp_path, models=f"{{tiny: {{size: {size}, pretrained: {{pretrain: {recipe}}}}}}}")
    Results(tmp_path / "results").prepare()
    folder = pretrained_folder(tmp_path / "results" / "pretrained", SIZE, RECIPE, CORPUS)
    shutil.copytree(pretrained, folder)
    assert find_backbones(load_study(study), folder.parent)["tiny"].here
    flip_a_bit(folder / "model.safetensors")
    return study, folder


def test_a_flipped_bit_is_reported_and_nothing_trains(
    damaged: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = damaged
    monkeypatch.setattr("lr_sweep.trainables.pretraining.train.pretrain", lambda *_: pytest.fail("has begun"))
    results = Results(folder.parent.parent)
    for command in ("plan", "run", "pretrain"):
        assert main([command, str(study), "--results", str(results.root)]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith(f"error: model tiny: the weights in {folder} are damaged: its weights have sha256 ")
        assert "Put an intact copy there (an archive made by `export` has one), or delete the folder" in printed
    assert not results.study("tiny").exists()


def test_a_flipped_bit_in_a_named_folder_is_reported(pretrained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(pretrained, tmp_path / "weights")
    source = WeightsSource(folder=str(folder))
    assert find_weights(source, download=False) == folder
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"If you changed the weights on purpose, delete pretraining\.json there"):
        find_weights(source, download=False)
    (folder / "pretraining.json").unlink()
    assert find_weights(source, download=False) == folder


def test_a_worker_with_other_weights_trains_nothing(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "weights")
    source = WeightsSource(folder=str(folder))
    run = dataclasses.replace(run_of("frozen-pretrained"), weights_checksum=weights_checksum(folder))
    assert pretrained_tensors(run, source, None)
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"have sha256 [0-9a-f]{64}, the run was planned with"):
        pretrained_tensors(run, source, None)


def test_damaged_weights_are_reported(tmp_path: Path) -> None:
    path = write_weights(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(WeightsError, match=r"model\.safetensors cannot be read as safetensors"):
        load_weights(tmp_path)
