"""What ends an idle head: which clusters are busy, and for how long one must not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster import idle
from lr_sweep.sweep.cluster.idle import IdleClock, is_busy, main


class Cluster:
    def __init__(self, machines: int, drivers: int) -> None:
        self._machines, self._drivers = machines, drivers

    def machines(self) -> int:
        return self._machines

    def drivers(self) -> int:
        return self._drivers


@pytest.mark.parametrize(("machines", "drivers", "busy"), [(1, 0, False), (1, 1, True), (2, 0, True), (3, 2, True)])
def test_a_driver_or_a_worker_keeps_the_head(machines: int, drivers: int, busy: bool) -> None:
    connect: Any = lambda: Cluster(machines, drivers)  # noqa: E731
    assert is_busy(connect) == busy


def test_a_head_without_ray_is_idle() -> None:
    def connect() -> Any:
        raise UserError("nothing answers")

    assert not is_busy(connect)


def test_work_starts_the_hour_again() -> None:
    now = 0.0
    clock = IdleClock(60.0, lambda: now)
    found = []
    for now, busy in ((0.0, False), (59.0, True), (60.0, False), (118.0, False), (119.0, False)):  # noqa: B007
        found.append(clock.expired(busy))
    assert found == [False, False, False, False, True]


def test_the_command_runs_once_after_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = iter([True, True, False])
    monkeypatch.setattr(idle, "is_busy", lambda: next(busy))
    monkeypatch.setattr(idle, "CHECK_EVERY_S", 0.01)
    assert main("0.0001", "sh", "-c", f"echo down >> {tmp_path}/calls; exit 3") == 3
    assert (tmp_path / "calls").read_text() == "down\n"
