"""Tasks: one file each, listed here.

To add a task: write one file with `Options`, `shape`, `num_train`, `checksum`, `origin`, `fetch` and `load`
(see `datasets.task.Task`), and add one line to `TASKS`.
"""

from datasets import cifar10, cifar10_lra, digits, listops, mnist
from datasets.task import Task

TASKS: dict[str, Task] = {
    "listops": listops,
    "mnist": mnist,
    "cifar10": cifar10,
    "cifar10-lra": cifar10_lra,
    "digits": digits,
}
"""Every task by the name that studies use."""
