"""Losses of R runs at a step, eager or compiled, and loss and accuracy over a whole split.

Shape legend: `R` runs, `B` batch, `N` examples, `T` tokens, `Q` answers an example, `C` classes.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from lr_sweep.common.files import cache_folder
from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.trainables.plain.evaluation import example_losses, in_batches
from lr_sweep.trainables.stacked.model import Mask, StackedBatch, StackedModel

TOKENS_A_BATCH = 2**8
"""Tokens of a run in an evaluation batch: few, because R runs read them at once; fixed, as last bits depend on it."""


def losses_of(model: StackedModel, batch: StackedBatch, labels: Tensor, masks: Iterable[Mask]) -> Tensor:
    """Return each run's mean cross-entropy (R,) in nats.

    `labels`: (R, B) or (R, B, Q); `masks`: from `StackedModel.masks`.
    """
    return example_losses(model.logits(batch, masks), labels).mean(1)


def compiled_losses(device: torch.device) -> Callable[..., Tensor]:
    """Return `losses_of` compiled, on a GPU into CUDA graphs (never run yet); backward passes, too.

    What is random is drawn outside, so that the masks are the plain engine's. It is compiled for the first number of
    runs, for any number when a second comes, and again when one seed or one run is left. After 8 times in a process,
    torch goes back to eager steps (`torch._dynamo.config.recompile_limit`).
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(compiled_dir()))
    torch.compiler.reset()  # a worker's earlier cells are not to count
    return torch.compile(losses_of, mode="reduce-overhead" if device.type == "cuda" else None)


def compiled_dir() -> Path:
    """Return where torch keeps what it compiled, so that a later process need not: in the user's own cache folder.

    It is executable code, so it is never with results; torch's default, a folder for temporary files, could be made by
    another user. Code for one CPU may not run on another, so a home folder that machines share has one for each kind.
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else [platform.processor()]
    cpu = {line for line in lines if line.startswith(("model name", "flags", "Features"))} or {lines[0]}
    key = hashlib.sha256("\n".join([torch.__version__, platform.machine(), *sorted(cpu)]).encode()).hexdigest()
    return cache_folder() / "compiled" / key[:12]


@torch.no_grad()
def evaluate_stacked(model: StackedModel, data: TaskData, split: Split) -> list[tuple[float, float]]:
    """Return each run's mean cross-entropy in nats and accuracy as a fraction, in evaluation mode."""
    losses, hits = [], []
    for batch in in_batches(split, data.shape.num_tokens, TOKENS_A_BATCH):
        lengths = None if batch.lengths is None else batch.lengths.unsqueeze(0)  # (1, B)
        tokens = data.tokens(batch.inputs).unsqueeze(0)  # (1, B, T) or (1, B, T, token_dim)
        logits = model.logits(StackedBatch(tokens=tokens, lengths=lengths, num_runs=model.num_runs))
        labels = batch.labels.expand(model.num_runs, *batch.labels.shape)  # (R, B) or (R, B, Q)
        losses.append(example_losses(logits, labels).double())
        hits.append((logits.argmax(-1) == labels).double().flatten(1))
    mean, accuracy = torch.cat(losses, 1).mean(1), torch.cat(hits, 1).mean(1)  # (R,)
    return list(zip(mean.tolist(), accuracy.tolist(), strict=True))
