"""Tiny bodies of each family, and the transformers library's own models of the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LongformerConfig,
    LongformerModel,
    T5Config,
    T5EncoderModel,
    ViTConfig,
    ViTModel,
)

from lr_sweep.trainables.models import FAMILIES, bert, load_family, longformer, lstm, t5, vit
from lr_sweep.trainables.models.family import Body
from lr_sweep.trainables.run import BodySize, ModelSize

SIZES: dict[str, BodySize] = {
    "gpt2": ModelSize(layers=2, heads=2, width=16, positions=12),
    "lstm": lstm.Size(layers=2, width=16, positions=True),
    "bert": bert.Size(layers=2, heads=2, width=16, positions=12),
    "t5": t5.Size(layers=2, heads=2, width=16, buckets=8, max_distance=10),
    "longformer": longformer.Size(layers=2, heads=2, width=16, positions=12, attention_window=4),
    "vit": vit.Size(layers=2, heads=2, width=16),
}
LIBRARY = ("bert", "t5", "longformer", "vit")
"""Families whose modules are the transformers library's."""
OTHER_SIZES: dict[str, BodySize] = {
    "bert": bert.Size(layers=3, heads=4, width=32, positions=20),
    "t5": t5.Size(layers=3, heads=4, width=32),
    "longformer": longformer.Size(layers=3, heads=4, width=32, positions=30, attention_window=6),
    "vit": vit.Size(layers=3, heads=4, width=32, layer_norm_eps=1e-6),
}

assert SIZES.keys() == FAMILIES.keys()


def library_config(size: Any, num_tokens: int = 9, dropout: float = 0.0, **changes: Any) -> Any:
    """The library's configuration of a body; without changes its weights are large, so that no detail is small."""
    bert_like: dict[str, Any] = {
        "hidden_size": size.width,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "intermediate_size": 4 * size.width,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "attn_implementation": "eager",
    }
    large = {"initializer_range": 0.5} | changes
    if isinstance(size, longformer.Size):
        positions = {"max_position_embeddings": size.positions + 2, "attention_window": size.attention_window}
        return LongformerConfig(**bert_like | positions | {"vocab_size": 7, "layer_norm_eps": 1e-5} | large)
    if isinstance(size, bert.Size):
        return BertConfig(**bert_like | {"vocab_size": 7, "max_position_embeddings": size.positions} | large)
    if isinstance(size, vit.Size):
        pixels = {"image_size": (1, num_tokens - 1), "patch_size": 1, "num_channels": 3}
        return ViTConfig(**bert_like | pixels | {"layer_norm_eps": size.layer_norm_eps} | large)
    assert isinstance(size, t5.Size)
    return T5Config(
        d_model=size.width,
        d_kv=size.width // size.heads,
        d_ff=4 * size.width,
        num_layers=size.layers,
        num_heads=size.heads,
        relative_attention_num_buckets=size.buckets,
        relative_attention_max_distance=size.max_distance,
        dropout_rate=dropout,
        attn_implementation="eager",
        **{"vocab_size": 7, "initializer_factor": 2.0} | changes,
    )


MODELS: dict[str, Callable[[Any], nn.Module]] = {
    "bert": BertModel,
    "t5": T5EncoderModel,
    "longformer": LongformerModel,
    "vit": ViTModel,
}


def library_model(size: BodySize, num_tokens: int = 9, dropout: float = 0.0, **changes: Any) -> nn.Module:
    """The library's own model of random weights, in evaluation mode; a ViT reads so many tokens, its own first."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[size.family](library_config(size, num_tokens, dropout, **changes)).eval()


def library_gpt2(size: ModelSize) -> nn.Module:
    """The library's own GPT-2 of random weights, in evaluation mode."""
    config = GPT2Config(
        n_layer=size.layers, n_head=size.heads, n_embd=size.width, n_positions=size.positions, vocab_size=7
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GPT2Model(config).eval()


def library_states(model: Any, embeddings: Tensor) -> Tensor:
    """What the library's model makes of embeddings, (B, T, D); a ViT's are in place of class token and patches."""
    if not isinstance(model, ViTModel):
        return model(inputs_embeds=embeddings).last_hidden_state
    table = model.embeddings.position_embeddings

    class Given(nn.Module):
        patch_embeddings = model.embeddings.patch_embeddings

        def forward(self, *_: Any, **__: Any) -> Tensor:
            return nn.functional.dropout(embeddings + table, model.config.hidden_dropout_prob, model.training)

    own, model.embeddings = model.embeddings, Given()
    try:
        return model(pixel_values=embeddings).last_hidden_state
    finally:
        model.embeddings = own


def saved(model: Any, folder: Path) -> Path:
    """A folder of the library's model, as the library saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    return folder


def new_body(size: BodySize, num_tokens: int = 9) -> Body:
    return load_family(size.family).build(size, num_tokens)


def embeddings_of(size: BodySize, num_tokens: int = 9, num_examples: int = 3) -> Tensor:
    """Numbers in place of embedded tokens, (B, T, D)."""
    return torch.randn(num_examples, num_tokens, size.width, generator=torch.Generator().manual_seed(1))
