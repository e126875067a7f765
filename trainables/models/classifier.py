"""Input layer + body + output layer (Lu et al. 2021, section 2.2), in named parts that can be frozen.

Shape legend: `B` batch, `T` tokens, `D` width, `M` positions read, `Q` answers an example, `C` classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.models.family import Dropout
from lr_sweep.trainables.models.parametrization import width_ratio
from lr_sweep.trainables.parts import sorted_parts
from lr_sweep.trainables.run import BodySize, Protocol


def read_positions(lengths: Tensor, num_read: int) -> Tensor:
    """Return the last M of so many tokens: (..., M) of lengths (...)."""
    return lengths.unsqueeze(-1) + torch.arange(-num_read, 0, device=lengths.device)


def logits_of(outputs: Tensor, task: TaskShape) -> Tensor:
    """Sort what the output layer gives at B M positions, (..., B M, Q / M * C), into logits (..., B, C or Q, C)."""
    answers = (task.num_answers,) if task.num_answers > 1 else ()
    return outputs.view(*outputs.shape[:-2], -1, *answers, task.num_classes)


class Classifier(nn.Module):
    """Reads a task's tokens, returns class logits."""

    def __init__(self, size: BodySize, task: TaskShape, protocol: Protocol) -> None:
        super().__init__()
        self.task, self.protocol, self.width_ratio = task, protocol, width_ratio(protocol, size.width)
        self.real_valued = task.token_dim is not None
        self.input_layer: nn.Module
        if task.token_dim is not None:
            self.input_layer = nn.Linear(task.token_dim, size.width)
        else:
            assert task.num_token_ids is not None
            table = torch.empty(task.num_token_ids, size.width)  # filled by `initialise_randomly`
            self.input_layer = nn.Embedding.from_pretrained(table, freeze=False)
        self.body = load_family(size.family).build(size, task.num_tokens)
        self.output_layer = nn.Linear(size.width, task.num_outputs)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, noise: torch.Generator | None = None) -> Tensor:
        """Return logits (B, C), or (B, Q, C), of tokens: (B, T) int64 ids or (B, T, token_dim) float32.

        `lengths` (B,) int64: real tokens of each example; None: all. `noise` draws masks; None is evaluation mode.
        """
        read = self.features(tokens, lengths, noise)
        return logits_of(self.output_layer(read / self.width_ratio), self.task)

    def features(self, tokens: Tensor, lengths: Tensor | None = None, noise: torch.Generator | None = None) -> Tensor:
        """Return the states that the output layer reads, (B M, D); arguments as of `forward`."""
        embeddings = self.input_layer(tokens)  # (B, T, D)
        if noise is not None and self.real_valued:
            embeddings = Dropout(self.protocol.input_dropout, noise)(embeddings)
        dropout = None if noise is None else Dropout(self.protocol.dropout, noise, self.protocol.attention)
        hidden = self.body(embeddings, dropout)
        return self._read(hidden, lengths)

    def _read(self, hidden: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the states at the positions read, (B M, D)."""
        if self.protocol.readout == "final_position" or lengths is None:
            return hidden[:, -self.task.num_read :].reshape(-1, hidden.shape[-1])
        examples = torch.arange(len(hidden), device=hidden.device).unsqueeze(-1)  # (B, 1)
        return hidden[examples, read_positions(lengths, self.task.num_read)].flatten(0, 1)

    def parts(self) -> dict[str, list[nn.Module | nn.Parameter]]:
        """Return what each part of `PARTS` consists of; `EVERYTHING` holds every parameter once."""
        return {**self.body.parts(), "input": [self.input_layer], "output": [self.output_layer]}

    def freeze_all_but(self, trained: Iterable[str]) -> None:
        """Let gradients reach the named parts only; raises ValueError as `sorted_parts`."""
        trained, parts = sorted_parts(trained), self.parts()
        self.requires_grad_(False)
        for part in trained:
            for module in parts.get(part, []):
                module.requires_grad_()

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield name and parameter of everything that is trained, in a fixed order."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)
