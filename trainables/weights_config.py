"""What `config.json` must say of pretrained weights, so that `trainables.gpt2` computes what they were made for.

Every field of transformers' `GPT2Config` is in one of the tables (a test walks them): its sizes, the fields that change
hidden states together with the values that this program computes, and the fields that change nothing here. Fields that
are in no table are ones that transformers ignores, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainables.run import ModelSize

FAMILY = "gpt2"
"""Of `model_type`. Others have tensors of the same names and compute something else."""

SIZES = {"n_layer": "layers", "n_head": "heads", "n_embd": "width", "n_positions": "positions"}
"""Fields that must be there and agree with the study's model -> their names in `ModelSize`."""

ALIASES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
}
"""Other names that transformers reads."""

COMPUTED: dict[str, tuple[Any, ...]] = {
    "activation_function": (
        *("gelu_new", "gelu_fast", "gelu_accurate"),
        *("gelu_pytorch_tanh", "gelu_python_tanh"),
    ),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "is_causal": (True,),
    "quantization_config": (None,),
    "auto_map": (None,),
}
"""Fields that change the function -> the values that this program computes, first the one that no entry means.

The activations are one function, the tanh approximation of GELU, written in different ways. `is_causal` is no field of
`GPT2Config`, yet transformers obeys it; `auto_map` names code of the model's own.
"""
FEEDFORWARD = "n_inner"
"""Width of the feedforward; null is 4 x n_embd, the one that this program computes."""

WITHOUT_EFFECT = frozenset(
    {
        *("resid_pdrop", "embd_pdrop", "attn_pdrop"),  # dropout is `Protocol.dropout`
        "reorder_and_upcast_attn",  # the same function in another order, for half precision
        "add_cross_attention",  # more tensors, which act on an encoder's output alone
        "initializer_range",  # of weights before pretraining
        *("vocab_size", "tie_word_embeddings"),  # there is no token table
        *("bos_token_id", "eos_token_id", "pad_token_id"),
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
        *("architectures", "id2label", "label2id", "problem_type"),  # heads; ours is the study's output layer
        *("use_cache", "output_hidden_states", "return_dict", "chunk_size_feed_forward", "is_encoder_decoder"),
        *("dtype", "transformers_version"),  # tensors are converted to float32
    }
)
"""Fields that change no hidden state of a body that gets embeddings and is trained in float32."""


def config_mistakes(folder: Path, size: ModelSize | None) -> list[str]:
    """Return what keeps this program from using weights with the `config.json` of a folder, field by field.

    Args:
        folder: of a `save_pretrained` model.
        size: the study's model; None: sizes are not compared.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ["there is no config.json, which says how many heads there are and what the model computes"]
    except (OSError, ValueError, RecursionError) as error:
        return [f"config.json cannot be read ({error}): put the one there that was saved with the weights"]
    if not isinstance(config, dict):
        return [f"config.json: got {_shown(config)}, want an object with n_head, n_layer and so on"]
    if config.get("model_type") != FAMILY:
        return [f"config.json: model_type: {_got(config, 'model_type')}, want {FAMILY!r}: only that family is computed"]
    return [*_aliased(config), *_function_mistakes(config), *(_size_mistakes(config, size) if size else ())]


def _aliased(config: dict[str, Any]) -> list[str]:
    """Give aliased fields their own names; return those that are there under both, with different values."""
    given = {alias: config[alias] for alias in ALIASES if alias in config}
    return [
        f"config.json: {ALIASES[alias]}: got {_shown(config[ALIASES[alias]])}, and {_shown(value)} as {alias}, want one"
        for alias, value in given.items()
        if config.setdefault(ALIASES[alias], value) != value
    ]


def _function_mistakes(config: dict[str, Any]) -> list[str]:
    return [
        f"config.json: {name}: got {_shown(config[name])}, want {_alternatives(values)}"
        for name, values in COMPUTED.items()
        if name in config and config[name] not in values
    ]


def _size_mistakes(config: dict[str, Any], size: ModelSize) -> list[str]:
    wanted = {name: getattr(size, attribute) for name, attribute in SIZES.items()}
    mistakes = [
        f"config.json: {name}: {_got(config, name)}, want {value}: the study's model has {SIZES[name]}: {value}"
        for name, value in wanted.items()
        if config.get(name) != value
    ]
    if config.get(FEEDFORWARD) not in (None, 4 * size.width):
        mistakes.append(
            f"config.json: {FEEDFORWARD}: {_got(config, FEEDFORWARD)}, want null or {4 * size.width} (4 x n_embd)"
        )
    return mistakes


def _alternatives(values: tuple[Any, ...]) -> str:
    first, *others = map(_shown, values)
    return f"{first} (or {', '.join(others)}, which are the same)" if others else first


def _got(config: dict[str, Any], name: str) -> str:
    return f"got {_shown(config[name])}" if name in config else "it is missing"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
