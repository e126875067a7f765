"""The live page beside a `run`, in a process of its own: drawing it takes nothing from the driver.

    python -P -m lr_sweep.sweep.live.beside < arguments

The arguments are a line of JSON, since every user of the machine can list command lines and the token is among them.
The process ends with its standard input, which is when the driver ends, however it does.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lr_sweep.common.network import free_port
from lr_sweep.sweep.live.guard import link
from lr_sweep.sweep.live.server import serve
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.terminal import end_by_signals, output_to

Page = subprocess.Popen[str]


@contextmanager
def page_beside(results: Results) -> Iterator[tuple[Page, str]]:
    """Serve the page of a results directory while the block runs; yield its process, and the link."""
    port, token = free_port(), secrets.token_hex(16)
    arguments = {"root": str(results.root), "uri": results.uri, "port": port, "token": token}
    # In a session of its own: the terminal's Ctrl-C is for the sweep, which ends this.
    command = [sys.executable, "-P", "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True) as page:
        assert page.stdin is not None
        print(json.dumps(arguments), file=page.stdin, flush=True)
        try:
            yield page, link(port, token)
        finally:
            page.terminate()


def _serve(root: str, uri: str | None, port: int, token: str) -> None:
    end_by_signals()
    threading.Thread(target=_end_with_input, daemon=True).start()
    results = Results(Path(root))
    results.uri = uri  # a working copy is shown under the name of its store
    with output_to(results.logs / "ui.log"):
        serve(results, port, token, print)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _serve(**json.loads(sys.stdin.readline()))
