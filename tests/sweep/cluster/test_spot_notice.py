"""A GPU machine of cluster.yaml reports AWS's notice before its end to Ray."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from lr_sweep.tests.support.servers.metadata_service import ADDRESS, MetadataService
from lr_sweep.tests.support.tiny_study import ROOT
from lr_sweep.tests.support.waiting import wait_until

CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())


def test_a_spot_machine_s_notice_reaches_ray(tmp_path: Path) -> None:
    (command,) = [line for line in CLUSTER["worker_start_ray_commands"] if ADDRESS in line]
    programs, said = tmp_path / "lr-sweep" / ".venv" / "bin", tmp_path / "ray.log"
    programs.mkdir(parents=True)
    (tmp_path / "lr-sweep" / "sweep").symlink_to(ROOT / "sweep")
    (programs / "ray").write_text(f'#!/bin/sh\necho "$RAY_AUTH_MODE $*" >> {said}\n')
    (programs / "ray").chmod(0o755)
    service = MetadataService("127.0.0.1", 0)
    quick = command.replace(ADDRESS, f"127.0.0.1:{service.server_port}").replace("sleep 5", "sleep 0.1")
    for _ in range(2):  # a second `ray up` leaves the first one's watch alone
        subprocess.run(["bash", "-c", quick], env=os.environ | {"HOME": str(tmp_path)}, check=True, timeout=10)
    wait_until(lambda: len(service.looks) >= 2, "the machine to ask", patience_s=30)
    assert not said.exists()
    service.warned.add("127.0.0.1")
    wait_until(said.exists, "Ray to be notified", patience_s=30)
    service.end()
    reason = "--reason DRAIN_NODE_REASON_PREEMPTION --reason-message spot --deadline-remaining-seconds 110"
    assert said.read_text() == f"token drain-node {reason}\n"
