"""`ui FILE`, with a program in place of ssh that listens where ssh would."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster.ssh import head_address, read_cluster, ssh
from lr_sweep.sweep.cluster.tunnels import ONCE_OPEN, PAGES
from lr_sweep.tests.support.small_cluster import FILES, write_program
from lr_sweep.tests.support.tiny_study import ROOT, environment, refused, sweep_until

LOCAL = FILES["local"]
FAKE_SSH = """
import os, socket, sys, time

ports = [int(word.split(":")[1]) for word in sys.argv if word.startswith("-L")]
if {dies}:
    sys.exit("lab@192.0.2.10: Permission denied (publickey).")
servers = [socket.create_server(("127.0.0.1", port)) for port in ports]
(local,) = [word.partition("=")[2] for word in sys.argv if word.startswith("-oLocalCommand=")]
os.system(local)
assert "token" not in str(sys.argv)
time.sleep(1000)
"""


@pytest.fixture
def port() -> int:
    """One for MLflow's page; Ray's has its own."""
    try:
        socket.create_server(("127.0.0.1", 8265)).close()
    except OSError:
        pytest.skip("port 8265 is taken here")
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def fake_ssh(folder: Path, *, dies: bool = False) -> dict[str, str]:
    """Write it, and return an environment in which it is found."""
    program = write_program(folder / "bin" / "ssh", f"#!{sys.executable}\n{FAKE_SSH.format(dies=dies)}")
    (token := folder / ".ray" / "auth_token").parent.mkdir()
    token.write_text("of the cluster")
    return environment(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}", HOME=str(folder))


def ui(env: dict[str, str], port: int, until: str) -> tuple[int, str]:
    """Run the command, press Ctrl-C when it has printed `until`, and return its exit code and all it printed."""
    return sweep_until(until, "ui", LOCAL, "--port", str(port), env=env, timeout_s=60)


def test_the_command_for_machines_of_one_s_own() -> None:
    cluster = read_cluster(LOCAL)
    assert [*ssh(cluster, "ConnectTimeout=9"), head_address(LOCAL, cluster)] == [
        "ssh",
        "-oConnectTimeout=9",
        "-oServerAliveInterval=10",
        "-oStrictHostKeyChecking=accept-new",
        "-oLogLevel=ERROR",
        "-oUser=lab",
        "-i",
        str(Path.home() / ".ssh" / "id_ed25519"),
        "192.0.2.10",
    ]
    through_another = {"auth": {"ssh_user": "lab", "ssh_proxy_command": "ssh -W %h:%p gate"}}
    command = ssh(through_another)
    assert "-oProxyCommand=ssh -W %h:%p gate" in command
    assert "-i" not in command
    cluster["provider"]["external_head_ip"] = "198.51.100.7"  # its address outside of its network
    assert head_address(LOCAL, cluster) == "198.51.100.7"


@pytest.mark.cluster
def test_a_head_in_a_cloud_that_is_not_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(file: str) -> str:
        raise RuntimeError("Head node of cluster (lr-sweep) not found!")

    monkeypatch.setattr("ray.autoscaler.sdk.get_head_node_ip", ask)
    with pytest.raises(UserError, match=r"cluster.yaml has no head that is up .*not found.*: start it with `ray up "):
        head_address(FILES["aws"], read_cluster(FILES["aws"]))


def test_it_says_where_the_pages_are_until_ctrl_c(tmp_path: Path, port: int) -> None:
    """The token of MLflow's page is the checksum of Ray's."""
    code, printed = ui(fake_ssh(tmp_path), port, "Ctrl-C closes")
    assert code == 0
    assert f" http://127.0.0.1:{port}/?token={sha256(b'of the cluster').hexdigest()} " in printed
    assert " http://127.0.0.1:8265," in printed
    assert "Traceback" not in printed
    for each in (port, 8265):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", each))


def test_ssh_that_fails(tmp_path: Path, port: int) -> None:
    code, printed = ui(fake_ssh(tmp_path, dies=True), port, "never")
    assert code == 2
    assert "lab@192.0.2.10: Permission denied (publickey)." in printed
    assert "error: ssh ended (code 1), and with it the tunnels; its reason is above" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("no.yaml",), "cannot read no.yaml: [Errno 2] No such file"),
        (("pyproject.toml",), "cannot read pyproject.toml: "),
        (("docs/architecture.md",), ""),
    ],
)
def test_mistakes(options: tuple[str, ...], wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert f"error: {wanted}" in refused("ui", *options)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_ssh_opens_tunnels_before_it_prints_and_ends_where_a_port_is_taken(tmp_path: Path) -> None:
    """`ssh -G` shows the settings that the options make; with another option of one name, the first one counts."""
    options = ssh(read_cluster(LOCAL), *ONCE_OPEN)[1:]
    settings = subprocess.run(["ssh", "-G", *options, "192.0.2.10"], capture_output=True, text=True, check=True).stdout
    for setting in ("exitonforwardfailure yes", "permitlocalcommand yes", f"localcommand printenv {PAGES}"):
        assert setting in settings.splitlines()
