"""What this machine has, as far as this process may use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.common.network import check_loopback
from lr_sweep.sweep.plan.placement import Placement, check_fit, idle_gpu
from lr_sweep.sweep.study.settings import Resources


def test_cpus_that_an_affinity_excludes_do_not_count() -> None:
    one = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{one}]); from lr_sweep.sweep.plan.placement import cpus_here; "
    done = subprocess.run([sys.executable, "-c", f"{program}print(cpus_here())"], capture_output=True, check=True)
    assert done.stdout == b"1\n"


def test_a_machine_without_a_loopback_network_is_refused() -> None:
    """192.0.2.1 stands for it: an address of documents, which no machine has."""
    check_loopback()
    with pytest.raises(UserError, match="no loopback network .192.0.2.1: .*ip link set lo up"):
        check_loopback("192.0.2.1")


def test_processes_of_a_run_need_one_node() -> None:
    four = Placement(resources=Resources(cpus_per_trial=2, gpus_per_trial=1, processes_per_run=4))
    assert four.trial == {"CPU": 8, "GPU": 4}
    assert four.devices_per_trial == 4
    node = {"CPU": 32.0, "GPU": 8.0}
    assert four.trials_at_once([node, {"CPU": 32.0, "GPU": 3.0}, {"CPU": 15.0, "GPU": 8.0}]) == 2 + 0 + 1
    check_fit(four, [node])
    with pytest.raises(UserError) as raised:
        check_fit(four, [{"CPU": 32.0, "GPU": 3.0}] * 2)
    assert str(raised.value).startswith(
        "a trial asks for 8 CPU and 4 GPU for the 4 processes of a run, which are on one node, but this machine has no "
        "such node (nodes: 32 CPU and 3 GPU; 32 CPU and 3 GPU)."
    )


@pytest.mark.parametrize(
    ("files", "placement", "is_said"),
    [
        (["dev/nvidia0"], Placement(resources=Resources()), True),
        (["dev/null"], Placement(resources=Resources()), False),
        (["dev/nvidia0"], Placement(resources=Resources(gpus_per_trial=0.25)), False),
        (["dev/nvidia0"], Placement(resources=Resources(), address="auto"), False),
    ],
)
def test_a_gpu_that_no_trial_uses_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[str], placement: Placement, is_said: bool
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr("lr_sweep.sweep.plan.placement.Path", lambda _: tmp_path)
    said = ["this machine has a GPU that no trial uses: --gpus-per-trial 0.25 lets four share it"]
    assert idle_gpu(placement) == (said if is_said else [])
