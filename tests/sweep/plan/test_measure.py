"""What other processes use of a machine, worked out by hand from its clocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lr_sweep.sweep.plan.measure import MAX_SHARE, Moment, others_share

START = Moment(wall_s=100.0, own_s=5.0, all_s=1000.0, cpus=4)


@pytest.mark.parametrize(
    ("own_s", "all_s", "wants_a_cpu", "share"),
    [
        (10.0, 10.0, True, 0.0),  # 10 s of one CPU, all of them ours
        (10.0, 30.0, True, 0.5),  # the others used two of four CPUs
        (2.0, 2.0, True, 0.8),  # no process here, but we got a fifth of a CPU: of another machine on the same chip, say
        (2.0, 2.0, False, 0.0),  # on a GPU that is as it should be
        (0.0, 40.0, True, MAX_SHARE),
        (11.0, 10.0, True, 0.0),  # clocks are read one after the other
    ],
)
def test_others_share(own_s: float, all_s: float, wants_a_cpu: bool, share: float) -> None:
    end = Moment(wall_s=110.0, own_s=5.0 + own_s, all_s=1000.0 + all_s, cpus=4)
    assert others_share(START, end, wants_a_cpu=wants_a_cpu) == pytest.approx(share)


def test_the_counters_of_linux(tmp_path: Path) -> None:
    """Idle and waiting for the disk is not busy; a guest's time is in user's already."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 4000 500 6 7 8 90 0\ncpu0 50 10 15\ncpu1 50 10 15\nintr 1\n")
    moment = Moment.now(stat)
    assert moment.all_s == (100 + 20 + 30 + 6 + 7 + 8) / os.sysconf("SC_CLK_TCK")
    assert moment.cpus == 2


def test_a_system_without_counters_shows_only_what_this_process_missed(tmp_path: Path) -> None:
    before, after = (Moment(wall_s=wall_s, own_s=own_s, all_s=None, cpus=4) for wall_s, own_s in ((0, 0), (10, 6)))
    assert others_share(before, after, wants_a_cpu=True) == pytest.approx(0.4)
    assert others_share(before, after, wants_a_cpu=False) == 0
    assert Moment.now(tmp_path / "none").all_s is None
