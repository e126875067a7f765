"""Forwards a cluster's pages and its job server to this machine by ssh."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.network import check_answers, check_listening
from lr_sweep.sweep.cluster.jobs import DEFAULT_ADDRESS
from lr_sweep.sweep.cluster.mlflow_server import head_token
from lr_sweep.sweep.cluster.ssh import head_address, read_cluster, ssh
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
        check_listening(
            LOOPBACK, each, "another program or tunnel may use it; --port sets MLflow's"
        )
    tunnels = [f"-L{LOOPBACK}:{here}:{LOOPBACK}:{there}" for here, there in forwarded.items()]
    text, head = _text(port, head_token()), head_address(cluster_file, cluster)
    command = [*ssh(cluster, "ExitOnForwardFailure=yes"), "-N", *tunnels, head]
    print(shlex.join(command), flush=True)
    with subprocess.Popen(command) as process:
        try:
            _wait(process, list(forwarded))
            print(text, flush=True)
            raise _lost(process.wait())
        except KeyboardInterrupt:
            return 0
        finally:
            process.terminate()


def _text(port: int, token: str) -> str:
    return (
        f"MLflow     {link(port, token)}  (the runs of all studies)\n"
        f"Ray        {DEFAULT_ADDRESS}, which asks for the token: `ray get-auth-token` prints it\n"
        "`submit` and `cluster` reach the job server there, too. Ctrl-C closes the tunnels."
    )


def _wait(process: subprocess.Popen[bytes], ports: Sequence[int]) -> None:
    """Wait until the tunnels are open, without a limit: ssh may ask for a passphrase first."""
    while True:
        try:
            for port in ports:
                check_answers(LOOPBACK, port)
            return
        except OSError as error:
            if process.poll() is not None:
                raise _lost(process.returncode) from error
            time.sleep(0.2)


def _lost(code: int) -> UserError:
    return UserError(f"ssh ended (code {code}), and with it the tunnels; its reason is above.")
