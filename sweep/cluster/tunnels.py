"""Forwards a cluster's pages and its job server to this machine by ssh.

`ray attach --port-forward` needs the computer where `ray up` ran, if the machines are your own.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.live.guard import LOOPBACK, link

from .jobs import DEFAULT_ADDRESS
from .mlflow_server import head_token
from .ssh import head_address, read_cluster, ssh

DASHBOARD_PORT = 8265
"""Port of Ray's page and job server, on the head and here, where `submit` expects it."""
MLFLOW_PORT = 5000
"""Port of the MLflow server that cluster files start on the head."""
PAGES = "LR_SWEEP_PAGES"
"""Name of the environment variable with the text that ssh prints: other users can read its command line."""
ONCE_OPEN = ("ExitOnForwardFailure=yes", "PermitLocalCommand=yes", f"LocalCommand=printenv {PAGES}")
"""Options of ssh; it runs the command here once the tunnels are open."""


def open_tunnels(cluster_file: Path, port: int = MLFLOW_PORT) -> int:
    """Keep tunnels to MLflow (`port` here) and Ray on a cluster's head open until Ctrl-C; return exit code 0.

    Raises UserError if the file describes no cluster, its head is not up or out of reach, a port here is taken, or the
    tunnels are lost.
    """
    cluster = read_cluster(cluster_file)
    forwarded = {port: MLFLOW_PORT, DASHBOARD_PORT: DASHBOARD_PORT}
    tunnels = [f"-L{LOOPBACK}:{here}:{LOOPBACK}:{there}" for here, there in forwarded.items()]
    pages = _text(link(port, head_token()))
    command = [*ssh(cluster, *ONCE_OPEN), "-N", *tunnels, head_address(cluster_file, cluster)]
    try:
        done = subprocess.run(command, env=os.environ | {PAGES: pages}, check=False)
    except KeyboardInterrupt:
        return 0
    raise UserError(
        f"ssh ended (code {done.returncode}), and with it the tunnels; its reason is above. If a port is taken, "
        f"--port sets MLflow's."
    )


def _text(mlflow: str) -> str:
    return (
        f"MLflow     {mlflow}  (the runs of all studies)\n"
        f"Ray        {DEFAULT_ADDRESS}, which asks for the token: `ray get-auth-token` prints it\n"
        "`submit` and `cluster` reach the job server there, too. Ctrl-C closes the tunnels."
    )
