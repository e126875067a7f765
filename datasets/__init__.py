"""Tasks: one file each, listed here.

To add a task: write one file with `Options`, `shape`, `num_train`, `num_held_out`, `checksum`, `origin`, `fetch` and
`load` (see `datasets.task.Task`), and add one line to `TASKS`. The code of the file, and of what it imports of this
folder, becomes a part of the ids of its runs (`datasets.checksum`); what it reads is the business of its `checksum`.
"""

from lr_sweep.datasets import bit_memory, bit_xor, cifar10, cifar10_lra, digits, mnist, remote_homology
from lr_sweep.datasets.listops import task as listops
from lr_sweep.datasets.task import Task

TASKS: dict[str, Task] = {
    "listops": listops,
    "mnist": mnist,
    "cifar10": cifar10,
    "cifar10-lra": cifar10_lra,
    "digits": digits,
    "bit-memory": bit_memory,
    "bit-xor": bit_xor,
    "remote-homology": remote_homology,
}
"""Every task by the name that studies use."""

SHIPPED = frozenset(
    {"listops", "mnist", "cifar10", "cifar10-lra", "digits", "bit-memory", "bit-xor", "remote-homology"}
)
"""Tasks whose `checksum` alone says which data it is, so that ids stay when their code is tidied. None of yours."""
