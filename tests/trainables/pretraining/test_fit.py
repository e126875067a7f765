"""Which `config.json` and which tensors of a GPT-2 are accepted, tried with the library's own model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GPT2Config, GPT2Model
from transformers.activations import ACT2FN

from lr_sweep.tests.support.small_runs import SIZE as SMALL
from lr_sweep.tests.support.small_runs import random_weights
from lr_sweep.tests.support.tiny_study import SIZE, write_config
from lr_sweep.trainables.models import published
from lr_sweep.trainables.models.gpt2 import GPT2
from lr_sweep.trainables.pretraining import fit
from lr_sweep.trainables.pretraining.fit import body_shapes, tensor_mistakes
from lr_sweep.trainables.pretraining.weights import load_weights
from lr_sweep.trainables.run import ModelSize

TOLERANCE = 1e-5
SIZES, COMPUTED = published.GPT2.sizes, published.GPT2.computed
LIBRARY = {field.name: field.default for field in dataclasses.fields(GPT2Config)}
DEEP = ModelSize(layers=3, heads=2, width=16, positions=12)
CHANGING: list[tuple[str, Any]] = [
    *(("activation_function", name) for name in ("relu", "gelu", "quick_gelu", "silu")),
    *(("layer_norm_epsilon", 1e-3), ("layer_norm_epsilon", 1e-6), ("n_head", 4)),
    *(("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True), ("is_causal", False)),
]
"""Each changes the function and leaves the tensors as they are."""
HARMLESS: list[dict[str, Any]] = [
    {},
    *({"activation_function": name} for name in COMPUTED["activation_function"] if name in ACT2FN),
    {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5},  # dropout is `Protocol.dropout`
    {"reorder_and_upcast_attn": True},  # the same function in another order, for half precision
    {"add_cross_attention": True},  # more tensors, which act on an encoder's output alone
    {"initializer_range": 0.5, "chunk_size_feed_forward": 4, "use_cache": False, "is_encoder_decoder": True},
    # There is no token table.
    {"vocab_size": 11, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3},
    # Heads; ours is the study's output layer.
    {"summary_type": "mean", "summary_use_proj": False, "summary_activation": "tanh", "summary_first_dropout": 0.5},
    {"summary_proj_to_labels": False, "architectures": ["GPT2LMHeadModel"], "problem_type": "regression"},
    {"id2label": {"0": "a"}, "label2id": {"a": 0}, "dtype": "float32", "transformers_version": "4.0.0"},
    {"output_hidden_states": True, "return_dict": True},
    {"n_inner": 4 * DEEP.width},  # shapes of tensors
    {"n_ctx": 12, "task_specific_params": {"text-generation": {"do_sample": True}}},  # in the published ones
]
"""Fields that change no hidden state of a body that gets embeddings and is trained in float32."""


def config_mistakes(folder: Path, size: ModelSize) -> list[str]:
    return fit.config_mistakes(folder, "gpt2", size)


def test_every_field_of_the_library_is_classified() -> None:
    """One that a new version adds has to be put in a table, once it is known whether it changes hidden states."""
    harmless = {name for changes in HARMLESS for name in changes}
    assert LIBRARY.keys() - {*SIZES, *COMPUTED, *harmless} == set()
    assert SIZES.keys() - LIBRARY.keys() == set()
    assert COMPUTED.keys() - LIBRARY.keys() == {"is_causal"}


def test_a_field_that_is_missing_means_what_the_library_takes_it_for() -> None:
    assert {name: values[0] for name, values in COMPUTED.items() if name in LIBRARY} == {
        name: LIBRARY[name] for name in COMPUTED if name in LIBRARY
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of large random weights, for which no detail of the function is small."""
    folder = tmp_path_factory.mktemp("library")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = GPT2Config(n_layer=3, n_head=2, n_embd=16, n_positions=12, vocab_size=7, initializer_range=0.6)
        model = GPT2Model(config)
    save_file(dict(model.state_dict()), folder / "model.safetensors")
    config.to_json_file(folder / "config.json")
    return folder


