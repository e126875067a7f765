"""LSTM layers, one direction (Lu et al. 2021, section 3.3), as wide as their input, with what makes them like GPT-2.

What mixes tokens, the recurrent weights, counts as attention; what reads a layer's input counts as feedforward.
The cell is that of Lu et al.'s public code, but a layer starts from a state of 0, which their code draws at random at
each pass, in evaluations too.

Shape legend: `B` batch, `T` tokens, `D` width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lr_sweep.trainables.run import BodySize, Protocol

from .family import WEIGHT_STD, Body, Dropout, Parts


@dataclass(frozen=True, kw_only=True)
class Size(BodySize):
    """An LSTM; Lu et al. have 3 layers, or 12, of width 768."""

    family: ClassVar[str] = "lstm"
    layer_norm: bool = True
    """Layer norms as in Lu et al.'s code. They act on what the gates get from input and state, and on the cell."""
    residual: bool = False
    """Each layer's input is added to its output (Lu et al. 2021, Table 5)."""
    positions: bool = False
    """Trained position embeddings (Lu et al. 2021, Table 5)."""
    cell: Literal["reference-2021", "library"] = "reference-2021"
    """`reference-2021`: layer norms and dropout as in Lu et al.'s code (`ReferenceNorm`, `Layer.forward`). `library`:
    torch's layer norms; dropout on embeddings and on what a layer passes up, none on its state."""

    later = MappingProxyType({"cell": "library"})

    def __post_init__(self) -> None:
        if self.layer_norm and self.cell == "reference-2021" and self.width < 2:
            raise ValueError(
                f"width: got {self.width}, want at least 2: layer norms divide by width - 1"
            )


class ReferenceNorm(nn.LayerNorm):
    """Layer norm of Lu et al.'s code: the unbiased variance, 1e-6 added to it, and a random start (`LSTM.draw`)."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, D) or (B, T, D) to the same shape."""
        variance, mean = torch.var_mean(x, -1, keepdim=True)  # (..., 1)
        return self.weight * (x - mean) * torch.rsqrt(variance + 1e-6) + self.bias


class Layer(nn.Module):
    """An LSTM layer that starts from a state of 0."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.ih, self.hh = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
        kind = ReferenceNorm if size.cell == "reference-2021" else nn.LayerNorm
        sizes = {"ih": 4 * width, "hh": 4 * width, "cell": width} if size.layer_norm else {}
        self.norms = nn.ModuleDict({name: kind(num) for name, num in sizes.items()})

    def forward(self, x: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D). A token's mask acts on its state: on what goes up and on what the next reads."""
        inputs = self._normed("ih", self.ih(x))  # (B, T, 4 D)
        state = cell = x.new_zeros(len(x), x.shape[-1])  # (B, D)
        states = []
        for of_token in inputs.unbind(1):
            gates = of_token + self._normed("hh", self.hh(state))  # (B, 4 D)
            taken, kept, shown, new = gates.chunk(4, -1)
            cell = kept.sigmoid() * cell + taken.sigmoid() * new.tanh()
            cell = self._normed("cell", cell)
            state = shown.sigmoid() * cell.tanh()
            state = dropout(state) if dropout else state
            states.append(state)
        return torch.stack(states, 1)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        return self.norms[name](x) if name in self.norms else x


class LSTM(Body):
    """Embeddings (B, T, D) to hidden states (B, T, D)."""

    def __init__(self, size: Size, num_tokens: int) -> None:
        super().__init__()
        self.size = size
        self.wpe = nn.Parameter(torch.zeros(num_tokens if size.positions else 0, size.width))
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))

    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        x = embeddings  # (B, T, D)
        if self.size.positions:
            x = x + self.wpe[: x.shape[1]]
        is_reference = self.size.cell == "reference-2021"
        of_states = dropout if is_reference else None
        between = None if is_reference else dropout
        if between:
            x = between(x)
        for layer in self.layers:
            out = layer(x, of_states)  # (B, T, D)
            if between:
                out = between(out)
            x = x + out if self.size.residual else out
        return x

    def parts(self) -> Parts:
        """Return the modules of each part."""
        layers: list[Any] = list(self.layers)
        return {
            "positions": [self.wpe],
            "layer_norms": [layer.norms for layer in layers],
            "attention": [layer.hh for layer in layers],
            "feedforward": [layer.ih for layer in layers],
            "last_attention": [layers[-1].hh],
        }

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        """Draw uniformly within 1 / sqrt(D), as torch does, a `ReferenceNorm` of n numbers within 1 / sqrt(n)."""
        for module in self.modules():
            if isinstance(module, nn.Linear | ReferenceNorm):
                if isinstance(module, nn.Linear):
                    bound = 1 / math.sqrt(module.in_features)
                else:
                    bound = 1 / math.sqrt(module.weight.numel())
                for parameter in module.parameters():
                    parameter.uniform_(-bound, bound, generator=generator)
        self.wpe.normal_(0.0, WEIGHT_STD, generator=generator)


build = LSTM


body_tensors = dict  # as they are: no LSTM is published for this


def config_mistakes(config: Mapping[str, Any], size: Any) -> Iterator[str]:
    """Refuse any: no LSTM is published for this."""
    yield "got weights of a pretrained model, want none: an LSTM starts at random"
