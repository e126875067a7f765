"""A shell beside a head and three workers made from namespaces, in which to try docs/cluster.md; `make hosts` opens it.

The shell is on the machine outside, the laptop of docs/cluster.md, with an empty home. `~/local.yaml` there is
docs/cluster/local.yaml with the hosts' addresses. The end of the shell ends the hosts and removes all their files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lr_sweep.tests.support.servers.ssh_hosts import HEAD, WORKERS, Hosts, local_cluster_file, what_is_missing
from lr_sweep.tests.support.tiny_study import ROOT, environment

GREETING = f"""\
A head ({HEAD}) and three workers ({", ".join(WORKERS)}) are up, and have a disk at /shared.
~/local.yaml is docs/cluster/local.yaml with these addresses. `exit` ends the hosts and removes all their files."""


def main() -> int:
    """Keep the hosts up until the shell ends; return its exit code, or 2 where no hosts can be made."""
    if reason := what_is_missing():
        print(f"error: hosts cannot be made here: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="hosts-", ignore_cleanup_errors=True) as folder:
        hosts = Hosts(Path(folder), (HEAD, *WORKERS))
        try:
            return _shell(hosts)
        finally:
            hosts.end()


def _shell(hosts: Hosts) -> int:
    home = hosts.folder / "laptop"
    local_cluster_file(hosts).rename(home / "local.yaml")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"HOME": str(home), "PATH": path, "TMPDIR": str(home), "PS1": "laptop$ ", "RAY_USAGE_STATS_ENABLED": "0"}
    print(GREETING, flush=True)
    return subprocess.run(["bash", "--norc"], cwd=ROOT, env=environment(**settings), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
