"""Loss and accuracy over a whole split.

Shape legend: `B` batch, `N` examples, `T` tokens, `C` classes.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from datasets.task import Split, TaskData
from trainables.precision import widened

TOKENS_A_BATCH = 2**14
"""Evaluation batches hold so many tokens: enough to fill a core, small enough for 2000-token examples on a GPU."""


@torch.no_grad()
def evaluate(model: nn.Module, data: TaskData, split: Split) -> tuple[float, float]:
    """Return mean cross-entropy in nats and accuracy as a fraction over all examples, in evaluation mode."""
    size = max(1, TOKENS_A_BATCH // data.shape.num_tokens)
    loss_sum = torch.zeros((), dtype=torch.float64, device=split.labels.device)
    num_correct = torch.zeros((), dtype=torch.int64, device=split.labels.device)
    for start in range(0, len(split), size):
        batch = split[start : start + size]
        logits = widened(model(data.tokens(batch.inputs), batch.lengths))  # (B, C)
        loss_sum += F.cross_entropy(logits, batch.labels, reduction="sum").double()
        num_correct += (logits.argmax(-1) == batch.labels).sum()
    return loss_sum.item() / len(split), num_correct.item() / len(split)
