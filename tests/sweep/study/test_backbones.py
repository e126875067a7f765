"""Weights that a study names or has pretrained: found, made once, and what is said when they are missing or damaged."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file
from lr_sweep.sweep.inspection.gc import find_garbage
from lr_sweep.sweep.inspection.status import status_text
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import (
    Reporter,
    ensure_backbones,
    find_backbones,
    is_unknown,
    pretrain_model,
    to_pretrain,
)
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.model import PretrainedHere
from lr_sweep.tests.support.small_bodies import SIZES
from lr_sweep.tests.support.small_runs import CPU, run_of
from lr_sweep.tests.support.study_example import mistakes_in
from lr_sweep.tests.support.tiny_study import (
    SIZE,
    in_process,
    refused,
    succeeds,
    swept,
    write_config,
    write_study,
    write_weights,
)
from lr_sweep.trainables.pretraining.loop import pretrain
from lr_sweep.trainables.pretraining.recipe import PretrainRecipe, pretraining_checkpoints
from lr_sweep.trainables.pretraining.weights import WeightsError, WeightsSource, find_weights, weights_checksum
from lr_sweep.trainables.worker.session import pretrained_tensors

CORPUS = b"the quick brown fox jumps over the lazy dog; " * 100
RECIPE = PretrainRecipe(num_steps=2, batch_size=2, num_tokens=12)
SIZE_TEXT = "{layers: 1, heads: 2, width: 16, positions: 12}"
ON_TASK = (
    "{task: bit-memory, num_steps: 7, batch_size: 4, num_bits: 40, bits_per_token: 20, num_validation: 20, "
    "num_test: 50, num_train_evaluated: 20}"
)


def recipe_study(
    folder: Path, recipe: str = "{text: [text.txt], num_steps: 2, batch_size: 2, num_tokens: 12}", size: str = SIZE_TEXT
) -> Path:
    """Write a study whose model is pretrained by a recipe, and the text beside it."""
    (folder / "text.txt").write_bytes(CORPUS)
    return write_study(folder, models=f"{{tiny: {{size: {size}, pretrained: {{pretrain: {recipe}}}}}}}")


def test_weights_are_pretrained_once_and_quietly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study, results = load_study(recipe_study(tmp_path)), Results(tmp_path / "results")
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
    with pytest.raises(UserError, match=r"cannot read the text to pretrain on: .*text\.txt: No such file.*Put a text"):
        ensure_backbones(study, root, results.pretraining_progress, CPU, said.append)


def test_a_study_pretrains_on_a_task_once(tmp_path: Path) -> None:
    path = recipe_study(tmp_path, ON_TASK)
    study, results = load_study(path), Results(tmp_path / "results")
    source = study.bodies["tiny"].pretrained
    assert isinstance(source, PretrainedHere)
    assert is_unknown(find_backbones(study, results.pretrained)["tiny"].checksum)
    plan = succeeds("plan", path, "--results", results.root)
    what = "GPT-2 of 1 layers x width 16, all of it trained for 7 steps (28 examples) on bit-memory"
    assert f"tiny: {what} (not here yet; `run` gets or trains them first)" in plan
    code, printed = in_process("data", path, "--pretrain", "--results", results.root)
    first, last, folder = printed.splitlines()
    assert (code, first) == (0, f"pretraining tiny: {what}")
    assert last.endswith("% of test answers right")
    assert folder == str(source.pretrain.folder(results.pretrained, SIZE, b""))
    here = find_backbones(study, results.pretrained)["tiny"]
    assert (here.here, here.checksum) == (True, hash_file(Path(folder) / "model.safetensors"))
    assert "already there" in in_process("data", path, "--pretrain", "--results", results.root)[1]
    succeeds("verify", "--results", results.root)


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
    assert message in "\n".join(mistakes_in(recipe_study(tmp_path, recipe)))


def test_text_in_the_data_directory(tmp_path: Path) -> None:
    """A study names it without saying where that directory is, or whether the text is there."""
    path = recipe_study(tmp_path, "{text: [DATA/text/books.txt], num_steps: 2, batch_size: 2, num_tokens: 12}")
    study, data_dir = load_study(path), tmp_path / "data"
    arguments = (path, "--results", tmp_path / "results", "--data-dir", data_dir)
    for command in (("plan",), ("data", "--pretrain")):
        printed = refused(*command, *arguments)
        assert f"cannot read the text to pretrain on: {data_dir}/text/books.txt" in printed
    (data_dir / "text").mkdir(parents=True)
    (data_dir / "text" / "books.txt").write_bytes(CORPUS)
    succeeds("data", "--pretrain", *arguments)
    backbone = find_backbones(study, tmp_path / "results" / "pretrained", data_dir)["tiny"]
    assert backbone.here
    assert backbone.source == WeightsSource(  # the text's bytes name it, not where they are
        folder=str(RECIPE.folder(tmp_path / "results" / "pretrained", SIZE, CORPUS))
    )


def test_a_text_that_is_too_short_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """41 bytes hold out 3, 40 bytes 2: a sequence of 2 tokens needs the token after it, too."""
    study = load_study(recipe_study(tmp_path, "{text: [text.txt], num_tokens: 2, num_steps: 1}"))
    for length in (0, 40):
        (tmp_path / "text.txt").write_bytes(b"x" * length)
        with pytest.raises(UserError, match=f"text.txt. has {length} bytes, want at least 41: 5% is held out"):
            find_backbones(study, tmp_path)
    (tmp_path / "text.txt").write_bytes(b"x" * 41)
    assert is_unknown(find_backbones(study, tmp_path)["tiny"].checksum)
    facts = pretrain(SIZE, study.bodies["tiny"].pretrained.pretrain, b"x" * 41, tmp_path / "w", CPU, lambda *_: None)  # type: ignore[union-attr]
    assert facts["text_bytes"] == 41


def test_plan_and_run_name_every_mistake_of_every_model_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_weights(tmp_path / name)
    write_config(tmp_path / "a", scale_attn_weights=False, layer_norm_epsilon=1e-6)
    (tmp_path / "b" / "config.json").unlink()
    kinds = {"a": ("gpt2", SIZE, "a"), "b": ("gpt2", SIZE, "b"), "lstm": ("lstm", SIZES["lstm"], "a")}
    models = {
        name: {"family": family, "size": vars(size), "pretrained": {"folder": folder}}
        for name, (family, size, folder) in kinds.items()
    }
    study = write_study(tmp_path, models=json.dumps(models))
    with pytest.raises(WeightsError) as caught:
        find_backbones(load_study(study), tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[:4] == [
        f"model a: the weights in {tmp_path / 'a'} are not what the study's model computes:",
        "  config.json: layer_norm_epsilon: got 1e-06, want 1e-05",
        "  config.json: scale_attn_weights: got false, want true",
        "Correct the model's size in the study, or name weights of a plain gpt2 of this size.",
    ]
    missing, of_lstm, tensors = [line for line in lines[4:] if line.startswith("  ")]
    assert missing.startswith("  config.json cannot be read (")
    assert of_lstm == "  config.json: got weights of a pretrained model, want none: an LSTM starts at random"
    assert tensors.startswith("  model.safetensors lacks ")
    for command in ("plan", "run"):
        assert refused(command, study, "--results", tmp_path / "results") == f"error: {caught.value}\n"


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_is_reported_and_nothing_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, results = recipe_study(tmp_path), Results(tmp_path / "results")
    results.prepare()
    folder = RECIPE.folder(results.pretrained, SIZE, CORPUS)
    pretrain(SIZE, RECIPE, CORPUS, folder, CPU, lambda *_: None)
    assert find_backbones(load_study(study), folder.parent)["tiny"].here
    copy = shutil.copytree(folder, tmp_path / "copy")
    for weights in (folder, copy):
        flip_a_bit(weights / "model.safetensors")
    monkeypatch.setattr("lr_sweep.trainables.pretraining.loop.pretrain", lambda *_: pytest.fail("has begun"))
    for command in (("plan",), ("run",), ("data", "--pretrain")):
        printed = refused(*command, study, "--results", results.root)
        assert printed.startswith(f"error: model tiny: the weights in {folder} are damaged: its weights have sha256 ")
        assert "Put an intact copy there, or delete the folder" in printed
    assert not results.study("tiny").exists()
    source = WeightsSource(folder=str(copy))  # of a folder that a study names
    with pytest.raises(WeightsError, match=r"If you changed the weights on purpose, delete pretraining\.json there"):
        find_weights(source, download=False)
    (copy / "pretraining.json").unlink()
    assert find_weights(source, download=False) == copy


def test_run_refuses_weights_with_nan_before_ray_starts(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    file = tmp_path / "weights" / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"ln_f.bias": tensors["ln_f.bias"] * math.nan}, file)
    assert refused("run", study, "--results", tmp_path / "results").startswith(
        f"error: {file} has NaN or infinity in ln_f.bias."
    )


def test_a_worker_with_other_weights_trains_nothing(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "weights")
    source = WeightsSource(folder=str(folder))
    run = dataclasses.replace(run_of("frozen-pretrained"), weights_checksum=weights_checksum(folder))
    assert pretrained_tensors(run, source, None)
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"have sha256 [0-9a-f]{64}, the run was planned with"):
        pretrained_tensors(run, source, None)


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
    assert written.items() >= {"model": "tiny", "step": 60, "num_steps": 100, "time_left_s": 80.0}.items()


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
    pretrain_model("tiny", study.bodies["tiny"], results.pretrained, results.pretraining_progress, CPU, seen.append)
    assert not results.pretraining_progress.exists()


def test_checkpoints_of_a_pretraining_are_kept_until_it_ends(tmp_path: Path) -> None:
    study, results = load_study(recipe_study(tmp_path)), Results(tmp_path / "results")
    results.prepare()
    backbone = find_backbones(study, results.pretrained)["tiny"]
    assert to_pretrain(study, {"tiny": backbone}) == [SIZE]
    assert backbone.source
    assert backbone.source.folder
    pretrained = Path(backbone.source.folder)
    folder = pretraining_checkpoints(pretrained)
    folder.mkdir()
    (folder / "step-000000001-ab.safetensors").write_bytes(b"1")
    assert not find_garbage(results, ["leftovers"]).files
    pretrained.mkdir()
    (pretrained / "model.safetensors").write_bytes(b"")
    assert find_garbage(results, ["leftovers"]).files["leftovers"] == [folder]


@pytest.mark.slow
def test_pretrain_and_run_make_the_same_weights_with_one_two_and_four_threads(tmp_path: Path) -> None:
    """`ray up` and Slurm set OMP_NUM_THREADS; the ids of runs follow the weights."""
    size = "{layers: 2, heads: 4, width: 128, positions: 128}"  # large enough for threads to divide the sums
    models = f"{{small: {{size: {size}, pretrained: {{pretrain: {{num_steps: 2, batch_size: 16, num_tokens: 128}}}}}}}}"
    study = write_study(tmp_path, models=models, num_steps=10)
    made = set()
    for number, *command in (("1", "data", "--pretrain"), ("2", "run"), ("4", "data", "--pretrain")):
        results = tmp_path / number
        swept(*command, study, "--results", results, env={"OMP_NUM_THREADS": number})
        (folder,) = (path for path in (results / "pretrained").iterdir() if path.is_dir())
        made.add(weights_checksum(folder))
    assert len(made) == 1
