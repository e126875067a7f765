"""Hosts reached by ssh, made from namespaces of this machine: each has its own network, processes and home.

Needs root, and a network, mount and PID namespace around everything (`make cluster-test` makes it), because `ray up`
calls `ray stop`, which ends every Ray process that it sees. All hosts use the environment of the tests by a link: it
imports `lr_sweep` from the checkout under test, but a job imports the copy that `submit` sent, which comes first.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lr_sweep.tests.support.chaos import processes
from lr_sweep.tests.support.tiny_study import ROOT
from lr_sweep.tests.support.waiting import wait_until

PROGRAMS = ("sshd", "ssh", "ssh-keygen", "ip", "unshare", "mount", "rsync")
SUBNET = "10.77.0"
HEAD, *WORKERS = (f"{SUBNET}.{number}" for number in range(10, 14))
SHARED = Path("/shared")
"""The disk that all hosts see."""
OUTSIDE = f"{SUBNET}.1"
STARTED_BY = ("pytest -m hosts", "hosts_shell")
"""What the first process of such a PID namespace has in its command line."""
SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/../key.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
AcceptEnv LC_*
"""
START = """
set -e
hostname {name}
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/ray /tmp/ray
mount -t tmpfs run /run
mkdir /run/sshd
exec {sshd} -D -f {folder}/sshd_config -E {folder}/sshd.log
"""


