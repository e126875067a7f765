"""How a cluster is divided among sweeps, and when a sweep packs its runs anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep import sharing
from sweep.errors import UserError
from sweep.placement import Placement
from sweep.sharing import Claim, Share, ShareChangedError, shares
from sweep.study import Resources


def claim(priority: int = 1, wants: int = 100) -> Claim:
    return Claim(priority=priority, wants=wants)


@pytest.mark.parametrize(
    ("places", "claims", "expected"),
    [
        (8, [claim()], [8]),
        (8, [claim(), claim()], [4, 4]),
        (9, [claim(), claim()], [5, 4]),  # the older one has what cannot be divided
        (8, [claim(3), claim(1)], [6, 2]),
        (8, [claim(wants=2), claim()], [2, 6]),  # what one has no use for is the other's
        (8, [claim(wants=2), claim(wants=3)], [2, 3]),
        (2, [claim(100), claim(), claim()], [1, 1, 1]),  # the third waits for a place
    ],
)
def test_shares(places: int, claims: list[Claim], expected: list[int]) -> None:
    assert list(shares(places, dict(zip("abc", claims, strict=False))).values()) == expected


@given(st.integers(1, 64), st.lists(st.builds(Claim, priority=st.integers(1, 9), wants=st.integers(1, 40)), min_size=1))
def test_nobody_is_left_out_and_nothing_is_left_over(places: int, claims: list[Claim]) -> None:
    named = {str(number): each for number, each in enumerate(claims)}
    given = shares(places, named)
    assert all(1 <= given[name] <= each.wants for name, each in named.items())
    wanted = sum(each.wants for each in claims)
    assert sum(given.values()) == max(len(claims), min(places, wanted))


class Cluster:
    """Nodes of one CPU, sweeps on them, and a clock."""

    def __init__(self, num_nodes: int) -> None:
        self.now, self.num_nodes, self.others = 0.0, num_nodes, dict[str, Claim]()
        self.share = Share(Placement(resources=Resources(), address="auto"), self.nodes, self, lambda: self.now)

    def nodes(self) -> list[dict[str, float]]:
        return [{"CPU": 1.0}] * self.num_nodes

    def name(self) -> str:
        return "a"

    def post(self, claim: Claim) -> None:
        self.posted = claim

    def read(self) -> dict[str, Claim]:
        return {"a": self.posted, **self.others}

    def passes(self, for_s: float, wants: int = 100) -> None:
        end = self.now + for_s
        while self.now < end:
            self.now += 1.0
            self.share.check(wants)


def test_a_sweep_gives_up_what_is_others_and_takes_it_back() -> None:
    cluster = Cluster(4)
    assert cluster.share.take(100) == 4
    assert cluster.share.at_most is None
    cluster.passes(100)
    cluster.others["b"] = claim()
    with pytest.raises(ShareChangedError, match="2 trials at once instead of 4"):
        cluster.passes(30)
    assert cluster.share.take(100) == cluster.share.at_most == 2
    cluster.passes(100)
    cluster.others.clear()
    with pytest.raises(ShareChangedError, match="4 trials at once instead of 2"):
        cluster.passes(30)


def test_it_does_not_pack_anew_for_nothing() -> None:
    cluster = Cluster(8)
    cluster.others["b"] = claim(wants=4)
    assert cluster.share.take(100) == 4
    cluster.others["b"] = claim(wants=3)
    cluster.passes(100)  # 5 is not worth it
    cluster.num_nodes = 40
    cluster.passes(100, wants=4)  # more machines are no use
    cluster.passes(sharing.SETTLE_S - sharing.CHECK_EVERY_S)  # they are, but not for long
    cluster.num_nodes = 8
    cluster.passes(100)


def test_lost_machines_are_no_reason_to_give_up_others() -> None:
    cluster = Cluster(4)
    cluster.share.take(100)
    cluster.num_nodes = 1
    cluster.passes(1000)


def test_patience_has_an_end_only_where_no_machine_can_come() -> None:
    cluster = Cluster(1)
    cluster.share.take(100)
    cluster.num_nodes = 0
    cluster.passes(sharing.PATIENCE_S - 2 * sharing.CHECK_EVERY_S)
    cluster.num_nodes = 1  # it came back, or the autoscaler may start one
    cluster.passes(1000)
    cluster.num_nodes = 0
    with pytest.raises(UserError, match="It had one and lost it 6.. s ago. What was trained is saved"):
        cluster.passes(1000)


def test_a_machine_of_its_own_is_not_shared() -> None:
    share = Share(Placement(resources=Resources()), lambda: [{"CPU": 2.0}], None, lambda: 1e9)
    assert share.take(100) == 2
    assert share.at_most is None
    share.check(100)
