"""Tasks: one file each, listed here.

To add a task: write one file with `Options`, `shape`, `num_train`, `num_held_out`, `checksum`, `origin`, `fetch` and
`load` (see `datasets.task.Task`), and add one line to `TASKS`. The code of the file, and of what it imports of this
folder, becomes a part of the ids of its runs (`data_checksum`); what it reads is the business of its `checksum`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lr_sweep.common.source_code import code_hash, source_versions
from lr_sweep.datasets import (
    bit_memory,
    bit_xor,
    cifar10,
    cifar10_lra,
    digits,
    listops,
    mnist,
    remote_homology,
)

from .task import Task

SHIPPED: dict[str, Task] = {
    "listops": listops,
    "mnist": mnist,
    "cifar10": cifar10,
    "cifar10-lra": cifar10_lra,
    "digits": digits,
    "bit-memory": bit_memory,
    "bit-xor": bit_xor,
    "remote-homology": remote_homology,
}

"""Tasks whose `checksum` alone says which data it is, so that ids stay when their code is tidied. None of yours."""

TASKS: dict[str, Task] = {**SHIPPED}
"""All tasks; yours is added here, as `{**SHIPPED, "mine": mine}`."""

INTERFACE = "datasets/task.py"
"""Every task imports it; `PROTOCOL_VERSION` covers it in a run's id."""


def data_checksum(name: str, options: Any, data_dir: Path) -> str:
    """Return what identifies a task's data in run ids; raises DataError for data that cannot be identified.

    That is the task's `checksum`; a task that is not shipped adds the version of its module and of what that imports.
    """
    checksum = TASKS[name].checksum(options, data_dir)
    if name in SHIPPED:
        return checksum
    sources = {
        file: version for file, version in task_sources(TASKS[name]).items() if file != INTERFACE
    }
    return f"{checksum}+{code_hash(json.dumps(sources, sort_keys=True))}"


def task_sources(task: Task) -> dict[str, str]:
    """Return the versions of the files that define a task, by path."""
    # The name of a module; of an object, that of its class's.
    return source_versions([getattr(task, "__name__", type(task).__module__)])
