"""Loss and accuracy of R runs over a whole split.

Shape legend: `R` runs, `B` batch, `N` examples, `T` tokens, `C` classes.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from datasets.task import Split, TaskData
from trainables.precision import widened
from trainables.stacked_model import StackedBatch, StackedModel

TOKENS_A_BATCH = 2**8
"""Of each run. Few, because R runs read them at once; fixed, because a sum's last bits follow the shape of a batch."""


@torch.no_grad()
def evaluate_stacked(model: StackedModel, data: TaskData, split: Split) -> list[tuple[float, float]]:
    """Return each run's mean cross-entropy in nats and accuracy as a fraction, in evaluation mode."""
    size = max(1, TOKENS_A_BATCH // data.shape.num_tokens)
    losses, hits = [], []
    for start in range(0, len(split), size):
        batch = split[start : start + size]
        lengths = None if batch.lengths is None else batch.lengths.unsqueeze(0)  # (1, B)
        tokens = data.tokens(batch.inputs).unsqueeze(0)  # (1, B, T) or (1, B, T, token_dim)
        reads = StackedBatch(tokens=tokens, lengths=lengths, num_runs=model.num_runs)
        logits = widened(model.logits(reads))  # (R, B, C)
        labels = batch.labels.expand(model.num_runs, -1)  # (R, B)
        each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")  # (R B,)
        losses.append(each.view(labels.shape).double())
        hits.append(logits.argmax(-1) == labels)
    mean = torch.cat(losses, 1).mean(1).tolist()  # (R,)
    accuracy = torch.cat(hits, 1).double().mean(1).tolist()  # (R,)
    return list(zip(mean, accuracy, strict=True))
