"""How much disk a study's checkpoints need."""

from __future__ import annotations

from collections.abc import Sequence

from datasets.task import TaskShape
from sweep.errors import UserError
from sweep.results import Results
from sweep.runs import WantedRun
from sweep.text import gigabytes
from trainables.checkpoint import NUM_KEPT
from trainables.parts import part_sizes
from trainables.run import Run

COPIES_A_CHECKPOINT = 4
"""Of the trained tensors, float32: the model, Adam's two moments, the best model so far."""
BYTES_A_POINT = 8 * 10
"""Of a curve, uncompressed."""
BYTES_A_FILE = 12_000
"""A Parquet file's own overhead, twice a run, rounded up."""


def trained_parameters(run: Run, shape: TaskShape) -> int:
    """Return how many numbers a run trains."""
    sizes = part_sizes(run.model, shape)
    return sum(sizes[part] for part in run.trained)


def disk_bytes(to_train: Sequence[WantedRun], num_at_once: int) -> int:
    """Return about what training these runs adds to the results directory.

    A run that has ended keeps one checkpoint; one that trains may have `NUM_KEPT`, and writes another.
    """
    checkpoints = sorted((_checkpoint_bytes(run) for run in to_train), reverse=True)
    return sum(checkpoints) + NUM_KEPT * sum(checkpoints[:num_at_once]) + sum(_record_bytes(run) for run in to_train)


def check_disk(to_train: Sequence[WantedRun], results: Results) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        UserError: there is not space enough for checkpoints, even if one run trained at a time.
    """
    needed, free = disk_bytes(to_train, num_at_once=1), results.free_bytes()
    if needed > free and results.uri is None:
        raise UserError(
            f"{results.root} has {gigabytes(free)} free and the runs to train may need {gigabytes(needed)}. "
            f"Free some space, or use another disk with --results."
        )


def _checkpoint_bytes(wanted: WantedRun) -> int:
    return 4 * COPIES_A_CHECKPOINT * trained_parameters(wanted.run, wanted.shape)


def _record_bytes(wanted: WantedRun) -> int:
    return wanted.num_steps // wanted.run.protocol.evaluate_every * BYTES_A_POINT + BYTES_A_FILE
