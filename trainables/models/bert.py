"""BERT's encoder (Devlin et al. 2018; Lu et al. 2021, section 3.14): bidirectional, layer norms after each sum.

The layers are those of the transformers library. Its embeddings are written out, because there is no word table.
Shape legend: `B` batch, `T` tokens, `D` width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEncoder

from lr_sweep.common.limits import Dimension
from lr_sweep.trainables.run import Protocol

from .family import LibraryBody, LibrarySize, Parts, tensors_of
from .published import ConfigFields


@dataclass(frozen=True, kw_only=True)
class Size(LibrarySize):
    """A BERT; `bert-base-uncased` is 12 layers, 12 heads, width 768."""

    family: ClassVar[str] = "bert"
    positions: Dimension = 512
    """Rows of the position table. Tasks with more tokens get further rows (`Protocol.position_std`)."""


class _Embeddings(nn.Module):
    """What BERT makes of word embeddings: positions and the first token type are added, then comes a layer norm.

    The token type is a part of `positions`, as a vector of its own: rows beyond the pretrained ones need it, too.
    """

    def __init__(self, config: Any, rows: int) -> None:
        super().__init__()
        self.position_embeddings = nn.Embedding(rows, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(1, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: x.shape[1]]  # (T, D)
        placed = x + self.token_type_embeddings.weight + positions  # (B, T, D)
        return self.dropout(self.LayerNorm(placed))


class BERT(LibraryBody):
    """Embeddings (B, T, D) to final hidden states (B, T, D)."""

    position_table = "embeddings.position_embeddings.weight"

    def __init__(self, size: Any, num_tokens: int) -> None:
        super().__init__()
        self.size = size
        config = self.config()
        self.embeddings = _Embeddings(config, max(size.positions, num_tokens))
        self.encoder: nn.Module = self.new_encoder(config)

    def config(self) -> Any:
        """Return the library's configuration of the layers."""
        return BertConfig(**common_config(self.size), layer_norm_eps=1e-12)

    def new_encoder(self, config: Any) -> nn.Module:
        """Return the library's layers, as `layer` of a module."""
        return BertEncoder(config)

    @property
    def layers(self) -> list[Any]:
        """The layers, first to last."""
        return list(self.encoder.get_submodule("layer").children())

    def hidden_states(self, embeddings: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        return self.encoder(self.embeddings(embeddings)).last_hidden_state

    def parts(self) -> Parts:
        """Return the modules of each part."""
        attentions = [[layer.attention.self, layer.attention.output.dense] for layer in self.layers]
        table = self.embeddings
        norms: list[Any] = [table.LayerNorm]
        feedforward: list[Any] = []
        for layer in self.layers:
            norms += [layer.attention.output.LayerNorm, layer.output.LayerNorm]
            feedforward += [layer.intermediate.dense, layer.output.dense]
        return {
            "positions": [table.position_embeddings, table.token_type_embeddings],
            "layer_norms": norms,
            "attention": [linear for attention in attentions for linear in attention],
            "feedforward": feedforward,
            "last_attention": attentions[-1],
        }

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        """Draw every parameter by the library's rule; position rows beyond the model's own as the protocol says."""
        super().draw(protocol, generator)
        further = self.embeddings.position_embeddings.weight[self.size.positions :]
        further.normal_(0.0, protocol.position_std, generator=generator)


build = BERT


TOKEN_TYPES = "embeddings.token_type_embeddings.weight"
SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feedforward",
}


def common_config(size: Any) -> dict[str, Any]:
    """Return what the configurations of BERT and of its descendants have in common."""
    sizes = {name: getattr(size, attribute) for name, attribute in SIZES.items()}
    return sizes | {
        "attn_implementation": "eager"
    }  # fused attention adds up gradients in no fixed order on a GPU


def body_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the body's tensors; files of a language model have a prefix and heads, old ones other names of norms."""
    return encoder_tensors(tensors, "bert.")


def encoder_tensors(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors of embeddings and encoder, of token types the first."""
    body: dict[str, Tensor] = {}
    for name, tensor in tensors_of(tensors, prefix, ("embeddings", "encoder")).items():
        weight_name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        body[weight_name.replace("LayerNorm.beta", "LayerNorm.bias")] = tensor
    body.pop("embeddings.word_embeddings.weight", None)
    body.pop("embeddings.position_ids", None)
    if (token_types := body.get(TOKEN_TYPES)) is not None:
        body[TOKEN_TYPES] = token_types[:1]
    return body


COMPUTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu", "gelu_python"),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False,),
}
FIELDS = ConfigFields(
    model_type="bert",
    sizes=SIZES | {"max_position_embeddings": "positions"},
    computed=COMPUTED | {"layer_norm_eps": (1e-12,)},
)
config_mistakes = FIELDS.mistakes
