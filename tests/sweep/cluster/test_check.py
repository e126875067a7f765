"""`cluster check`: the shipped files have placeholders alone, and each mistake of the tables is found in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.cluster.check import AWS, COMMON, LOCAL, problems_in
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
    assert all(problem.endswith(" is a placeholder: give your own") for problem in problems)
    number = {"aws": 5, "local": 3}[name]  # image, two subnets, group and file system; three addresses
    assert (code, last) == (1, f"{FILES[name]}: {number} problems")
    assert len(problems) == number
    assert said("cluster", "check", filled_in(tmp_path, name))[0] == 0


PLANTED = {
    "aws": [
        ("\nmax_workers: 8", "\nmin_workers: 1\nmax_workers: 8"),
        ("IamInstanceProfile: {Name", "# {Name"),
        (" SecurityGroupIds:", " # "),
        ("SubnetIds: [", "# ["),
        ("VolumeSize: 100", "VolumeSize: 8"),
    ],
    "local": [
        ("bin/ray start --addr", ".venv/bin/ray start --addr"),
        ("--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0"),
        (" --autoscaling-config=~/ray_bootstrap_config.yaml", ""),
        ("--port=6379", "--port=6380"),
        ("/shared", "/elsewhere"),
        ("RAY_enable_autoscaler_v2=0", "RAY_enable_autoscaler_v2=1"),
    ],
}


@pytest.mark.parametrize(("name", "table"), [("aws", AWS), ("local", (*COMMON, *LOCAL))])
def test_each_mistake_of_the_tables_is_found(
    tmp_path: Path, name: str, table: tuple[tuple[str, str, str], ...]
) -> None:
    found = [{p.partition(": ")[2] for p in problems_in(filled_in(tmp_path, name, *each))} for each in PLANTED[name]]
    assert all(found)
    assert set().union(*found) == {reason for _, _, reason in table}


def test_what_ray_refuses_comes_first_and_alone(tmp_path: Path) -> None:
    (problem,) = problems_in(filled_in(tmp_path, "aws", "    min_workers: 0", "    min_workers: 5"))
    assert "Ray refuses it" in problem
    assert "is smaller than the sum of `min_workers`" in problem
