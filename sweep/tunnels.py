"""Brings a cluster's pages and its job server here through ssh, the one thing that its machines have open."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from sweep.cluster_jobs import DEFAULT_ADDRESS
from sweep.errors import UserError
from sweep.mlflow_store import EXPERIMENT
from sweep.network import check_answers
from sweep.ui import check_listening, experiment_page

DASHBOARD_PORT = 8265
"""Of Ray's page and job server, there and here: `submit` looks for it there."""
MLFLOW_PORT = 5000
"""Of the MLflow server that the cluster files start on the head."""
HERE = "127.0.0.1"


def open_tunnels(cluster_file: Path, port: int = MLFLOW_PORT) -> int:
    """Hold tunnels to MLflow and Ray on a cluster's head until Ctrl-C.

    Args:
        cluster_file: what `ray up` was given.
        port: TCP port for MLflow's page on this machine.

    Returns:
        Exit code: 0 after Ctrl-C.

    Raises:
        UserError: the file is no cluster's, its head is not up or out of reach, or a port here is taken.
    """
    if port == DASHBOARD_PORT:
        raise UserError(f"--port: got {port}, which is where Ray's page goes: choose another for MLflow's")
    cluster = read_cluster(cluster_file)
    forwarded = {port: MLFLOW_PORT, DASHBOARD_PORT: DASHBOARD_PORT}
    for each in forwarded:
        check_listening(HERE, each, "another program, or another tunnel, may have it; --port is for MLflow's")
    command = ssh_command(cluster, head_address(cluster_file, cluster), forwarded)
    print(shlex.join(command), flush=True)
    with subprocess.Popen(command) as ssh:
        try:
            _wait(ssh, list(forwarded))
            print(f"MLflow     {_mlflow_page(port)}")
            print(f"Ray        {DEFAULT_ADDRESS}, which asks for the token: `ray get-auth-token` prints it")
            print("The job server is there, too, for `submit` and `job`. Ctrl-C closes the tunnels.", flush=True)
            ended = ssh.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            ssh.terminate()
    raise _lost(ended)


def read_cluster(cluster_file: Path) -> dict[str, Any]:
    """Read what of a cluster file says how to reach its head.

    Raises:
        UserError: there is no such file, or it is no cluster's.
    """
    try:
        cluster = YAML(typ="safe").load(cluster_file)
    except (OSError, YAMLError) as error:
        raise UserError(f"--cluster: cannot read {cluster_file}: {error}") from error
    if not isinstance(cluster, dict) or not {"provider", "auth"} <= cluster.keys():
        raise UserError(
            f"--cluster: {cluster_file} has no `provider` and `auth`: give the file that `ray up` was given"
        )
    return cluster


def head_address(cluster_file: Path, cluster: dict[str, Any]) -> str:
    """Return the address of a cluster's head.

    Raises:
        UserError: it has none at the moment.
    """
    if cluster["provider"].get("type") == "local":  # whoever did not `ray up` has no other knowledge of it
        return str(cluster["provider"]["head_ip"])
    from ray.autoscaler.sdk import get_head_node_ip

    try:
        return str(get_head_node_ip(str(cluster_file)))
    except Exception as error:  # Ray's RuntimeError, or whatever a cloud's library raises
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{cluster_file} has no head that is up ({reason}): start it with `ray up {cluster_file}`"
        ) from error


def ssh_command(cluster: dict[str, Any], host: str, forwarded: dict[int, int]) -> list[str]:
    """Return the command that holds the tunnels, from the loopback address here to that of the head.

    Args:
        cluster: what its file says.
        host: the head's address.
        forwarded: port here to port there.
    """
    auth = cluster["auth"]
    options = ["ExitOnForwardFailure=yes", "ServerAliveInterval=30", "StrictHostKeyChecking=accept-new"]
    options += [f"ProxyCommand={auth['ssh_proxy_command']}"] if auth.get("ssh_proxy_command") else []
    key = ["-i", str(Path(auth["ssh_private_key"]).expanduser())] if auth.get("ssh_private_key") else []
    tunnels = [f"-L{HERE}:{here}:{HERE}:{there}" for here, there in forwarded.items()]
    return ["ssh", "-N", *(f"-o{option}" for option in options), *key, *tunnels, f"{auth['ssh_user']}@{host}"]


def _wait(ssh: subprocess.Popen[bytes], ports: Sequence[int]) -> None:
    """Wait until the tunnels are there; ssh may ask for a passphrase first, so for as long as it takes."""
    while True:
        try:
            for port in ports:
                check_answers(HERE, port)
            return
        except OSError as error:
            if ssh.poll() is not None:
                raise _lost(ssh.returncode) from error
            time.sleep(0.2)


def _lost(code: int) -> UserError:
    return UserError(f"ssh ended (code {code}), and with it the tunnels; its reason is above. The cluster goes on.")


def _mlflow_page(port: int) -> str:
    """Return where the page with the sweep's runs is, or what there is of it."""
    server = f"http://{HERE}:{port}"
    asked = f"{server}/api/2.0/mlflow/experiments/get-by-name?experiment_name={quote(EXPERIMENT)}"
    try:
        with urlopen(asked, timeout=30) as answer:
            return experiment_page(server, json.load(answer)["experiment"]["experiment_id"])
    except HTTPError as error:
        if error.code == 404:
            return f"{server}, where no study was trained yet"
        return f"{server} answers with {error}"
    except OSError as error:
        return f"{server} does not answer yet ({error}); `~/mlflow/server.log` on the head says more"
