"""Forwards a cluster's pages and its job server to this machine by ssh, the only port that its machines open."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from ruamel.yaml.error import YAMLError

from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, load_yaml
from lr_sweep.common.network import check_answers, check_listening
from lr_sweep.sweep.cluster.jobs import DEFAULT_ADDRESS
from lr_sweep.sweep.cluster.mlflow_server import head_token
from lr_sweep.sweep.live.guard import LOOPBACK, link

DASHBOARD_PORT = 8265
"""Port of Ray's page and job server, on the head and here, where `submit` expects it."""
MLFLOW_PORT = 5000
"""Port of the MLflow server that cluster files start on the head."""


def open_tunnels(cluster_file: Path, port: int = MLFLOW_PORT) -> int:
    """Keep tunnels to MLflow (`port` here) and Ray on a cluster's head open until Ctrl-C; return exit code 0.

    Raises UserError if the file describes no cluster, its head is not up or out of reach, a port here is taken, or the
    tunnels are lost.
    """
    if port == DASHBOARD_PORT:
        raise UserError(f"--port: got {port}, which Ray's page uses: choose another for MLflow's")
    cluster = read_cluster(cluster_file)
    forwarded = {port: MLFLOW_PORT, DASHBOARD_PORT: DASHBOARD_PORT}
    for each in forwarded:
        check_listening(LOOPBACK, each, "another program or tunnel may use it; --port sets MLflow's")
    text, command = _text(port, head_token()), ssh_command(cluster, head_address(cluster_file, cluster), forwarded)
    print(shlex.join(command), flush=True)
    with subprocess.Popen(command) as ssh:
        try:
            _wait(ssh, list(forwarded))
            print(text, flush=True)
            raise _lost(ssh.wait())
        except KeyboardInterrupt:
            return 0
        finally:
            ssh.terminate()


def _text(port: int, token: str) -> str:
    return (
        f"MLflow     {link(port, token)}  (the runs of all studies)\n"
        f"Ray        {DEFAULT_ADDRESS}, which asks for the token: `ray get-auth-token` prints it\n"
        "`submit` and `cluster` reach the job server there, too. Ctrl-C closes the tunnels."
    )


def read_cluster(cluster_file: Path) -> Fields:
    """Read a cluster file, which says how to reach the head; raises UserError for another or no file."""
    try:
        cluster = load_yaml(cluster_file)
    except (OSError, YAMLError) as error:
        raise UserError(f"--cluster: cannot read {cluster_file}: {error}") from error
    if not isinstance(cluster, dict) or not {"provider", "auth"} <= cluster.keys():
        raise UserError(f"--cluster: {cluster_file} has no `provider` and `auth`: name the file given to `ray up`")
    return cluster


def head_address(cluster_file: Path, cluster: Fields) -> str:
    """Return the address of a cluster's head; raises UserError if none is up."""
    if cluster["provider"].get("type") == "local":  # Ray itself knows it only where `ray up` ran
        return str(cluster["provider"]["head_ip"])
    from ray.autoscaler.sdk import get_head_node_ip

    try:
        return str(get_head_node_ip(str(cluster_file)))
    except Exception as error:  # Ray's RuntimeError, or any error of a cloud's library
        why = f"{cluster_file} has no head that is up ({reason(error)})"
        raise UserError(f"{why}: start it with `ray up {cluster_file}`") from error


def ssh_command(cluster: Fields, host: str, forwarded: dict[int, int]) -> list[str]:
    """Return the command that keeps tunnels to `host` open; `forwarded` maps a port here to the port there."""
    auth = cluster["auth"]
    options = ["ExitOnForwardFailure=yes", "ServerAliveInterval=10", "StrictHostKeyChecking=accept-new"]
    options += ["LogLevel=ERROR"]  # else a line for each request before a page is there
    options += [f"ProxyCommand={auth['ssh_proxy_command']}"] if auth.get("ssh_proxy_command") else []
    key = ["-i", str(Path(auth["ssh_private_key"]).expanduser())] if auth.get("ssh_private_key") else []
    tunnels = [f"-L{LOOPBACK}:{here}:{LOOPBACK}:{there}" for here, there in forwarded.items()]
    return ["ssh", "-N", *(f"-o{option}" for option in options), *key, *tunnels, f"{auth['ssh_user']}@{host}"]


def _wait(ssh: subprocess.Popen[bytes], ports: Sequence[int]) -> None:
    """Wait until the tunnels are open, without a limit: ssh may ask for a passphrase first."""
    while True:
        try:
            for port in ports:
                check_answers(LOOPBACK, port)
            return
        except OSError as error:
            if ssh.poll() is not None:
                raise _lost(ssh.returncode) from error
            time.sleep(0.2)


def _lost(code: int) -> UserError:
    return UserError(f"ssh ended (code {code}), and with it the tunnels; its reason is above.")
