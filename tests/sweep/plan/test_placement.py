"""What this machine has, as far as this process may use it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.common.network import check_loopback
from lr_sweep.sweep.plan.placement import Placement, check_beforehand, cpus_here
from lr_sweep.sweep.study.resources import Resources


def test_cpus_that_an_affinity_excludes_do_not_count() -> None:
    one = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{one}]); from lr_sweep.sweep.plan.placement import cpus_here; "
    done = subprocess.run([sys.executable, "-c", f"{program}print(cpus_here())"], capture_output=True, check=True)
    assert done.stdout == b"1\n"


def test_more_cpus_than_there_are_are_used_only_by_force() -> None:
    more = cpus_here() + 1
    check_beforehand(Placement(resources=Resources(), cpus=more, force=True), ())
    check_beforehand(Placement(resources=Resources(), cpus=more - 1), ())
    with pytest.raises(UserError, match=f"--cpus: got {more}, want at most {more - 1}, .*--force"):
        check_beforehand(Placement(resources=Resources(), cpus=more), ())


def test_a_machine_without_a_loopback_network_is_refused() -> None:
    """192.0.2.1 stands for it: an address of documents, which no machine has."""
    check_loopback()
    with pytest.raises(UserError, match="no loopback network .192.0.2.1: .*ip link set lo up"):
        check_loopback("192.0.2.1")
