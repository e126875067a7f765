"""An S3 server on this machine, and simulated machines that share nothing else."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from lr_sweep.common.network import free_port

SECRET = "a-key-that-must-not-be-written-down"


class S3Server:
    """moto's, in a thread; objects outlive a stop."""

    def __init__(self) -> None:
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    @contextmanager
    def away(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    def empty(self, bucket: str) -> None:
        """Forget everything, and make a bucket."""
        for method, path in (("POST", "moto-api/reset"), ("PUT", bucket)):
            urllib.request.urlopen(urllib.request.Request(f"{self.url}/{path}", method=method)).close()


def environment_of(server: S3Server, cache: Path) -> dict[str, str]:
    """Return the variables that reach the server, and hide this machine's own settings."""
    return {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "XDG_CACHE_HOME": str(cache),
    }


class Machines:
    """Lets this process act as one of several machines, each with its own cache."""

    def __init__(self, server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self._folder, self._monkeypatch = server, folder, monkeypatch

    def be(self, name: str) -> Path:
        """Become a machine; returns its cache folder."""
        cache = self._folder / name
        for key, value in environment_of(self.server, cache).items():
            self._monkeypatch.setenv(key, value)
        return cache
