"""Input layer + GPT-2 body + output layer (Lu et al. 2021, section 2.2), in named parts that can be frozen.

Shape legend: `B` batch, `T` tokens, `D` width, `C` classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from datasets.task import TaskShape
from trainables.gpt2 import GPT2, Dropout
from trainables.parts import PARTS, sorted_parts
from trainables.run import ModelSize, Protocol


class Classifier(nn.Module):
    """Reads a task's tokens, returns class logits."""

    def __init__(self, size: ModelSize, task: TaskShape, protocol: Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.real_valued = task.token_dim is not None
        self.input_layer: nn.Module
        if task.token_dim is not None:
            self.input_layer = nn.Linear(task.token_dim, size.width)
        else:
            assert task.num_token_ids is not None
            table = torch.empty(task.num_token_ids, size.width)  # filled by `initialise_randomly`
            self.input_layer = nn.Embedding.from_pretrained(table, freeze=False)
        self.body = GPT2(replace(size, positions=max(size.positions, task.num_tokens)))
        self.output_layer = nn.Linear(size.width, task.num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, noise: torch.Generator | None = None) -> Tensor:
        """Return logits (B, C).

        Args:
            tokens: (B, T) int64 ids or (B, T, token_dim) float32.
            lengths: (B,) int64, real tokens of each example; None: all T.
            noise: draws the dropout masks; None is evaluation mode.
        """
        embeddings = self.input_layer(tokens)  # (B, T, D)
        if noise is not None and self.real_valued:
            embeddings = Dropout(self.protocol.input_dropout, noise)(embeddings)
        hidden = self.body(embeddings, Dropout(self.protocol.dropout, noise) if noise is not None else None)
        return self.output_layer(self._read(hidden, lengths))  # (B, C)

    def _read(self, hidden: Tensor, lengths: Tensor | None) -> Tensor:
        if self.protocol.readout == "final_position" or lengths is None:
            return hidden[:, -1]  # (B, D)
        return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]  # (B, D)

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the modules of each part of `PARTS`; together they hold every parameter once."""
        blocks: list[Any] = list(self.body.h)
        parts: dict[str, list[nn.Module]] = {
            "input": [self.input_layer],
            "output": [self.output_layer],
            "positions": [self.body.wpe],
            "layer_norms": [m for b in blocks for m in (b.ln_1, b.ln_2)] + [self.body.ln_f],
            "attention": [b.attn for b in blocks],
            "feedforward": [b.mlp for b in blocks],
        }
        assert parts.keys() == PARTS.keys()
        return parts

    def freeze_all_but(self, trained: Iterable[str]) -> None:
        """Let gradients reach the named parts only.

        Raises:
            ValueError: a name is not in `PARTS`, or there is none.
        """
        trained = sorted_parts(trained)
        for part, modules in self.parts().items():
            for module in modules:
                module.requires_grad_(part in trained)

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield name and parameter of everything that is trained, in a fixed order."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)
