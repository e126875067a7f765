"""`cluster check`: the shipped files have placeholders alone, planted mistakes are named, and valid variants pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.cluster.check import problems_in
from lr_sweep.tests.support.small_cluster import FILES
from lr_sweep.tests.support.tiny_study import ROOT, said


def filled_in(folder: Path, name: str, old: str = "cluster_name", new: str = "cluster_name") -> Path:
    """Write a shipped file with ids of an account, or addresses of a network, and one text in the place of another."""
    text = FILES[name].read_text().replace("0123456789abcdef", "00fedcba98765432").replace("192.0.2.", "10.0.0.")
    assert old in text
    (path := folder / "mine.yaml").write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_shipped_file_has_placeholders_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(ROOT)
    code, printed = said("cluster", "check", FILES[name])
    *problems, last = printed.splitlines()
    assert all(problem.endswith(": a placeholder: give your own") for problem in problems)
    number = {"aws": 5, "local": 3}[name]  # image, two subnets, group and file system; three addresses
    assert (code, last) == (1, f"{FILES[name]}: {number} problems")
    assert len(problems) == number
    assert said("cluster", "check", filled_in(tmp_path, name))[0] == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "wanted"),
    [
        ("aws", "sg-00fedcba987654320", "sg-0123456789abcdef0", "SecurityGroupIds.0: a placeholder"),
        ("local", "[10.0.0.11, 10.0.0.12]", "[10.0.0.11, 192.0.2.12]", "worker_ips.1: a placeholder"),
        ("local", "bin/ray start --addr", ".venv/bin/ray start --addr", "worker_start_ray_commands.1: want ~/lr-sweep"),
        ("aws", "~/lr-sweep/sweep/cluster/bin/ray start --head", "ray  start --head", "commands.1: want ~/lr-sweep"),
        ("local", "host=127.0.0.1", "host=0.0.0.0", "head_start_ray_commands.1: want --dashboard-host=127.0.0.1"),
        ("local", "host=127.0.0.1", 'host "10.0.0.10"', "head_start_ray_commands.1: want --dashboard-host=127.0.0.1"),
        ("aws", " SecurityGroupIds:", " # ", "available_node_types.head: want SecurityGroupIds"),
        ("aws", "VolumeSize: 100", "VolumeSize: 8", "VolumeSize: want 40 GB"),
        ("aws", "VolumeSize: 100", "VolumeSize: '30'", "VolumeSize: want 40 GB"),
        ("aws", "\nmax_workers: 8", "\nmax_workers: 0", "max_workers: 0 lets no machine start"),
        ("aws", "    max_workers: 8", "    max_workers: 0", "max_workers: 0 lets no machine start"),
        ("local", "\ncluster_name", "\nmax_workers: 0\ncluster_name", "`max_workers` is smaller than the sum"),
        ("aws", "    min_workers: 0", "    min_workers: 5", "smaller than the sum of `min_workers`"),
        ("aws", "max_workers: 8", "max_workers: many", "max_workers: Ray refuses it"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, name: str, old: str, new: str, wanted: str) -> None:
    found = problems_in(filled_in(tmp_path, name, old, new))
    assert any(wanted in problem for problem in found), found


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("local", "--dashboard-host=127.0.0.1", '--dashboard-host="127.0.0.1"'),
        ("local", "--dashboard-host=127.0.0.1", "--dashboard-host localhost"),
        ("local", " --dashboard-host=127.0.0.1", ""),
        ("local", "--address=$RAY_HEAD_IP:6379", '--address="$RAY_HEAD_IP:6379"'),
        ("local", "--port=6379", "--port 6379"),
        ("local", "6379", "6380"),
        ("aws", "/shared", "/mnt/lab"),
        ("local", "server --port=5000", "server --port=5000 --host=db.lab"),
        ("local", "head_ip: 10.0.0.10", "head_ip: '10.0.0.10'"),
        ("local", "~/lr-sweep/sweep/cluster/bin/ray start --head", 'export RAY_AUTH_MODE="token"; ray start --head'),
        ("local", "~/lr-sweep/sweep/cluster/bin/ray start --", "PATH=~/lr-sweep/sweep/cluster/bin:$PATH ray start --"),
        ("local", "worker_ips: [10.0.0.11, 10.0.0.12]", "worker_ips: []"),
        ("local", "RAY_enable_autoscaler_v2=0", "RAY_enable_autoscaler_v2=1"),
        ("aws", "VolumeSize: 100, VolumeType", "VolumeSize: 40, VolumeType"),
        ("aws", "          - {DeviceName: /dev/sda1", "          - {DeviceName: /dev/sda1, Ebs: {VolumeSize: 50}}\n"
         "          - {DeviceName: /dev/sdb"),
        ("aws", "SecurityGroupIds: [sg-00fedcba987654320]",
         "NetworkInterfaces: [{DeviceIndex: 0, Groups: [sg-00fedcba987654320]}]"),
        ("aws", "\nmax_workers: 8", "\nmax_workers: 1"),
        ("aws", "      # IamInstanceProfile: {Name: lr-sweep-worker}", "      IamInstanceProfile: {Name: mine}"),
    ],
)  # fmt: skip
def test_a_valid_variant_passes(tmp_path: Path, name: str, old: str, new: str) -> None:
    assert problems_in(filled_in(tmp_path, name, old, new)) == []
