"""A task's answers: where the output layer reads them, and their loss.

Logits have the labels' shape and one dimension more, of classes: (B, C), or (B, Q, C) where an example has several
answers; R runs that train together have (R, B, C) or (R, B, Q, C).

Shape legend: `R` runs, `B` batch, `M` positions read, `Q` answers an example, `C` classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.precision import widened


def read_positions(lengths: Tensor, num_read: int) -> Tensor:
    """Return the last M of so many tokens: (..., M) of lengths (...)."""
    return lengths.unsqueeze(-1) + torch.arange(-num_read, 0, device=lengths.device)


def logits_of(outputs: Tensor, task: TaskShape) -> Tensor:
    """Sort what the output layer gives at B M positions, (..., B M, Q / M * C), into logits (..., B, C or Q, C)."""
    answers = (task.num_answers,) if task.num_answers > 1 else ()
    return outputs.view(*outputs.shape[:-2], -1, *answers, task.num_classes)


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over all answers, a scalar."""
    return F.cross_entropy(widened(logits).flatten(0, -2), labels.flatten())


def example_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each example's mean cross-entropy in nats, (R, B); of labels (R, B) or (R, B, Q)."""
    each = F.cross_entropy(widened(logits).flatten(0, -2), labels.flatten(), reduction="none").view(labels.shape)
    return each if labels.dim() == 2 else each.mean(-1)
