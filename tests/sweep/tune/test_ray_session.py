"""Ray that does not come up. That it comes up, and its death later, is in test_sweep_end_to_end and test_chaos."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import ray
from ray._private import utils

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.study import Resources
from lr_sweep.sweep.tune import ray_session as module
from lr_sweep.sweep.tune.ray_session import RayLostError, ray_session


def enter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, address: str | None) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(ray, "init", fails)
    with ray_session(Placement(resources=Resources(), address=address, cpus=1), tmp_path / "log"):
        pytest.fail("there is no Ray")


def test_sigterm_stays_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray sets handlers of its own as it starts, in Python and in C++, and takes the latter away at its shutdown."""
    before = signal.getsignal(signal.SIGTERM)

    def init(**_: object) -> None:
        utils.set_sigterm_handler(lambda number, frame: None)
        assert signal.getsignal(signal.SIGTERM) is ours
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def ours(number: int, frame: object) -> None:
        pass

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    monkeypatch.setattr(module, "cluster_nodes", lambda placement, excluded: [{"CPU": 1.0}])
    monkeypatch.setattr(module, "lost_processes", list)
    signal.signal(signal.SIGTERM, ours)
    try:
        with ray_session(Placement(resources=Resources(), cpus=1), tmp_path / "log"):
            assert signal.getsignal(signal.SIGTERM) is ours
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Exception("The current node timed out during startup."), r"Ray did not start \(The current node timed out"),
        (ray.exceptions.RaySystemError("Failed to connect to GCS."), r"Ray did not start \(.*Failed to connect to GCS"),
        (RuntimeError(), r"Ray did not start \(RuntimeError\)"),
    ],
)
def test_a_ray_that_dies_while_it_starts_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, message: str
) -> None:
    """It counts as lost, so `run_study` starts it again."""
    with pytest.raises(RayLostError, match=message):
        enter(monkeypatch, tmp_path, error, address=None)


def test_a_cluster_that_does_not_answer_is_the_user_s_to_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UserError, match="--address 10.0.0.1:6379: refused .*RAY_AUTH_MODE=token"):
        enter(monkeypatch, tmp_path, ConnectionError("refused"), address="10.0.0.1:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(UserError, match="no Ray cluster answers at --address 10.0.0.1:6379: refused. Start one"):
        enter(monkeypatch, tmp_path, ConnectionError("refused"), address="10.0.0.1:6379")
