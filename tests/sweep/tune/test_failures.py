"""Whose failure it is: of runs, of the node, or of the sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import CohortSizes
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.tune import failures as module
from lr_sweep.sweep.tune.failures import (
    MAX_KILLS,
    MEMORY_ADVICE,
    Failure,
    Failures,
    advice_on,
    failure_lines,
    is_of_a_gpu,
)
from lr_sweep.sweep.tune.ray_session import RayLostError
from lr_sweep.trainables.worker.ray_internals import KILLED

A, B = (Cell(task="digits", model="tiny", variant=variant) for variant in ("unfrozen-random", "frozen-random"))
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."


def failures_of(usable: Callable[[], set[str]] = set, excluded: set[str] | None = None, num_cells: int = 2) -> Failures:
    sizes = CohortSizes(Results(Path("/nonexistent")))
    return Failures(num_cells, usable, set() if excluded is None else excluded, sizes)


class Cluster:
    """Nodes by name, and the failures of a sweep on them."""

    def __init__(self, *nodes: str) -> None:
        self.excluded: set[str] = set()
        self.failures = failures_of(lambda: set(nodes) - self.excluded, self.excluded)

    def fail(self, run_id: str, node: str | None, reason: str = "OSError: a bad disk") -> tuple[list[str], bool]:
        """Return the ids of the runs that count as failed now, and whether the node is left."""
        failure = Failure(run_ids=[run_id], cell=A, reason=reason, node=node)
        failed, node_is_left = self.failures.failed(failure)
        return ids(failed), node_is_left


def ids(failures: list[Failure]) -> list[str]:
    return [run_id for failure in failures for run_id in failure.run_ids]


def test_on_one_machine_a_failure_counts_at_once() -> None:
    assert Cluster().fail("a", None) == (["a"], False)
    assert Cluster("x").fail("a", "x") == (["a"], False)


@pytest.mark.parametrize(
    ("second", "leaves", "failed"),
    [
        (None, False, ["a"]),  # one failure counts when the pass ends
        (("b", "OSError: a bad disk"), True, []),  # two runs fail alike: the node is left, they have not failed
        (("a", "OSError: a bad disk"), False, ["a", "a"]),  # one run that fails twice is no fault of the node
        (("b", "ValueError: another"), False, ["a", "b"]),
    ],
)
def test_a_node_is_left_where_two_runs_fail_alike(
    second: tuple[str, str] | None, leaves: bool, failed: list[str]
) -> None:
    cluster = Cluster("x", "y")
    assert cluster.fail("a", "x") == ([], False)
    if second is not None:
        assert cluster.fail(second[0], "x", second[1]) == ([], leaves)
    assert cluster.excluded == ({"x"} if leaves else set())
    assert ids(cluster.failures.release()) == failed
    assert cluster.failures.release() == []


def test_a_node_is_left_by_attempts_that_are_tried_again_alike_but_for_their_particulars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tune starts each trial again; ports, paths and process ids differ."""
    monkeypatch.setattr(module, "node_text", lambda node: f"node {node}")
    cluster = Cluster("x", "y")
    runs: list[Any] = [SimpleNamespace(run_id=name, cell=A, row=dict) for name in "ab"]
    monkeypatch.setattr(module, "run_title", lambda row: "a run")
    reason = "OSError: [Errno 5] /mnt/{0}/data.npy on 10.0.0.{0}:4{0}0 (pid={0}, worker=c{0}fe)"
    answers = [cluster.failures.retried(runs[n : n + 1], reason.format(n + 1), "x") for n in (0, 0, 1, 1)]
    assert [answer.leaves_node for answer in answers] == [False, False, True, True]
    assert [note.partition(":")[0] for answer in answers for note in answer.notes] == [
        "a run failed; it is tried again",
        "trials fail on node x (OSError",
    ]
    assert cluster.excluded == {"x"}
    assert answers[2].notes[0].endswith("): it is left, its runs resume elsewhere")


def test_a_node_where_a_later_run_is_evaluated_is_sound_until_two_more_fail() -> None:
    cluster = Cluster("x", "y")
    for run_id in "abc":
        assert cluster.fail(run_id, "x") == ([], False)
        cluster.failures.started("later", "x")
        cluster.failures.evaluated("later")
    assert cluster.fail("d", "x") == ([], False)
    assert cluster.fail("e", "x") == ([], True)


def test_an_error_on_two_nodes_is_the_runs_and_a_node_that_was_left_for_it_is_used_again() -> None:
    cluster = Cluster("x", "y", "z")
    cluster.fail("a", "x")
    assert cluster.fail("b", "y") == (["a", "b"], False)
    cluster = Cluster("x", "y", "z")
    cluster.fail("a", "x")
    assert cluster.fail("b", "x") == ([], True)
    assert cluster.fail("a", "y") == (["a"], False)
    assert cluster.excluded == set()


