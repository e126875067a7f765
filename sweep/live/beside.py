"""The live page beside a `run`, in a process of its own: drawing it takes nothing from the driver."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from lr_sweep.common.network import free_port
from lr_sweep.sweep.live.server import link, serve
from lr_sweep.sweep.live.state import Live
from lr_sweep.sweep.mirror.client import end_by_signals, mlflow_pages
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.terminal import output_to


@contextmanager
def page_beside(results: Results) -> Iterator[tuple[BaseProcess, str]]:
    """Serve the page of a results directory while the block runs; yield its process, and the link."""
    port, token = free_port(), secrets.token_hex(16)
    arguments = results.root, results.uri, port, token
    page = multiprocessing.get_context("spawn").Process(target=_serve, args=arguments, daemon=True)
    page.start()
    try:
        yield page, link(port, token)
    finally:
        page.terminate()
        page.join()


def _serve(root: Path, uri: str | None, port: int, token: str) -> None:
    os.setsid()  # the terminal's Ctrl-C is for the sweep, which ends this
    end_by_signals()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    results = Results(root)
    results.uri = uri  # a working copy cannot be resumed
    with (
        output_to(results.logs / "ui.log"),
        mlflow_pages(root, print, port=free_port()) as pages,
        suppress(KeyboardInterrupt),
    ):
        serve(Live(results), port, token, pages)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
