"""How many machines a cluster has, how it is divided among sweeps, and when a sweep packs its runs anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune import nodes
from lr_sweep.sweep.tune.nodes import Share, nodes_to_come, shares


def test_node_types_share_the_number_of_machines(tmp_path: Path) -> None:
    """Each of two types may have 3 workers, both together 4; they take turns, so that each is among those to come."""
    file = tmp_path / "ray_bootstrap_config.yaml"
    file.write_text(
        "max_workers: 4\navailable_node_types:\n"
        "  a: {resources: {CPU: 4, GPU: 1}, max_workers: 3}\n  b: {resources: {CPU: 8, GPU: 2}, max_workers: 3}\n"
    )
    head, a, b = {"CPU": 0.0}, {"CPU": 4.0, "GPU": 1.0}, {"CPU": 8.0, "GPU": 2.0}
    assert nodes_to_come([head], file) == [a, b, a, b]
    assert nodes_to_come([head, a, a], file) == [a, b]
    assert nodes_to_come([head, a, a, a], file) == [b]
    assert nodes_to_come([head, a, a, b, b], file) == []
    assert nodes_to_come([head], tmp_path / "none") == []  # not started by `ray up`
    file.write_text("max_workers: 2\navailable_node_types:\n  local.cluster.node: {resources: {}, min_workers: 2}\n")
    assert nodes_to_come([head], file) == []  # machines of one's own have no number of CPUs there


@pytest.mark.parametrize(
    ("num_slots", "wants", "expected"),
    [
        (8, [100], [8]),
        (8, [100, 100], [4, 4]),
        (9, [100, 100], [5, 4]),  # the older one has what cannot be divided
        (8, [2, 100], [2, 6]),  # what one has no use for is the other's
        (8, [2, 3], [2, 3]),
        (2, [100, 100, 100], [1, 1, 1]),  # the third waits for a slot
    ],
)
def test_shares(num_slots: int, wants: list[int], expected: list[int]) -> None:
    assert shares(num_slots, wants) == expected


@given(st.integers(1, 64), st.lists(st.integers(1, 40), min_size=1))
def test_every_sweep_gets_a_share_and_nothing_is_left_over(num_slots: int, wants: list[int]) -> None:
    given = shares(num_slots, wants)
    assert all(1 <= share <= most for share, most in zip(given, wants, strict=True))
    assert sum(given) == max(len(wants), min(num_slots, sum(wants)))


class Cluster:
    """Nodes of one CPU, sweeps on them, and a clock."""

    def __init__(self, num_nodes: int) -> None:
        self.now, self.num_nodes, self.others = 0.0, num_nodes, list[int]()
        self.share = Share(
            Placement(resources=Resources(), address="auto"), self.nodes, self.exchange, lambda: self.now
        )

    def nodes(self) -> list[dict[str, float]]:
        return [{"CPU": 1.0}] * self.num_nodes

    def exchange(self, wants: int) -> tuple[list[int], int]:
        return [wants, *self.others], 0

    def passes(self, for_s: float, wants: int = 100) -> str | None:
        """Return how the share has changed, if it has by then."""
        end = self.now + for_s
        while self.now < end:
            self.now += 1.0
            if change := self.share.change(wants):
                return change
        return None


def test_a_sweep_gives_up_what_is_others_and_takes_it_back() -> None:
    cluster = Cluster(4)
    assert cluster.share.claim(100) == 4
    assert cluster.share.at_most is None
    assert cluster.passes(100) is None
    cluster.others = [100]
    assert cluster.passes(30) == "2 trials at once instead of 4: sweeps or machines came or went"
    assert cluster.share.claim(100) == cluster.share.at_most == 2
    assert cluster.passes(100) is None
    cluster.others.clear()
    assert cluster.passes(30) == "4 trials at once instead of 2: sweeps or machines came or went"


def test_it_does_not_pack_anew_for_nothing() -> None:
    cluster = Cluster(8)
    cluster.others = [4]
    assert cluster.share.claim(100) == 4
    cluster.others = [3]
    assert cluster.passes(100) is None  # 5 is not worth it
    cluster.num_nodes = 40
    assert cluster.passes(100, wants=4) is None  # more machines are no use
    assert cluster.passes(nodes.SETTLE_S - nodes.CHECK_EVERY_S) is None  # they are, but not for long
    cluster.num_nodes = 8
    assert cluster.passes(100) is None


def test_lost_machines_are_no_reason_to_give_up_others() -> None:
    cluster = Cluster(4)
    cluster.share.claim(100)
    cluster.num_nodes = 1
    assert cluster.passes(1000) is None


def test_patience_has_an_end_only_where_no_machine_can_come() -> None:
    cluster = Cluster(1)
    cluster.share.claim(100)
    cluster.num_nodes = 0
    assert cluster.passes(nodes.PATIENCE_S - 2 * nodes.CHECK_EVERY_S) is None
    cluster.num_nodes = 1  # it came back, or the autoscaler may start one
    assert cluster.passes(1000) is None
    cluster.num_nodes = 0
    with pytest.raises(UserError, match="None came within 6.. s. What was trained is saved"):
        cluster.passes(1000)


def test_a_cluster_whose_workers_are_to_come_is_waited_for() -> None:
    """As after `ray up`, with a head that can hold no trial."""
    cluster = Cluster(0)
    assert cluster.share.claim(100) == 1
    assert cluster.passes(300) is None
    (news,) = cluster.share.news()
    assert "has no such node (nodes: )" in news
    assert news.endswith("The sweep waits 10 minutes for one.")
    cluster.num_nodes = 2
    assert cluster.passes(30) == "2 trials at once instead of 1: sweeps or machines came or went"
    assert cluster.share.news() == []


def test_a_machine_of_its_own_is_not_shared() -> None:
    share = Share(Placement(resources=Resources()), lambda: [{"CPU": 2.0}], None, lambda: 1e9)
    assert share.claim(100) == 2
    assert share.at_most is None
    assert share.change(100) is None
