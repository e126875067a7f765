"""Which failures are a node's: it is left, and its runs have not failed."""

from __future__ import annotations

import pytest

from lr_sweep.sweep.tune import broken_nodes
from lr_sweep.sweep.tune.broken_nodes import BrokenNodes
from lr_sweep.trainables.worker.ray_internals import KILLED

BAD_DISK = "OSError: [Errno 5] Input/output error: '/mnt/data'"
BAD_GPU = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"


@pytest.fixture(autouse=True)
def _named_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken_nodes, "node_text", lambda node: node)


class Cluster:
    """Nodes by name, and the failures of a sweep on them."""

    def __init__(self, *nodes: str) -> None:
        self.excluded: set[str] = set()
        self.said: list[str] = []
        self.broken = BrokenNodes(lambda: set(nodes) - self.excluded, self.excluded, self.said.append)

    def fail(self, runs: str, node: str | None, reason: str = BAD_DISK) -> list[bool]:
        """Return of each run, a letter, whether its failure is its node's."""
        return [self.broken.blames([run], reason, node) for run in runs]


@pytest.mark.parametrize(
    ("nodes", "runs", "node", "reason"),
    [
        ("", "ab", None, BAD_DISK),  # this machine alone
        ("x", "ab", "x", BAD_DISK),  # the last node
        ("xy", "ab", "x", KILLED),
        ("xy", "ab", "x", "ValueError: in the user's function"),
    ],
)
def test_failures_that_are_not_the_node_s(nodes: str, runs: str, node: str | None, reason: str) -> None:
    cluster = Cluster(*nodes)
    assert not any(cluster.fail(runs, node, reason))
    assert cluster.excluded == set()


def test_a_node_is_left_where_two_runs_fail_alike() -> None:
    cluster = Cluster("x", "y")
    assert cluster.fail("aa", "x") == [True, False]  # one run that fails twice
    cluster.fail("b", "x", BAD_GPU)
    assert cluster.excluded == set()
    assert cluster.fail("c", "x") == [True]
    assert cluster.excluded == {"x"}
    assert cluster.said == [f"trials fail on x ({BAD_DISK}): it is left, its runs resume elsewhere"]
    assert cluster.fail("a", "x", BAD_GPU) == [True]


def test_a_run_that_starts_after_a_failure_and_is_evaluated_shows_that_the_node_is_sound() -> None:
    cluster = Cluster("x", "y")
    cluster.broken.started(["earlier"], "x")
    cluster.fail("a", "x")
    cluster.broken.started(["later"], "x")
    cluster.broken.evaluated("later")
    cluster.fail("b", "x")  # counted anew
    assert cluster.excluded == set()
    cluster.broken.evaluated("earlier")
    cluster.fail("c", "x")
    assert cluster.excluded == {"x"}


def test_an_error_on_two_nodes_is_the_runs_and_a_node_that_was_left_for_it_is_used_again() -> None:
    cluster = Cluster("x", "y", "z")
    cluster.fail("ab", "x")
    assert cluster.excluded == {"x"}
    assert cluster.fail("a", "y") == [False]
    assert cluster.excluded == set()
