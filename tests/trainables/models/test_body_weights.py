"""Weights of the families that are made of the transformers library's modules: which are taken, and which refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, LongformerConfig, T5Config, ViTConfig

from lr_sweep.tests.support.servers.weights_hub import MINE, hub  # noqa: F401 (a fixture)
from lr_sweep.tests.support.small_bodies import LIBRARY, SIZES, library_model, new_body, saved
from lr_sweep.tests.support.small_runs import real_valued_task, run_of, same_bits
from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.models.classifier import build_classifier, put_weights
from lr_sweep.trainables.models.family import parameters_of
from lr_sweep.trainables.models.published import MODELS
from lr_sweep.trainables.pretraining.weights import WeightsError, check_weights_fit, find_weights, load_weights

CONFIGS: dict[str, Any] = {"bert": BertConfig, "t5": T5Config, "longformer": LongformerConfig, "vit": ViTConfig}
BERT_LIKE = {"hidden_act": "gelu", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
PUBLISHED: dict[str, dict[str, Any]] = {
    "bert-base-uncased": BERT_LIKE
    | {"model_type": "bert", "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512}
    | {"architectures": ["BertForMaskedLM"], "position_embedding_type": "absolute", "type_vocab_size": 2},
    "t5-base": {"model_type": "t5", "d_ff": 3072, "d_kv": 64, "d_model": 768, "num_heads": 12, "num_layers": 12}
    | {"layer_norm_epsilon": 1e-6, "relative_attention_num_buckets": 32, "dropout_rate": 0.1, "n_positions": 512},
    "longformer-base-4096": BERT_LIKE
    | {"model_type": "longformer", "intermediate_size": 3072, "layer_norm_eps": 1e-5, "attention_window": [512] * 12}
    | {"max_position_embeddings": 4098, "pad_token_id": 1, "type_vocab_size": 1, "attention_mode": "longformer"},
    "vit-base-patch16-224-in21k": BERT_LIKE
    | {"model_type": "vit", "intermediate_size": 3072, "layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16},
}
"""What `config.json` of the known models says, as far as it matters."""
WITHOUT_EFFECT = {
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout_rate"),  # dropout is `Protocol.dropout`
    *("initializer_range", "initializer_factor", "classifier_dropout"),  # of weights before training; of a head
    *("vocab_size", "type_vocab_size", "tie_word_embeddings"),  # no word table, one token type
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"),
    *("use_cache", "is_encoder_decoder", "num_decoder_layers", "is_decoder", "add_cross_attention"),  # of decoders
    *("image_size", "patch_size", "num_channels", "encoder_stride", "pooler_output_size", "pooler_act"),
    "onnx_export",  # the same function
    *("architectures", "id2label", "label2id", "problem_type", "dtype", "transformers_version"),
    *("output_hidden_states", "return_dict", "chunk_size_feed_forward"),
}
"""Fields of the library that change no hidden state of a body that gets embeddings."""
CHANGES: dict[str, list[tuple[str, Any]]] = {
    "bert": [
        *(("hidden_act", "gelu_new"), ("layer_norm_eps", 1e-5), ("position_embedding_type", "relative_key")),
        *(("is_decoder", True), ("max_position_embeddings", 13), ("intermediate_size", 32), ("hidden_size", 32)),
        *(("num_attention_heads", 4), ("num_hidden_layers", 3), ("model_type", "roberta")),
    ],
    "t5": [
        *(("feed_forward_proj", "gated-gelu"), ("d_kv", 16), ("d_ff", 32), ("relative_attention_num_buckets", 32)),
        *(("relative_attention_max_distance", 128), ("layer_norm_epsilon", 1e-5), ("model_type", "mt5")),
    ],
    "longformer": [
        *(("attention_window", 8), ("attention_window", [4, 8]), ("max_position_embeddings", 12)),
        *(("layer_norm_eps", 1e-12), ("pad_token_id", 0), ("hidden_act", "relu")),
    ],
    "vit": [("layer_norm_eps", 1e-6), ("qkv_bias", False), ("hidden_act", "gelu_new"), ("num_attention_heads", 4)],
}
CASES = [(family, field, value) for family, changes in CHANGES.items() for field, value in changes]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the library saves of each family's own model."""
    root = tmp_path_factory.mktemp("saved")
    return {family: saved(library_model(SIZES[family]), root / family) for family in LIBRARY}


