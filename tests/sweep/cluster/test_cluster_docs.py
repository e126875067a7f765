"""docs/cluster.md: each `ray` command in it is run, with programs in place of ssh and rsync that only log."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lr_sweep.tests.support.tiny_study import ROOT, environment
from lr_sweep.tests.sweep.cluster.test_cluster_yaml import bootstrap, fill_in, load

PAGE = ROOT / "docs" / "cluster.md"
LOCAL = "docs/cluster/local.yaml"
HEAD_POLICY, USER_POLICY = (ROOT / "docs" / "cluster" / f"{who}-policy.json" for who in ("head", "user"))

pytestmark = pytest.mark.cluster


def ray_commands() -> list[str]:
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL))
    return [line for line in blocks.splitlines() if line.startswith("ray ")]


class Laptop:
    """A home folder in which Ray's commands find notes taken in place of connections."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "notes"
        for name in ("ssh", "rsync"):
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.notes}\n')
            program.chmod(0o700)
        (folder / "home" / ".ssh").mkdir(parents=True)
        (folder / "home" / ".ssh" / "id_ed25519").touch()
        path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        temporary = {name: str(folder) for name in ("TMPDIR", "RAY_TMPDIR")}  # where Ray notes what is up
        self.home, self.env = folder / "home", environment(HOME=str(folder / "home"), PATH=path, **temporary)

    def say(self, command: str) -> str:
        """Run a command of the page; return what ssh and rsync were asked to do."""
        self.notes.write_text("")
        words = command.replace("cluster.yaml", LOCAL)
        done = subprocess.run(
            ["bash", "-c", words], cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return self.notes.read_text()


def test_each_ray_command_is_one(tmp_path: Path) -> None:
    elsewhere = ("ray start", "ray drain-node")  # test_jobs.py, test_node_loss.py
    commands = [command for command in ray_commands() if not command.startswith(elsewhere)]
    token, up, *others, down = commands
    laptop = Laptop(tmp_path)
    laptop.say(token)
    secret = laptop.home / ".ray" / "auth_token"
    assert secret.stat().st_mode & 0o777 == 0o600
    laptop.say(token)  # again, and it stays
    notes = laptop.say(up)
    assert "rsync --rsh ssh -i ~/.ssh/id_ed25519" in notes
    assert notes.index("make env EXTRAS=cluster") < notes.index("mlflow server") < notes.index("ray start --head")
    assert secret.read_text() not in notes
    assert len(others) >= 4
    for command in others:
        there = shlex.split(command)[3]
        assert there in laptop.say(command), command
    assert "ray stop" in laptop.say(down)


def test_the_head_may_do_what_it_has_to_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting and ending machines, as its autoscaler does, makes these calls and no others of EC2."""
    import boto3
    from moto import mock_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    with mock_aws():
        cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
        ec2 = boto3.client("ec2", region_name="us-east-1")
        provider = AWSNodeProvider(cluster["provider"], "another")
        calls: set[str] = set()
        for client in (provider.ec2.meta.client, provider.ec2_fail_fast.meta.client):
            client.meta.events.register("before-call.ec2", lambda model, **_: calls.add(f"ec2:{model.name}"))
        image = ec2.describe_images()["Images"][0]["ImageId"]
        subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        provider.create_node({"ImageId": image, "InstanceType": "g5.xlarge", "SubnetIds": [subnet]}, {}, 1)
        (machine,) = provider.non_terminated_nodes({})
        provider.set_node_tags(machine, {"ray-node-status": "up-to-date"})
        provider.internal_ip(machine)
        provider.terminate_nodes([machine])
        assert provider.non_terminated_nodes({}) == []
    machines, spot = (statement for statement in json.loads(HEAD_POLICY.read_text())["Statement"])
    assert set(machines["Action"]) == calls
    assert spot["Action"] == "iam:CreateServiceLinkedRole"  # which the account's first spot machine needs


def test_the_user_of_ray_up_may_do_what_it_asks_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may also do what the head may; `make cluster-test` gives `ray up` and `ray down` with these rights."""
    import boto3
    from moto import mock_aws
    from ray.autoscaler._private.aws.utils import client_cache, resource_cache

    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    with mock_aws():
        cluster = fill_in(load("aws"), boto3.client("ec2", region_name="us-east-1"))
        calls: set[str] = set()
        for cache in (client_cache, resource_cache):  # a cached client would not count its calls
            cache.cache_clear()
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session())
        boto3.DEFAULT_SESSION.events.register("before-call.*", lambda model, **_: calls.add(f"ec2:{model.name}"))
        bootstrap(cluster)
        for cache in (client_cache, resource_cache):
            cache.cache_clear()
    machines, role = (statement for statement in json.loads(USER_POLICY.read_text())["Statement"])
    assert set(machines["Action"]) == calls | set(json.loads(HEAD_POLICY.read_text())["Statement"][0]["Action"])
    assert role["Action"] == "iam:PassRole"
    assert role["Resource"] == "arn:aws:iam::*:role/lr-sweep-head"
