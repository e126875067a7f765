"""What a family of backbones provides, and the base of its bodies.

Shape legend: `B` batch, `T` tokens, `D` width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lr_sweep.common.limits import Dimension
from lr_sweep.trainables import run
from lr_sweep.trainables.numerics import Tensors, global_generator_keyed, wide_dtype
from lr_sweep.trainables.run import Attention, BodySize

WEIGHT_STD = 0.02
"""Standard deviation of random weights and embeddings (`initializer_range` of the transformers library's defaults)."""


class Dropout:
    """Inverted dropout whose masks come, in call order, from one generator; the same generator gives the same masks."""

    def __init__(
        self, probability: float, generator: torch.Generator, attention: Attention | None = None
    ) -> None:
        """Take `Protocol.attention` along, which only GPT-2 reads."""
        self.probability, self.generator, self.attention = probability, generator, attention

    def __call__(self, x: Tensor) -> Tensor:
        """Return x with entries set to 0 and the others scaled up, by 1.111 for 0.1, not bf16's 1.109; any shape."""
        if self.probability == 0.0:
            return x
        keep = torch.empty_like(x, dtype=wide_dtype(x)).bernoulli_(
            1.0 - self.probability, generator=self.generator
        )
        return (x * keep.div_(1.0 - self.probability)).to(x.dtype)


Parts = dict[str, list[nn.Module | nn.Parameter]]
"""What each part of a body consists of."""


class Body(nn.Module):
    """Maps embeddings to hidden states."""

    position_table: str | None = None
    """Parameter whose rows are positions: a task with more tokens than pretrained rows gets further ones."""
    always_new: tuple[str, ...] = ()
    """Parameters that are not taken from pretrained weights: they keep their random start."""

    @abstractmethod
    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D); `dropout=None` is evaluation mode. No other randomness than the dropout's."""

    @abstractmethod
    def parts(self) -> Parts:
        """Return what each part of `PARTS` consists of, but for input and output.

        Every parameter is in one of positions, layer_norms, attention and feedforward; those without parameters may be
        left out.
        """

    @abstractmethod
    def draw(self, protocol: run.Protocol, generator: torch.Generator) -> None:
        """Draw every parameter from the generator, in a fixed order."""


def parameters_of(part: Sequence[nn.Module | nn.Parameter]) -> list[nn.Parameter]:
    """Return the parameters that a part consists of."""
    parameters: list[nn.Parameter] = []
    for module in part:
        parameters += [module] if isinstance(module, nn.Parameter) else module.parameters()
    return parameters


def tensors_of(tensors: Mapping[str, Tensor], prefix: str, modules: Container[str]) -> Tensors:
    """Return the tensors of some modules by their names without a prefix, which a file may have."""
    named = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in named.items() if name.partition(".")[0] in modules}


@dataclass(frozen=True, kw_only=True)
class LibrarySize(BodySize):
    """A transformer whose feedforward is four times as wide as the model."""

    heads: Dimension
    """Attention heads in each layer; divides `width`."""

    @property
    def feedforward(self) -> int:
        """Width of the feedforward."""
        return 4 * self.width


class LibraryBody(Body):
    """A body made of modules of the transformers library, whose dropout draws from torch's global generators."""

    @abstractmethod
    def hidden_states(self, embeddings: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D), in the mode that the modules are in."""

    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        self.train(dropout is not None)
        if dropout is None:
            return self.hidden_states(embeddings)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout.probability
            for name in ("dropout", "attention_dropout"):  # what attentions pass to functions
                if isinstance(getattr(module, name, None), float | int):
                    setattr(module, name, dropout.probability)
        with global_generator_keyed(
            dropout.generator.initial_seed(), "library modules", embeddings.device
        ):
            return self.hidden_states(embeddings)

    def draw(self, protocol: run.Protocol, generator: torch.Generator) -> None:
        """Draw weights and embeddings from N(0, 0.02); biases are 0 and layer norms (1, 0)."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0.0, WEIGHT_STD, generator=generator)
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
            if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
                module.bias.zero_()


class Family(Protocol):
    """A module of this package."""

    @property
    def Size(self) -> type[BodySize]:  # noqa: N802
        """Frozen keyword-only dataclass; fields beyond `layers` and `width` are options of the family."""

    def build(self, size: Any, num_tokens: int) -> Body:
        """Return a body for tasks of so many tokens; its parameters may be anything."""

    def body_tensors(self, tensors: Mapping[str, Tensor]) -> Tensors:
        """Return those tensors of a `save_pretrained` file that the body uses, by the names of its parameters."""

    def config_mistakes(self, config: Mapping[str, Any], size: Any) -> Iterator[str]:
        """Yield what `config.json` of pretrained weights says that a body does not compute; size None: of any size."""
