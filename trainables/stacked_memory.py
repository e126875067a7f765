"""How much memory a stack of runs takes, worked out beforehand; `plan` asks too, so nothing here needs torch.

Counts the tensors that are there when the backward pass begins, which is when most are.

Shape legend: `R` runs, `S` seeds among them, `N` = batch x tokens, `T` tokens, `D` width, `H` heads.
"""

from __future__ import annotations

from collections.abc import Sequence

from datasets.task import TaskShape
from trainables.parts import part_sizes
from trainables.run import Run

BYTES = 4
"""A number, float32."""
ROWS_A_RUN = 5
"""Values, gradients, Adam's two moments, the best model so far."""
SAVED_A_BLOCK = 15
"""(N, D) tensors that a block's backward pass reads: 2 residual streams, 2 normalised, q, k, v, 4 + 4 of the
feedforward (before and inside its activation)."""
SAVED_TRAINED = 7
"""More of them where the block's linear layers are trained: what each reads, 1 + 1 + 1 + 4."""
MASKS_A_BLOCK = 2
"""(N, D) dropout masks."""
TRANSIENT = 13
"""(N, D) tensors of the backward pass at its widest, in the feedforward: 3 x 4, and the residual stream's."""
LAST_BLOCK = 4
"""(N, D) tensors of the last block, which works at one position but for keys and values."""
HOLES = 1.35
"""What activations take of a CPU's memory over what is in use: freed blocks that the allocator keeps. Measured."""
EMBEDDING = 3
"""(N, D) tensors before the first block: two masks, and the embeddings."""


def stack_bytes(run: Run, task: TaskShape, num_runs: int, num_seeds: int, *, on_cpu: bool) -> int:
    """Return the bytes that a stack takes at its peak.

    Args:
        run: any of the cell's.
        task: what it reads.
        num_runs: runs that train at once.
        num_seeds: distinct seeds among them.
        on_cpu: a CPU keeps frozen layers in both layouts.
    """
    shared = num_seeds * row_size(run, task) + _bodies(run, task, num_seeds) * (2 if on_cpu else 1)
    return BYTES * (num_runs * run_numbers(run, task, shares_masks=num_seeds == 1) + shared)


def row_size(run: Run, task: TaskShape) -> int:
    """Return the trained numbers of a run, of the positions those in use."""
    sizes = part_sizes(run.model, task) | {"positions": task.num_tokens * run.model.width}
    return sum(sizes[part] for part in run.trained)


def run_numbers(run: Run, task: TaskShape, *, shares_masks: bool) -> int:
    """Return the numbers that one more run adds."""
    return ROWS_A_RUN * row_size(run, task) + _activations(run, task, shares_masks)


def _bodies(run: Run, task: TaskShape, num_seeds: int) -> int:
    sizes = part_sizes(run.model, task)
    frozen = sum(sizes[part] for part in ("attention", "feedforward") if part not in run.trained)
    return frozen * (num_seeds if run.initialisation == "random" else 1)


def _activations(run: Run, task: TaskShape, shares_masks: bool) -> int:
    width, tokens = run.model.width, task.num_tokens
    whole = run.protocol.batch_size * tokens * width  # (N, D)
    attention = run.protocol.batch_size * run.model.heads * tokens**2  # (B, H, T, T)
    trained = sum(part in run.trained for part in ("attention", "feedforward")) / 2
    masks = run.protocol.dropout > 0 and not shares_masks
    block = SAVED_A_BLOCK + SAVED_TRAINED * trained + MASKS_A_BLOCK * masks
    # Written out, attention keeps its weights before and after dropout; torch's fused one keeps none.
    squares = attention * (2 + masks) if run.protocol.dropout > 0 else 0
    blocks = (run.model.layers - 1) * (block * whole + squares)
    once = LAST_BLOCK + EMBEDDING + (TRANSIENT if run.model.layers > 1 else 0)
    return int(HOLES * (blocks + once * whole))


def largest_stack(runs: Sequence[Run], task: TaskShape, available_bytes: float, *, on_cpu: bool) -> int:
    """Return how many of these runs, taken in order, fit; at least 1, which may not."""
    fitting = [
        number
        for number in range(1, len(runs) + 1)
        if stack_bytes(runs[0], task, number, len({run.seed for run in runs[:number]}), on_cpu=on_cpu)
        <= available_bytes
    ]
    return max(fitting, default=1)