def test_a_run_that_starts_after_a_failure_and_is_evaluated_shows_that_the_node_is_sound() -> None:
    cluster = Cluster("x", "y")
    cluster.failures.started("earlier", "x")
    cluster.fail("a", "x")
    assert cluster.failures.evaluated("earlier") == []
    cluster.failures.started("later", "x")
    assert ids(cluster.failures.evaluated("later")) == ["a"]


def test_a_gpu_without_a_driver_is_left_at_once_but_never_the_last_node() -> None:
    cluster = Cluster("x", "y", "z")
    assert cluster.fail("a", "x", NO_DRIVER) == ([], True)
    assert cluster.fail("b", "y", NO_DRIVER) == ([], True)
    assert cluster.fail("c", "z", NO_DRIVER) == (["c"], False)
    assert cluster.excluded == {"x", "y"}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (NO_DRIVER, True),
        ("torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", True),
        ("RuntimeError: No CUDA GPUs are available", True),
        ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", True),
        ("torch.AcceleratorError: CUDA error: no CUDA-capable device is detected", True),
        ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", True),
        ("CUDA error: uncorrectable NVLink error detected during the execution", True),
        ("CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", True),
        ("CUDA error: hardware stack error", True),
        ("CUDA error: unknown error", True),
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", True),
        ("Error 803: system has unsupported display driver / cuda driver combination", True),
        ("Error 804: forward compatibility was attempted on non supported HW", True),
        ("Error 806: the remote procedural call between the MPS server and the MPS client failed", True),
        ("Error 808: the hardware resources required to create MPS client have been exhausted", False),
        ("Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error", True),
        ("NVMLError_GpuIsLost: GPU is lost", True),
        ("Failed to initialize NVML: Driver/library version mismatch", True),
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", False),  # may be the program's
        ("torch.AcceleratorError: CUDA error: misaligned address", False),
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", False),
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", False),
        ("torch.AcceleratorError: CUDA error: invalid device ordinal", False),
        ("torch.AcceleratorError: CUDA error: out of memory", False),
        ("torch.OutOfMemoryError: CUDA out of memory", False),
        ("ValueError: loss is nan", False),
    ],
)
def test_errors_of_gpus(reason: str, expected: bool) -> None:
    assert is_of_a_gpu(reason) == expected


def test_a_sweep_in_which_all_fail_alike_ends() -> None:
    failures = failures_of()
    for cell in (A, B):
        failures.failed(Failure(run_ids=[cell.variant], cell=cell, reason="ValueError: no", node=None))
        failures.check_alike(set())
    failures.failed(Failure(run_ids=["c"], cell=A, reason="ValueError: no", node=None))
    failures.check_alike({Cell("digits", "other", "frozen-random")})  # it trains
    with pytest.raises(UserError, match="the first 3 trials all failed: ValueError: no"):
        failures.check_alike({A})
    failures.evaluated("d")
    failures.check_alike({A})


def test_a_run_whose_worker_is_killed_again_and_again_fails_the_fifth_time() -> None:
    failures = failures_of(num_cells=1)
    assert [failures.killed(["a"]) for _ in range(5)] == [True, True, True, True, False]
    assert MAX_KILLS == 5


def test_kills_of_several_trials_before_anything_is_evaluated_end_the_sweep_with_advice() -> None:
    """`--cpus 64` on two cores: workers are killed one after the other, and no run ever ends."""
    failures = failures_of(num_cells=1)
    assert all(failures.killed([run_id]) for run_id in "abcd")
    failures.evaluated("a")
    assert all(failures.killed([run_id]) for run_id in "efgh")
    with pytest.raises(UserError, match="killed 5 workers before anything was evaluated: .* smaller --cpus"):
        failures.killed(["i"])


SHORT = f"Memory is short here: 5% of it is free. {MEMORY_ADVICE}"


@pytest.mark.parametrize(
    ("free", "processes", "killed", "words"),
    [
        (0.05, 60, False, SHORT),
        (0.5, 60, False, "This machine is busy: 60 processes compute on 2 CPUs"),
        (0.5, 1, True, "It was killed, as the system does when memory runs out"),
        (0.5, 1, False, ""),
    ],
)
def test_a_ray_that_does_not_start_is_a_lack_of_memory_only_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, free: float, processes: float, killed: bool, words: str
) -> None:
    monkeypatch.setattr("lr_sweep.sweep.tune.failures.free_memory", lambda: free)
    monkeypatch.setattr("os.getloadavg", lambda: (processes, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    advice = advice_on(RayLostError("Ray did not start", killed=killed))
    assert advice.startswith(words)
    assert bool(advice) == bool(words)
    assert ("emory" in advice) == ("emory" in words)


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
