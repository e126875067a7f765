"""Losses of a batch, and loss and accuracy over a whole split.

Logits have the labels' shape and one dimension more, of classes: (B, C), or (B, Q, C) where an example has several
answers. R runs that train together have (R, B, C) or (R, B, Q, C).

Shape legend: `R` runs, `B` batch, `Q` answers an example, `C` classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.trainables.curve import Progress
from lr_sweep.trainables.precision import widened
from lr_sweep.trainables.run import Protocol

TOKENS_A_BATCH = 2**14
"""Evaluation batches hold so many tokens: enough to fill a core, small enough for 2000-token examples on a GPU."""


def evaluated_splits(data: TaskData, protocol: Protocol) -> dict[str, Split]:
    """Return what an evaluation is of: of `test` where `wants_test` says so, which comes last."""
    train = data.train[: protocol.train_examples_evaluated]
    return {"train": train, "validation": data.validation, "test": data.test}


def in_batches(split: Split, num_tokens: int, tokens_a_batch: int) -> Iterator[Split]:
    """Yield a split in batches of about so many tokens, where an example has `num_tokens`."""
    size = max(1, tokens_a_batch // num_tokens)
    for start in range(0, len(split), size):
        yield split[start : start + size]


def wants_test(protocol: Protocol, progress: Progress, scores: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether the test split is evaluated, too, where the others have these losses and accuracies."""
    return protocol.test_evaluated == "always" or progress.improves(scores["validation"][1])


def named_scores(scores: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return loss and accuracy of each split by name; the curve's train loss is the one trained on, so without it."""
    named = {f"{split}_loss": loss for split, (loss, _) in scores.items() if split != "train"}
    return named | {f"{split}_accuracy": accuracy for split, (_, accuracy) in scores.items()}


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over all answers, a scalar."""
    return F.cross_entropy(widened(logits).flatten(0, -2), labels.flatten())


def example_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each example's mean cross-entropy in nats, (R, B); of labels (R, B) or (R, B, Q)."""
    each = F.cross_entropy(widened(logits).flatten(0, -2), labels.flatten(), reduction="none").view(labels.shape)
    return each if labels.dim() == 2 else each.mean(-1)


@torch.no_grad()
def evaluate(model: nn.Module, data: TaskData, split: Split) -> tuple[float, float]:
    """Return mean cross-entropy in nats and accuracy as a fraction over all answers, in evaluation mode."""
    loss_sum = torch.zeros((), dtype=torch.float64, device=split.labels.device)
    num_correct = torch.zeros((), dtype=torch.int64, device=split.labels.device)
    for batch in in_batches(split, data.shape.num_tokens, TOKENS_A_BATCH):
        logits = widened(model(data.tokens(batch.inputs), batch.lengths))
        loss_sum += F.cross_entropy(logits.flatten(0, -2), batch.labels.flatten(), reduction="sum").double()
        num_correct += (logits.argmax(-1) == batch.labels).sum()
    return loss_sum.item() / split.labels.numel(), num_correct.item() / split.labels.numel()
