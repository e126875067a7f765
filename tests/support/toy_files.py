"""Files of a made-up task, and what downloads them in place of a network."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from urllib.error import URLError

from lr_sweep.datasets.files import RemoteFiles

CONTENT = {"raw/a.bin": b"first", "raw/b.bin": b"second"}


def write_files(folder: Path) -> None:
    for name, content in CONTENT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def no_network(folder: Path) -> None:
    raise URLError("Name or service not known")


REMOTE = RemoteFiles(
    task="toy",
    md5s={name: hashlib.md5(content).hexdigest() for name, content in CONTENT.items()},
    download=write_files,
    by_hand="copy the files to {folder}.",
)
OFFLINE = dataclasses.replace(REMOTE, download=no_network)
