"""Until which step runs are saved that a sweep leaves, or that lose their machine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress

from lr_sweep.common.errors import UserError
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.text import counted
from lr_sweep.sweep.results.directory import Results
from lr_sweep.trainables.checkpoint import checkpoints


def saved_steps(results: Results, run_ids: Iterable[str]) -> dict[str, int]:
    """Return the step of each run's newest checkpoint, on this disk or in the store; 0: it has none."""
    names = {
        run_id: [path.name for path in checkpoints(results.checkpoints(run_id))]
        for run_id in run_ids
    }
    if results.uri is not None:
        with suppress(OSError, UserError):  # what this disk has is known
            store = ObjectStore(results.uri, patience_s=0.0)
            for run_id in names:
                names[run_id] += store.names(f"checkpoints/{run_id}")
    return {
        run_id: max(map(int, re.findall(r"\bstep-(\d+)-", " ".join(found))), default=0)
        for run_id, found in names.items()
    }


def saved_text(steps: Collection[int]) -> str:
    """Return `3 runs saved at step 40 to 120`, of runs with these steps; those at step 0 are trained anew."""
    saved = [step for step in steps if step]
    texts = []
    if saved:
        ends = sorted({min(saved), max(saved)})
        texts.append(f"{counted(len(saved), 'run')} saved at step {' to '.join(map(str, ends))}")
    if anew := len(steps) - len(saved):
        texts.append(f"{counted(anew, 'run')} to be trained anew")
    return ", ".join(texts)