def what_is_missing() -> str | None:
    """Return why hosts cannot be made here; None: they can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if os.geteuid() != 0:
        return "needs root"
    if missing:
        return f"not installed here: {', '.join(missing)} (Debian: openssh-server, iproute2, rsync)"
    first = Path("/proc/1/cmdline").read_text()  # of this PID namespace
    if not any(command in first for command in STARTED_BY):
        return "needs namespaces of its own: `make cluster-test` or `make hosts`"
    return None


def call(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


class Hosts:
    """One bridge, and hosts on it; a shared disk at /shared.

    The machine outside is `.1` on the bridge: a laptop, with its home in `folder`/laptop.

    Args:
        folder: for the homes and logs of all.
        addresses: of the hosts that are there from the start.
    """

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        self.folder = folder
        self.key = folder / "key"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._mounts: list[str | Path] = []
        for path in (Path("/run/netns"), Path("/run/sshd"), SHARED, Path("/tmp/ray")):
            path.mkdir(parents=True, exist_ok=True)
        for name, place in (("shared", SHARED), ("laptop/ray", "/tmp/ray")):
            (folder / name).mkdir(parents=True)
            self._mount(place, "--bind", folder / name)
        self._mount("/run/netns", "-t", "tmpfs", "netns")
        self._make_names()
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        self._make_bridge()
        for address in addresses:
            self._make(address)
            self.start(address)

    def _mount(self, place: str | Path, *what: str | Path) -> None:
        call("mount", *what, place)
        self._mounts.append(place)

    def _make_names(self) -> None:
        """Have names resolved from files; ssh looks for its own files in the home of /etc/passwd."""
        hosts = [f"{SUBNET}.{number} host{number}" for number in range(2, 255)]
        files = {
            "hosts": ["127.0.0.1 localhost", f"{OUTSIDE} {platform.node()}", *hosts],
            "resolv.conf": ["nameserver 127.0.0.1"],
            "passwd": _users(self.folder / "laptop"),
        }
        for name, lines in files.items():
            path = self.folder / name
            path.write_text("\n".join([*lines, ""]))
            self._mount(f"/etc/{name}", "--bind", path)

    def _make_bridge(self) -> None:
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "br0", "type", "bridge")
        call("ip", "addr", "add", f"{OUTSIDE}/24", "dev", "br0")
        call("ip", "link", "set", "br0", "up")
        # Ray uses the address of the default route.
        call("ip", "route", "add", "default", "via", f"{SUBNET}.254")

    def _make(self, address: str) -> None:
        name, folder = _name(address), self._folder(address)
        for sub in ("home", "ray"):
            (folder / sub).mkdir(parents=True)
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key")
        (folder / "sshd_config").write_text(SSHD.format(folder=folder))
        (folder / "passwd").write_text("\n".join([*_users(folder / "home"), ""]))
        call("ip", "netns", "add", name)
        call("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        call("ip", "link", "set", name, "master", "br0", "up")
        call("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        call("ip", "-n", name, "link", "set", "eth0", "up")
        call("ip", "-n", name, "link", "set", "lo", "up")
        call("ip", "-n", name, "route", "add", "default", "via", OUTSIDE)

    def start(self, address: str) -> None:
        name, folder = _name(address), self._folder(address)
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
        script = START.format(name=name, folder=folder, sshd=sshd)
        spaces = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--uts")
        with (folder / "console.log").open("ab") as log:
            self._running[address] = subprocess.Popen(
                ["ip", "netns", "exec", name, *spaces, "sh", "-c", script], stdout=log, stderr=log
            )
        wait_until(lambda: "Server listening" in self._log(address), f"sshd of {name}")

    def kill(self, address: str) -> None:
        self._running[address].kill()  # its first process dies with this one, and all others with that
        self._running[address].wait()
        (self._folder(address) / "sshd.log").unlink(missing_ok=True)

    def cut_off(self, address: str) -> None:
        call("ip", "link", "set", _name(address), "down")

    def connect(self, address: str) -> None:
        call("ip", "link", "set", _name(address), "up")

    def trains(self, address: str) -> bool:
        network = _network(Path(f"/run/netns/{_name(address)}"))
        return network is not None and any(
            command.startswith("ray::") and "Trainable" in command and _network(Path(f"/proc/{pid}/ns/net")) == network
            for pid, _, command in processes()
        )

    def left(self, address: str) -> list[str]:
        """Return the commands that run on a host, and the ports that it listens on, besides those of sshd."""
        network = _network(Path(f"/run/netns/{_name(address)}"))
        running = [
            command
            for pid, _, command in processes()
            if _network(Path(f"/proc/{pid}/ns/net")) == network and not command.startswith(("unshare", "sshd:"))
        ]
        listing = ["ip", "netns", "exec", _name(address), "ss", "-Hlntu"]
        sockets = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
        return running + [line for line in sockets if ":22 " not in line]

    def end(self) -> None:
        for address in self._running:
            self.kill(address)
            call("ip", "link", "delete", _name(address))
        call("ip", "link", "delete", "br0")
        for place in reversed(self._mounts):
            call("umount", "--lazy", place)

    def _folder(self, address: str) -> Path:
        return self.folder / _name(address)

    def _log(self, address: str) -> str:
        log = self._folder(address) / "sshd.log"
        return log.read_text() if log.exists() else ""


def local_cluster_file(hosts: Hosts) -> Path:
    """Write docs/cluster/local.yaml for a head and workers: what it marks CHANGE, and one CPU for each.

    The environment is not installed on each host: it is a link to this one.
    """
    changes = {
        "192.0.2.10 ": f"{HEAD} ",
        "[192.0.2.11, 192.0.2.12]": f"[{', '.join(WORKERS)}]",
        "ssh_user: lab": "ssh_user: root",
        "~/.ssh/id_ed25519": str(hosts.key),
        "cd ~/lr-sweep && make env EXTRAS=cluster": f"ln -sfn {sys.prefix} ~/lr-sweep/.venv",
        "ray start --head": "ray start --head --num-cpus=1 --num-gpus=0 --object-store-memory=100000000",
        "ray start --address": "ray start --num-cpus=1 --num-gpus=0 --object-store-memory=100000000 --address",
    }
    text = (ROOT / "docs" / "cluster" / "local.yaml").read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = hosts.folder / "local.yaml"
    path.write_text(text)
    return path


def _users(home: Path) -> list[str]:
    """Return lines of /etc/passwd, with another home for root."""
    others = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")]
    return [f"root:x:0:0:root:{home}:/bin/bash", *others]


def _name(address: str) -> str:
    return f"host{address.rpartition('.')[2]}"


def _network(place: Path) -> int | None:
    """Return the number of a network namespace that is still there."""
    try:
        return place.stat().st_ino
    except OSError:
        return None
