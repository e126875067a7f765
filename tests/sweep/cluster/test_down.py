"""`cluster down` without machines: one that cannot be reached, and a mocked cloud. With machines: test_ray_up.py."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.sweep.cluster.down import SCRIPT
from lr_sweep.tests.support.small_cluster import FILES, write_program
from lr_sweep.tests.support.tiny_study import refused, said

LOCAL = FILES["local"]


def test_without_a_terminal_it_asks_for_yes() -> None:
    assert "Give --yes to end the cluster" in refused("cluster", "down", LOCAL)


def test_what_is_left_or_unknown_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"10": "ended by ray stop\nleft:\n", "11": "left:\n12 raylet --x\n", "12": ""}

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(words, 255, stdout=answers[words[-2].rpartition(".")[2]].encode())

    monkeypatch.setattr("lr_sweep.sweep.cluster.down.subprocess.run", run)
    code, printed = said("cluster", "down", LOCAL, "--yes")
    assert (code, printed.splitlines()) == (
        1,
        [
            "192.0.2.11: process 12 raylet --x is left",
            "192.0.2.12: not known what is left: ssh failed (code 255); its reason is above",
            f"{LOCAL}: not all has ended",
        ],
    )


def test_the_search_for_processes_does_not_find_itself(tmp_path: Path) -> None:
    """A grep that ends late has the searched words in its own command line."""
    definitions, _, _ = SCRIPT.read_text().partition("for signal in")
    text = f'#!/bin/sh\n{shutil.which("grep")} "$@"\nexec >&-\nsleep 0.5\n'
    slow = write_program(tmp_path / "grep", text)
    path = f"{tmp_path}:{os.environ['PATH']}"
    search = ["sh", "-c", f"{definitions}of_the_cluster"]
    listed = subprocess.run(search, env={"PATH": path}, capture_output=True, text=True, check=True).stdout
    assert str(slow) not in listed


@pytest.mark.cluster
@pytest.mark.slow
def test_machines_of_a_cloud_are_ended_and_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cluster's machine stays."""
    moto, boto3 = pytest.importorskip("moto"), pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with moto.mock_aws():
        ec2 = boto3.resource("ec2", region_name="us-east-1")
        subnet = next(iter(ec2.subnets.all())).id
        group = next(iter(ec2.security_groups.all())).id
        text = FILES["aws"].read_text().replace("[subnet-0123456789abcdef0, subnet-0123456789abcdef1]", f"[{subnet}]")
        (path := tmp_path / "cluster.yaml").write_text(text.replace("sg-0123456789abcdef0", group))
        (tmp_path / "key.pem").touch()
        path.write_text(path.read_text().replace("~/.ssh/lr-sweep.pem", str(tmp_path / "key.pem")))
        (mine,), (other,) = (machine(ec2, name) for name in ("lr-sweep", "other"))
        code, printed = said("cluster", "down", path, "--yes")
        for instance in (mine, other):
            instance.reload()
        assert (mine.state["Name"], other.state["Name"]) == ("terminated", "running")
        assert (code, f"{path}: nothing is left" in printed) == (0, True)


def machine(ec2: Any, cluster: str) -> Any:
    tags = {"ray-cluster-name": cluster, "ray-node-type": "worker", "ray-node-status": "up-to-date"}
    named = [{"Key": key, "Value": value} for key, value in tags.items()]
    return ec2.create_instances(
        ImageId="ami-12c6146b",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": named}],
    )
