"""account.yaml: AWS's own linter accepts it, and its outputs are the values that cluster.yaml asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lr_sweep.sweep.cluster.check import problems_in
from lr_sweep.tests.support.cluster_files import template
from lr_sweep.tests.support.tiny_study import ROOT

TEMPLATE = ROOT / "docs" / "cluster" / "account.yaml"
DIGITS = "00fedcba987654321"
IDS = {
    "AWS::Region": "eu-west-1",
    "Image": f"ami-{DIGITS}",
    "Subnet0": f"subnet-{DIGITS}",
    "Subnet1": f"subnet-1{DIGITS[1:]}",
    "Group": f"sg-{DIGITS}",
    "FileSystem": f"fs-{DIGITS}",
}
"""What AWS would choose."""
PLACES = {
    "Region": "us-east-1  # CHANGE",
    "SshPrivateKey": "~/.ssh/lr-sweep.pem",
    "KeyName": "lr-sweep  # CHANGE",
    "ImageId": "ami-0123456789abcdef0",
    "SubnetIds": "[subnet-0123456789abcdef0, subnet-0123456789abcdef1]",
    "SecurityGroupIds": "[sg-0123456789abcdef0]",
    "IamInstanceProfile": "{Name: lr-sweep-head}",
    "FileSystem": "fs-0123456789abcdef0.efs.us-east-1.amazonaws.com",
}
"""Where each output belongs in cluster.yaml."""


def test_aws_s_linter_accepts_it() -> None:
    api = pytest.importorskip("cfnlint.api")
    assert [str(match) for match in api.lint_file(TEMPLATE)] == []


def test_the_linter_finds_a_misspelt_property(tmp_path: Path) -> None:
    api = pytest.importorskip("cfnlint.api")
    (tmp_path / "wrong.yaml").write_text(TEMPLATE.read_text().replace("MapPublicIpOnLaunch", "MapPublicIp", 1))
    assert "MapPublicIp" in str(api.lint_file(tmp_path / "wrong.yaml"))


def test_its_outputs_fill_in_the_cluster_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for name in (".ray/auth_token", ".ssh/lr-sweep.pem"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
        (tmp_path / name).chmod(0o600)
    text = (ROOT / "cluster.yaml").read_text()
    assert text.count("# CHANGE") == len(outputs()) == 8
    for name, value in outputs().items():
        assert text.count(PLACES[name]) == 1, name
        text = text.replace(PLACES[name], value)
    (tmp_path / "mine.yaml").write_text(text)
    assert problems_in(tmp_path / "mine.yaml") == []


def outputs() -> dict[str, str]:
    """Return what `describe-stacks` would print."""
    made = template()
    ids = {name: each["Properties"].get("KeyName") for name, each in made["Resources"].items() if "Properties" in each}
    ids |= {"Profile": made["Resources"]["Profile"]["Properties"]["InstanceProfileName"], **IDS}
    found = {}
    for name, output in made["Outputs"].items():
        tag, text = output["Value"] if isinstance(output["Value"], list) else ("Sub", output["Value"])
        found[name] = ids[text] if tag == "Ref" else re.sub(r"\$\{(.+?)\}", lambda match: ids[match[1]], text)
    return found


def test_a_stack_that_is_removed_leaves_nothing() -> None:
    kept = [name for name, each in template()["Resources"].items() if each.get("DeletionPolicy", "Delete") != "Delete"]
    assert kept == []