def copied(folder: Path, into: Path, **changes: Any) -> Path:
    into.mkdir(exist_ok=True)
    (into / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changes
    (into / "config.json").write_text(json.dumps(config))
    return into


@pytest.mark.parametrize("family", LIBRARY)
def test_what_the_library_saves_is_accepted(family: str, folders: dict[str, Path]) -> None:
    """That it is loaded, hidden states show: test_bodies.py."""
    check_weights_fit(folders[family], SIZES[family])


@pytest.mark.parametrize(("family", "field", "value"), CASES, ids=str)
def test_what_is_not_computed_is_refused(
    family: str, field: str, value: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(WeightsError) as caught:
        check_weights_fit(copied(folders[family], tmp_path, **{field: value}), SIZES[family])
    lines = str(caught.value).splitlines()
    assert lines[1].startswith(f"  config.json: {field}: got ")
    assert lines[2:] == [f"Correct the model's size in the study, or name weights of a plain {family} of this size."]


@pytest.mark.parametrize("family", LIBRARY)
def test_every_field_of_the_library_is_classified(family: str) -> None:
    """One that a new version adds has to be put in a table, once it is known whether it changes hidden states."""
    module: Any = load_family(family)
    known = {*module.FIELDS.sizes, *module.FIELDS.computed, *WITHOUT_EFFECT}
    fields = {field.name: field.default for field in dataclasses.fields(CONFIGS[family])}
    assert fields.keys() - known == set()
    for name, values in module.FIELDS.computed.items():
        assert fields.get(name, values[0]) == values[0]  # what a missing field means
    for name, value in module.FIELDS.defaults.items():
        assert fields[name] == value


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_configurations_are_accepted(name: str) -> None:
    known = MODELS[name]
    for size in (known.size, None):
        assert list(load_family(known.family).config_mistakes(PUBLISHED[name], size)) == []


def test_the_first_bert_has_other_names_for_norms_and_a_prefix(folders: dict[str, Path], tmp_path: Path) -> None:
    def older(name: str) -> str:
        norm = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return f"bert.{norm}"

    folder = copied(folders["bert"], tmp_path)
    tensors = load_file(folder / "model.safetensors")
    heads = {"cls.predictions.bias": torch.zeros(7), "bert.pooler.dense.bias": torch.zeros(16)}
    renamed = {older(name): tensor for name, tensor in tensors.items()} | heads
    save_file(renamed | {"bert.embeddings.position_ids": torch.arange(12)[None]}, folder / "model.safetensors")
    check_weights_fit(folder, SIZES["bert"])
    got, wanted = (load_weights(each, "bert") for each in (folder, folders["bert"]))
    assert same_bits(got, wanted)
    assert not any("word" in name or "pooler" in name for name in got)


@pytest.mark.parametrize("family", LIBRARY)
def test_tensors_that_do_not_make_the_body(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders[family], tmp_path)
    tensors = load_file(folder / "model.safetensors")
    body = load_family(family).body_tensors(tensors)
    prefix, table = "encoder." if family == "t5" else "", "embeddings.position_embeddings.weight"
    first, second = sorted(name for name in body if body[name].dim() == 1)[-2:]
    changed = body | {second: torch.ones(3)}
    others = {prefix + name: tensor.clone() for name, tensor in changed.items() if name != first}
    if family == "longformer":
        others[table] = torch.cat([torch.zeros(2, 16), body[table]])  # as files have it
    save_file(others, folder / "model.safetensors")
    with pytest.raises(WeightsError) as caught:
        check_weights_fit(folder, SIZES[family])
    assert f" lacks {first}" in str(caught.value)
    assert f"{second} has shape (3,), want" in str(caught.value)


@pytest.mark.parametrize("family", LIBRARY)
@pytest.mark.parametrize("initialisation", ["pretrained", "statistics"])
def test_a_run_starts_from_them(family: str, initialisation: str, folders: dict[str, Path]) -> None:
    weights = load_weights(folders[family], family)
    run = run_of("frozen-pretrained", size=SIZES[family], initialisation=initialisation)
    body = build_classifier(run, real_valued_task().shape, weights).body
    for name, tensor in weights.items():
        as_they_are = initialisation == "pretrained" or tensor.std() == 0
        assert torch.equal(body.get_parameter(name)[: len(tensor)], tensor) == as_they_are
    assert all(p.requires_grad for p in parameters_of(body.parts()["layer_norms"]))


@pytest.mark.parametrize("family", LIBRARY)
def test_a_shallower_body_has_the_first_layers(family: str, folders: dict[str, Path]) -> None:
    body = new_body(dataclasses.replace(SIZES[family], layers=1))
    weights = load_weights(folders[family], family)
    put_weights(body, weights)
    for name, parameter in body.named_parameters():
        assert name in body.always_new or torch.equal(parameter, weights[name]), name


def test_a_hub_s_config_is_checked_by_family_before_its_weights_are_fetched(
    hub: tuple[Path, list[str]],  # noqa: F811
    folders: dict[str, Path],
) -> None:
    served, sent = hub
    copied(folders["bert"], served)
    source = dataclasses.replace(MINE, family="bert")
    with pytest.raises(WeightsError, match=r'model_type: got "bert", want \'vit\''):
        find_weights(dataclasses.replace(MINE, family="vit"), download=True)
    assert sent[-1] == "config.json"
    folder = find_weights(source, download=True)
    assert folder is not None
    check_weights_fit(folder, SIZES["bert"])
    assert sent[-2:] == ["config.json", "model.safetensors"]