def changed(saved: Path, folder: Path, changes: dict[str, Any]) -> Path:
    (folder / "model.safetensors").hardlink_to(saved / "model.safetensors")
    config = json.loads((saved / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def difference(folder: Path) -> float:
    """Largest distance between the library's hidden states and ours, of the weights in a folder."""
    ours = GPT2(DEEP)
    ours.load_state_dict(load_weights(folder))
    embeddings = torch.randn(2, 9, DEEP.width, generator=torch.Generator().manual_seed(1))  # (B, T, D)
    theirs = GPT2Model(GPT2Config.from_dict(json.loads((folder / "config.json").read_text()))).eval()
    lacking = theirs.load_state_dict(load_weights(folder), strict=False).missing_keys
    assert all(name == "wte.weight" or ".crossattention." in name or ".ln_cross_attn." in name for name in lacking)
    with torch.no_grad():
        got = theirs(inputs_embeds=embeddings, return_dict=True).last_hidden_state  # (B, T, D)
        return (got - ours(embeddings)).abs().max().item()


@pytest.mark.parametrize(("name", "value"), CHANGING)
def test_what_is_refused_changes_hidden_states(saved: Path, tmp_path: Path, name: str, value: Any) -> None:
    folder = changed(saved, tmp_path, {name: value})
    (mistake,) = config_mistakes(folder, DEEP)
    assert mistake.startswith(f"config.json: {name}: got ")
    assert difference(folder) > TOLERANCE


@pytest.mark.parametrize("changes", HARMLESS, ids=str)
def test_what_is_accepted_computes_the_same(saved: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = changed(saved, tmp_path, changes)
    assert config_mistakes(folder, DEEP) == []
    assert difference(folder) < TOLERANCE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "config.json cannot be read ("),
        ("{", "config.json cannot be read ("),
        ("[" * 100_000, "config.json cannot be read ("),
        ("\ud800", "config.json cannot be read ("),
        ("[1]", "config.json: got [1], want an object with model_type and so on"),
        ("{}", "config.json: model_type: it is missing, want 'gpt2'"),
        ('{"model_type": "gpt_neo"}', "config.json: model_type: got \"gpt_neo\", want 'gpt2': only that family"),
    ],
)
def test_a_config_that_is_none_of_ours(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    (mistake,) = config_mistakes(tmp_path, SIZE)
    assert mistake.startswith(message)


def test_sizes_have_to_agree(tmp_path: Path) -> None:
    write_config(tmp_path, n_head=None, n_layer=5)
    assert config_mistakes(tmp_path, SIZE) == [
        "config.json: n_layer: got 5, want 1: the study's model has layers: 1",
        "config.json: n_head: it is missing, want 2: the study's model has heads: 2",
    ]


Tensors = dict[str, Tensor]


@pytest.mark.parametrize("size", [SMALL, ModelSize(layers=12, heads=12, width=768)])
def test_shapes_are_those_of_the_body(size: ModelSize) -> None:
    with torch.device("meta"):
        body = GPT2(size)
    assert body_shapes(size) == {name: tuple(tensor.shape) for name, tensor in body.state_dict().items()}


def mistakes(folder: Path, tensors: Tensors) -> list[str]:
    save_file(tensors, folder / "model.safetensors")
    return tensor_mistakes(folder, SMALL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_of_the_body_are_accepted_in_every_type(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {f"transformer.{name}": tensor.to(dtype) for name, tensor in random_weights().items()}
    tensors["lm_head.weight"] = torch.ones(3)  # not of the body
    tensors["transformer.h.0.attn.bias"] = torch.ones(2, dtype=torch.bool)  # a mask, as old checkpoints have it
    assert mistakes(tmp_path, tensors) == []


def without(prefix: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)}


def narrow(tensors: Tensors) -> Tensors:
    """A feedforward of twice the width, as `n_inner` makes it."""
    return tensors | {"h.1.mlp.c_fc.weight": torch.ones(16, 32), "h.1.mlp.c_proj.weight": torch.ones(32, 16)}


LAST_ATTENTION = "h.1.attn.c_attn.weight, h.1.attn.c_attn.bias"
WIDE = ": h.1.mlp.c_fc.weight has shape (16, 32), want (16, 64)"


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (without("h.1.attn"), [f"lacks {LAST_ATTENTION}, h.1.attn.c_proj.weight, h.1.attn.c_proj.bias"]),
        (without("h.1."), [f"lacks h.1.ln_1.weight, h.1.ln_1.bias, {LAST_ATTENTION},"]),
        (without("wpe"), ["lacks wpe.weight"]),
        (lambda t: t | {"wpe.weight": torch.ones(3)}, [": wpe.weight has shape (3,), want ("]),
        (narrow, [f"{WIDE}, h.1.mlp.c_proj.weight has shape (32, 16)"]),
        (lambda t: narrow(without("ln_f")(t)), ["lacks ln_f.weight, ln_f.bias", WIDE]),
    ],
)
def test_tensors_that_do_not_make_the_body(
    tmp_path: Path, change: Callable[[Tensors], Tensors], messages: list[str]
) -> None:
    found = mistakes(tmp_path, change(random_weights()))
    assert len(found) == len(messages)
    for mistake, start in zip(found, messages, strict=True):
        assert mistake.startswith(f"model.safetensors{'' if start[0] == ':' else ' '}{start}")


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\xff" * 100, None])
def test_files_that_are_no_safetensors(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    (mistake,) = tensor_mistakes(tmp_path, SMALL)
    assert mistake.startswith("model.safetensors cannot be read as safetensors: ")
