"""A node of a real cluster on which every trial fails; the sweep leaves it, and no run fails."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.small_cluster import NO_TOKEN, small_cluster
from lr_sweep.tests.support.tiny_study import rows, sweep

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # the rules are quick: test_failures.py

FUNCTION = """
import os, time
if "BROKEN" in os.environ:
    raise RuntimeError(os.environ["BROKEN"])
for _ in session.steps(model=torch.nn.Linear(1, 1)):
    time.sleep(2)  # so that the other node's trials fail in the meantime
    if session.due:
        session.report(validation=1.0, test=0.5)
"""


def test_a_node_on_which_runs_fail_is_left_and_every_run_completes(tmp_path: Path) -> None:
    """One whose GPU does not work is left sooner: test_failures.py."""
    study = write_function(tmp_path, FUNCTION, seeds="4", resources="{runs_per_trial: 1, retries: 0}")
    with small_cluster(1) as cluster:
        with mock.patch.dict(os.environ, {"BROKEN": "a bad disk"}):  # the node's processes inherit it
            cluster.add()
        where = ("--results", tmp_path / "results", "--address", cluster.address)
        code, printed = sweep("run", study, *where, env=NO_TOKEN, timeout_s=900)
    assert code == 0, printed
    assert "trials fail on " in printed
    assert printed.count("it is left, its runs resume elsewhere") == 1
    assert [row["status"] for row in rows(tmp_path / "results").values()] == ["complete"] * 4
