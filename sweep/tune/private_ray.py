"""Makes a Ray that is started here private to its user: loopback only, its own token, a folder of mode 0700."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from lr_sweep.sweep.errors import UserError
from lr_sweep.trainables.ray_internals import loopback_alone, read_token_settings_again, temp_dir

_LONGEST_PATH = "/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""Below our folder, of Ray's sockets."""
_MAX_FOLDER_BYTES = 103 - len(_LONGEST_PATH)
"""The path of a socket has at most 103 bytes on macOS, 107 on Linux."""


@contextmanager
def private_ray() -> Iterator[Path]:
    """Prepare this process for starting a Ray that no other user of the machine or the network can use or read.

    Ray's processes take these settings from the environment, which stays changed until the block ends. Yields the
    folder for Ray's sessions, logs and Unix sockets; raises UserError if it cannot be made.
    """
    folder = own_folder(temp_dir())
    handle, token = tempfile.mkstemp(prefix="token-", dir=folder)  # 0600
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32))
    # Without a mode, Ray (2.60) asks for a token; a token in the environment would be the one for the user's cluster.
    settings = {"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": token}
    try:
        with loopback_alone() as loopback, _environment(settings | {loopback: "0"}):
            read_token_settings_again()
            yield folder / "ray"
    finally:
        read_token_settings_again()
        Path(token).unlink(missing_ok=True)


def own_folder(parent: Path) -> Path:
    """Return a folder that only this user can enter, in `parent`, or in /tmp if paths of sockets would be too long.

    Ray makes folders that all users can enter; inside this one they cannot. Raises UserError if it cannot be made.
    """
    name = f"lr-sweep-{os.getuid()}"
    if len(os.fsencode(parent / name)) > _MAX_FOLDER_BYTES:
        parent = Path("/tmp")
    try:
        with suppress(FileExistsError):
            (parent / name).mkdir(parents=True, mode=0o700)
        there = (parent / name).lstat()
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.getuid():  # another user made it first
            return Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))
        (parent / name).chmod(0o700)
    except OSError as error:
        raise UserError(
            f"cannot make a folder for Ray's logs and sockets: {error}. Set RAY_TMPDIR to a folder that is writable."
        ) from error
    return parent / name


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables, or unset (None), until the block ends."""
    before = {name: os.environ.pop(name, None) for name in changes}
    os.environ.update({name: value for name, value in changes.items() if value is not None})
    try:
        yield
    finally:
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})
