"""When a sweep in which all fail alike ends, and what is printed of failures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune.broken_nodes import is_machine_fault
from lr_sweep.sweep.tune.failures import MEMORY_ADVICE, Failures, failure_lines
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.trainables.worker.ray_internals import KILLED

A, B = (Cell(task="digits", model="tiny", variant=variant) for variant in "ab")


def fail(reasons: str, failures: Failures, cell: Cell = A) -> list[str]:
    """Return what follows each failed attempt; a letter is a reason."""
    runs: Any = [SimpleNamespace(cell=cell)]
    return [failures.reason_to_end(runs, f"{reason}Error: no") for reason in reasons]


def new_failures() -> Failures:
    return Failures(Machines(), Placement(resources=Resources()), print)


@pytest.mark.parametrize(("reasons", "number"), [("aaa", 3), ("abbb", 4), ("ababab", None), ("aa", None)])
def test_three_failed_attempts_alike_in_a_row_end_a_sweep(reasons: str, number: int | None) -> None:
    *earlier, last = fail(reasons, new_failures())
    assert not any(earlier)
    assert last.startswith(f"the first {number} attempts all failed") if number else not last


def test_a_sweep_does_not_end_while_a_trial_of_another_cell_may_work() -> None:
    failures = new_failures()
    failures.trial_started(["r1"], A)
    failures.trial_started(["r2"], B)
    assert not any(fail("aaaa", failures))
    failures.trial_stopped(["r2"])
    assert any(fail("a", failures))


def test_a_sweep_in_which_a_run_was_evaluated_does_not_end() -> None:
    failures = new_failures()
    failures.run_evaluated("r1")
    assert not any(fail("aaaaaa", failures))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", True),
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", False),  # an index out of range
        ('Most recent call last:\n  File "train.py", line 3, in train\nOSError: [Errno 5] Input/output error', True),
        ("The actor died unexpectedly before finishing this task.", True),
        ("the worker did not start: ModuleNotFoundError: No module named 'torch'", True),
        ("no data.npy in /data on host-3: want sha256 ab, which the run was planned with.", True),
        ("KeyError: 'momentum'", False),
        ("session.report was called in step 1, want it where session.due, every 10 steps", False),
        (KILLED, False),
        ("OutOfMemoryError: CUDA out of memory", False),
    ],
)
def test_devices_disks_and_lost_processes_are_a_machine_s_fault(reason: str, expected: bool) -> None:
    assert is_machine_fault(reason) is expected


def test_the_first_failure_of_each_kind_is_shown_with_its_reason_and_how_many_more_there_are() -> None:
    traceback = 'Most recent call last:\n  File "train.py", line 1, in <module>\nImportError: no module {}'
    reasons = {f"run {number}": traceback.format(number) for number in range(3)} | {"run 3": "ValueError: loss is nan"}
    assert failure_lines(reasons) == [
        "  run 0: ImportError: no module 0 (and 2 more like it)",
        "  run 3: ValueError: loss is nan",
    ]
    kinds = {f"run {kind}": f"{kind}Error: no" for kind in "abcdefg"}
    assert failure_lines(kinds)[4:] == ["  run e: eError: no", "  2 more, for other reasons"]
    assert failure_lines({"a": KILLED})[-1] == f"  {MEMORY_ADVICE}"
