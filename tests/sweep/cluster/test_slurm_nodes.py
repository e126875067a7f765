"""A Slurm job's Ray: whether all its nodes have come."""

from __future__ import annotations

import pytest

from lr_sweep.sweep.cluster import slurm


@pytest.mark.parametrize(("there", "code"), [(2, 1), (3, 0), (4, 0)])
def test_fewer_nodes_than_wanted_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], there: int, code: int
) -> None:
    """One more is none: a node that Slurm gave back may still be known."""
    monkeypatch.setattr(slurm, "num_nodes", lambda address: there)
    assert slurm.wait("192.0.2.1:6379", "3", "0") == code
    assert ("Ray started on 2 of 3 nodes" in capfd.readouterr().err) == (code == 1)
