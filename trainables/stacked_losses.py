"""The losses of R runs at a step, eagerly or compiled.

Shape legend: `R` runs, `B` batch, `C` classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.precision import widened
from trainables.stacked_model import StackedBatch, StackedModel

Losses = Callable[[StackedModel, StackedBatch, Tensor, Iterable[Tensor]], Tensor]
"""Takes a model, what it reads, the labels (R, B) and dropout's masks (`StackedModel.masks`); returns losses (R,)."""


def losses_of(model: StackedModel, batch: StackedBatch, labels: Tensor, masks: Iterable[Tensor]) -> Tensor:
    """Return each run's mean cross-entropy in nats, (R,)."""
    logits = model.logits(batch, masks)  # (R, B, C)
    each = F.cross_entropy(widened(logits).flatten(0, 1), labels.flatten(), reduction="none")  # (R B,)
    return each.view(labels.shape).mean(1)


def compiled_losses(device: torch.device) -> Losses:
    """Return `losses_of` compiled, on a GPU into CUDA graphs (never run: no GPU was to be had); backward passes, too.

    What is random is drawn outside, so that the masks are the plain engine's. It is compiled for the first number of
    runs, for any number when a second comes, and again when one seed or one run is left: torch goes back to eager
    steps after 8 times (`torch._dynamo.config.recompile_limit`), which it counts over a process.
    """
    torch.compiler.reset()  # a worker's earlier cells are not to count
    return torch.compile(losses_of, mode="reduce-overhead" if device.type == "cuda" else None)
