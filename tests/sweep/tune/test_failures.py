"""When a sweep in which all fail alike ends, and what is printed of failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import CohortSizes
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.tune.failures import MEMORY_ADVICE, Failures, failure_lines, kind_of
from lr_sweep.trainables.worker.ray_internals import KILLED

A, B, OTHER = (Cell(task="digits", model="tiny", variant=variant) for variant in "abc")


def test_a_sweep_in_which_all_fail_alike_ends() -> None:
    failures = Failures(2, CohortSizes(Results(Path("/nonexistent"))))
    for cell in (A, B):
        failures.failed(cell, "ValueError: no", set())
    failures.failed(A, "ValueError: no", {OTHER})  # it trains
    with pytest.raises(UserError, match="the first 4 trials all failed: ValueError: no"):
        failures.failed(A, "ValueError: no", {A})
    failures.evaluated()
    failures.failed(A, "ValueError: no", {A})


def test_failures_that_differ_in_particulars_are_of_one_kind() -> None:
    reason = "OSError: [Errno 5] /mnt/{0}/data.npy on 10.0.0.{0}:4{0}0 (pid={0}, worker=c{0}fe)"
    assert kind_of(reason.format(1)) == kind_of(reason.format(2)) != kind_of("OSError: another")


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
