"""Longformer's encoder (Beltagy et al. 2020; Lu et al. 2021, section 3.14): a BERT in which tokens attend to a window.

No token has global attention, so that the projections for it are left out.

Shape legend: `B` batch, `T` tokens, `P` tokens padded to a multiple of the window, `D` width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerEncoder

from lr_sweep.common.limits import Dimension
from lr_sweep.trainables.models import bert

from .bert import BERT, common_config, encoder_tensors
from .published import ConfigFields

OFFSET = 2
"""Rows of a published position table before that of the first token, as in RoBERTa; no token has them."""
LEAST_WINDOW = 4
"""With 2, the transformers library's attention has an empty slice where it wants three rows (5.17), and fails."""


@dataclass(frozen=True, kw_only=True)
class Size(bert.Size):
    """A Longformer; `longformer-base-4096` is 12 layers, 12 heads, width 768."""

    family: ClassVar[str] = "longformer"
    layer_norm_eps: ClassVar[float] = 1e-5
    """Value in the published models; the library's default is BERT's."""
    positions: Dimension = 4096
    """Rows of the position table. The two that no token has are not counted."""
    attention_window: Dimension = 512
    """Tokens that a token attends to, half of them on each side; even, from 4. Examples are padded to a multiple."""

    def __post_init__(self) -> None:
        if self.attention_window % 2 or self.attention_window < LEAST_WINDOW:
            raise ValueError(
                f"attention_window: got {self.attention_window}, want an even number from {LEAST_WINDOW}"
            )

    @property
    def position_rows(self) -> int:
        """Rows of a published position table."""
        return self.positions + OFFSET


class Longformer(BERT):
    """Embeddings (B, T, D) to final hidden states (B, T, D)."""

    def config(self) -> Any:
        """Return the library's configuration of the layers."""
        windows = [self.size.attention_window] * self.size.layers
        eps = self.size.layer_norm_eps
        return LongformerConfig(
            **common_config(self.size), layer_norm_eps=eps, attention_window=windows
        )

    def new_encoder(self, config: Any) -> nn.Module:
        """Return the library's layers without projections for global attention."""
        encoder = LongformerEncoder(config)
        for layer in encoder.layer:
            attention = layer.attention.self
            del attention.query_global, attention.key_global, attention.value_global
        return encoder

    def hidden_states(self, embeddings: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        num_tokens = embeddings.shape[1]
        padding = -num_tokens % self.size.attention_window
        x = F.pad(self.embeddings(embeddings), (0, 0, 0, padding))  # (B, P, D)
        mask = x.new_zeros(x.shape[:2])  # (B, P)
        mask[:, num_tokens:] = torch.finfo(mask.dtype).min
        # Not by the encoder's `forward`, which would ask the device whether a token has global attention.
        for layer in self.layers:
            # (B, P, D)
            x, *_ = layer(x, attention_mask=mask, is_index_masked=mask < 0, is_global_attn=False)
        return x[:, :num_tokens]


build = Longformer


def body_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the body's tensors; files of a language model have a prefix and heads."""
    body = encoder_tensors(tensors, "longformer.")
    if (table := body.get(Longformer.position_table)) is not None:
        body[Longformer.position_table] = table[OFFSET:]
    unused = ("query_global", "key_global", "value_global")
    return {name: tensor for name, tensor in body.items() if name.split(".")[-2] not in unused}


FIELDS = ConfigFields(
    model_type="longformer",
    sizes=bert.SIZES
    | {
        "max_position_embeddings": "position_rows",
        "layer_norm_eps": "layer_norm_eps",
        "attention_window": "attention_window",
    },
    computed=bert.COMPUTED
    | {"pad_token_id": (OFFSET - 1,)},  # tokens come after the row of padding
    defaults={"attention_window": 512},
)


def config_mistakes(config: Mapping[str, Any], size: Any) -> Iterator[str]:
    """Yield what `config.json` says that a Longformer of this size does not compute."""
    windows = config.get("attention_window")  # one of each layer, or one of all
    if isinstance(windows, list) and windows and windows.count(windows[0]) == len(windows):
        config = {**config, "attention_window": windows[0]}
    return FIELDS.mistakes(config, size)
