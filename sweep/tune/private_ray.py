"""Makes a Ray that is started here private to its user: loopback only, its own token, a folder of mode 0700."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.scratch import locked_folder, own_folder, remove_dead
from lr_sweep.trainables.ray_internals import loopback_alone, read_token_settings_again, temp_dir

_LONGEST_PATH = "/r-99/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""Below our folder, of Ray's sockets."""
_MAX_FOLDER_BYTES = 103 - len(_LONGEST_PATH)
"""The path of a socket has at most 103 bytes on macOS, 107 on Linux."""


@contextmanager
def private_ray() -> Iterator[Path]:
    """Prepare this process for starting a Ray that no other user of the machine or the network can use or read.

    Ray's processes take these settings from the environment, which stays changed until the block ends. Yields the
    folder for Ray's sessions, logs and Unix sockets, which the user's next Ray removes; raises UserError if it cannot
    be made.
    """
    with locked_folder(_ours(), "r-") as folder:
        (token := folder / "token").touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        # Without a mode, Ray (2.60) asks for a token; one in the environment would be that of the user's cluster.
        settings = {"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": str(token)}
        try:
            with loopback_alone() as loopback, _environment(settings | {loopback: "0"}):
                read_token_settings_again()
                yield folder
        finally:
            read_token_settings_again()
            token.unlink(missing_ok=True)


def _ours() -> Path:
    """Return a folder that only this user can enter, and remove what ended processes left there.

    Ray makes folders that all users can enter; inside this one they cannot.
    """
    try:
        folder = own_folder(temp_dir(), _MAX_FOLDER_BYTES)
        remove_dead(folder)
    except OSError as error:
        raise UserError(
            f"cannot make a folder for Ray's logs and sockets: {error}. Set RAY_TMPDIR to a folder that is writable."
        ) from error
    return folder


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
