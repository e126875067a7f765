"""A head without work ends itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster import head


@pytest.mark.parametrize(("machines", "drivers", "busy"), [(1, 0, False), (1, 1, True), (2, 0, True), (3, 2, True)])
def test_a_driver_or_a_worker_keeps_the_head(
    monkeypatch: pytest.MonkeyPatch, machines: int, drivers: int, busy: bool
) -> None:
    there = SimpleNamespace(machines=lambda: machines, drivers=lambda: drivers)
    monkeypatch.setattr(head, "ClusterJobs", lambda: there)
    assert head._is_busy() == busy


def test_a_head_without_ray_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> None:
        raise UserError("nothing answers")

    monkeypatch.setattr(head, "ClusterJobs", connect)
    assert not head._is_busy()


def test_the_command_runs_once_after_an_hour_without_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in its last minute starts the hour again."""
    now, asked_at = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(head, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(head, "_is_busy", lambda: asked_at.append(now) or now == 59 * 60)
    assert head.idle("60", "sh", "-c", f"echo down >> {tmp_path}/calls; exit 3") == 3
    assert (tmp_path / "calls").read_text() == "down\n"
    assert asked_at[-1] == (59 + 60) * 60
