"""docs/cluster.md: each `ray` command in it is run, with programs in place of ssh and rsync that only log."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.tests.support.cluster_files import FIRST_SWEEP
from lr_sweep.tests.support.tiny_study import ROOT, environment

PAGE = ROOT / "docs" / "cluster.md"
LOCAL = "docs/cluster/local.yaml"

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def ray_commands() -> list[str]:
    page = FIRST_SWEEP.sub("## ", PAGE.read_text())  # test_first_sweep.py runs that one, over ssh
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL))
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
    assert notes.index("make env EXTRAS=cluster") < notes.index("ray start --head") < notes.index("mlflow_server")
    assert secret.read_text() not in notes
    assert len(others) >= 4
    for command in others:
        there = shlex.split(command)[3]
        assert there in laptop.say(command), command
    assert "ray stop" in laptop.say(down)
