"""How much disk a study's weights and checkpoints need."""

from __future__ import annotations

import math
from collections.abc import Sequence

from datasets.task import TaskShape
from sweep.errors import UserError
from sweep.results import Results
from sweep.runs import WantedRun
from sweep.text import gigabytes
from trainables.checkpoint import NUM_KEPT
from trainables.parts import part_sizes
from trainables.recipe import NUM_BYTES
from trainables.run import ModelSize, Run
from trainables.weights_tensors import body_shapes

COPIES_A_CHECKPOINT = 4
"""Of the trained tensors, float32: the model, Adam's two moments, the best model so far."""
COPIES_PRETRAINING = 3
"""Of the model, in a checkpoint of its pretraining: itself and AdamW's two moments."""
BYTES_A_POINT = 8 * 10
"""Of a curve, uncompressed."""
BYTES_A_FILE = 12_000
"""A Parquet file's own overhead, twice a run, rounded up."""


def trained_parameters(run: Run, shape: TaskShape) -> int:
    """Return how many numbers a run trains."""
    sizes = part_sizes(run.model, shape)
    return sum(sizes[part] for part in run.trained)


def disk_bytes(to_train: Sequence[WantedRun], num_at_once: int, to_pretrain: Sequence[ModelSize] = ()) -> int:
    """Return about what training these runs, and before them these models, adds to the results directory.

    A run that has ended keeps one checkpoint; one that trains may have `NUM_KEPT`, and writes another. A pretraining
    does the same and keeps none.
    """
    checkpoints = sorted((_checkpoint_bytes(run) for run in to_train), reverse=True)
    runs = sum(checkpoints) + NUM_KEPT * sum(checkpoints[:num_at_once]) + sum(_record_bytes(run) for run in to_train)
    weights = [_weights_bytes(size) for size in to_pretrain]
    return sum(weights) + max(runs, (NUM_KEPT + 1) * COPIES_PRETRAINING * max(weights, default=0))


def check_disk(to_train: Sequence[WantedRun], results: Results, to_pretrain: Sequence[ModelSize] = ()) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        UserError: there is not space enough for weights and checkpoints, even if one run trained at a time.
    """
    in_a_store = results.uri is not None  # which has no end; pretraining needs this machine's disk all the same
    needed, free = disk_bytes(() if in_a_store else to_train, 1, to_pretrain), results.free_bytes()
    if needed > free:
        what = f"the {'weights to pretrain and the ' if to_pretrain else ''}runs to train"
        raise UserError(
            f"{results.root} has {gigabytes(free)} free and {what} may need {gigabytes(needed)}. "
            f"Free some space, or use another disk with --results."
        )


def _weights_bytes(size: ModelSize) -> int:
    body = sum(math.prod(shape) for shape in body_shapes(size).values())
    return 4 * (body + NUM_BYTES * size.width)


def _checkpoint_bytes(wanted: WantedRun) -> int:
    return 4 * COPIES_A_CHECKPOINT * trained_parameters(wanted.run, wanted.shape)


def _record_bytes(wanted: WantedRun) -> int:
    return wanted.num_steps // wanted.run.protocol.evaluate_every * BYTES_A_POINT + BYTES_A_FILE
