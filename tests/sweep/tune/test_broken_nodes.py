"""Which failures are a node's: it is left, and its runs have not failed."""

from __future__ import annotations

import pytest

from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.tune.broken_nodes import BrokenNodes, Failure
from lr_sweep.trainables.worker.ray_internals import KILLED

BAD_DISK = "OSError: a bad disk"


class Cluster:
    """Nodes by name, and the failures of a sweep on them."""

    def __init__(self, *nodes: str) -> None:
        self.excluded: set[str] = set()
        self.broken = BrokenNodes(lambda: set(nodes) - self.excluded, self.excluded)

    def fail(self, run_id: str, node: str | None, reason: str = BAD_DISK) -> list[str]:
        """Return the ids of the runs that count as failed now."""
        if self.broken.leaves([run_id], reason, node):
            return []
        return ids(
            self.broken.failed(Failure(run_ids=[run_id], cell=Cell("digits", "tiny", "a"), reason=reason, node=node))
        )


def ids(failures: list[Failure]) -> list[str]:
    return [run_id for failure in failures for run_id in failure.run_ids]


def test_a_failure_counts_at_once_on_one_machine_on_the_last_node_and_for_lack_of_memory() -> None:
    assert Cluster().fail("a", None) == ["a"]
    assert Cluster("x").fail("a", "x") == ["a"]
    cluster = Cluster("x", "y")
    assert [cluster.fail(run_id, "x", KILLED) for run_id in "ab"] == [["a"], ["b"]]
    assert cluster.excluded == set()


@pytest.mark.parametrize(
    ("second", "is_left", "failed"),
    [
        (None, False, ["a"]),  # one failure counts when the pass ends
        (("b", BAD_DISK), True, []),  # two runs fail alike: the node is left, they have not failed
        (("a", BAD_DISK), False, ["a", "a"]),  # one run that fails twice is no fault of the node
        (("b", "ValueError: another"), False, ["a", "b"]),
    ],
)
def test_a_node_is_left_where_two_runs_fail_alike(
    second: tuple[str, str] | None, is_left: bool, failed: list[str]
) -> None:
    cluster = Cluster("x", "y")
    assert cluster.fail("a", "x") == []
    if second is not None:
        assert cluster.fail(second[0], "x", second[1]) == []
    assert cluster.excluded == ({"x"} if is_left else set())
    assert ids(cluster.broken.release()) == failed
    assert cluster.broken.release() == []


def test_a_run_that_starts_after_a_failure_and_is_evaluated_shows_that_the_node_is_sound() -> None:
    cluster = Cluster("x", "y")
    cluster.broken.started("earlier", "x")
    cluster.fail("a", "x")
    assert cluster.broken.evaluated("earlier") == []
    cluster.broken.started("later", "x")
    assert ids(cluster.broken.evaluated("later")) == ["a"]
    assert cluster.fail("b", "x") == []
    assert cluster.excluded == set()  # counted anew
    cluster.fail("c", "x")
    assert cluster.excluded == {"x"}


def test_an_error_on_two_nodes_is_the_runs_and_a_node_that_was_left_for_it_is_used_again() -> None:
    cluster = Cluster("x", "y", "z")
    cluster.fail("a", "x")
    assert cluster.fail("b", "y") == ["a", "b"]
    cluster = Cluster("x", "y", "z")
    cluster.fail("a", "x")
    cluster.fail("b", "x")
    assert cluster.excluded == {"x"}
    assert cluster.fail("a", "y") == ["a"]
    assert cluster.excluded == set()
