"""Whose failure it is: of runs, of the node, or of the sweep."""

from __future__ import annotations

import pytest

from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.tune.failures import Failure, Failures, is_of_a_gpu

A, B = (Cell(task="digits", model="tiny", variant=variant) for variant in ("unfrozen-random", "frozen-random"))
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."


class Cluster:
    """Nodes by name, and the failures of a sweep on them."""

    def __init__(self, *nodes: str) -> None:
        self.excluded: set[str] = set()
        self.failures = Failures(2, lambda: set(nodes) - self.excluded, self.excluded)

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


def test_one_failure_on_a_node_counts_when_the_pass_ends() -> None:
    cluster = Cluster("x", "y")
    assert cluster.fail("a", "x") == ([], False)
    assert ids(cluster.failures.release()) == ["a"]
    assert ids(cluster.failures.release()) == []


def test_a_node_on_which_two_runs_fail_alike_is_left_and_they_have_not_failed() -> None:
    cluster = Cluster("x", "y")
    assert cluster.fail("a", "x") == ([], False)
    assert cluster.fail("b", "x") == ([], True)
    assert cluster.excluded == {"x"}
    assert cluster.failures.release() == []


def test_one_run_that_fails_twice_is_no_fault_of_the_node() -> None:
    cluster = Cluster("x", "y")
    cluster.fail("a", "x")
    assert cluster.fail("a", "x") == ([], False)


def test_two_errors_are_no_fault_of_the_node() -> None:
    cluster = Cluster("x", "y")
    cluster.fail("a", "x")
    assert cluster.fail("b", "x", "ValueError: another") == ([], False)
    assert ids(cluster.failures.release()) == ["a", "b"]


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
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", False),  # may be the program's
        ("torch.OutOfMemoryError: CUDA out of memory", False),
        ("ValueError: loss is nan", False),
    ],
)
def test_errors_of_gpus(reason: str, expected: bool) -> None:
    assert is_of_a_gpu(reason) == expected


def test_a_sweep_in_which_all_fail_alike_ends() -> None:
    failures = Failures(2, set, set())
    for cell in (A, B):
        failures.failed(Failure(run_ids=[cell.variant], cell=cell, reason="ValueError: no", node=None))
        assert failures.all_alike(set()) is None
    failures.failed(Failure(run_ids=["c"], cell=A, reason="ValueError: no", node=None))
    assert failures.all_alike({Cell("digits", "other", "frozen-random")}) is None  # it trains
    assert str(failures.all_alike({A})).startswith("the first 3 trials all failed: ValueError: no")
    failures.evaluated("d")
    assert failures.all_alike({A}) is None
