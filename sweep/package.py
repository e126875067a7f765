"""Packs the checkout, to be sent to a cluster with a job."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from sweep.errors import UserError
from sweep.provenance import PACKED_STATE, git_state

NOT_SHIPPED = [".git", ".venv", "results", "data", "docs", "tests", "**/__pycache__"]
"""Left out of what a cluster's machines get of the checkout."""
NAMED_FILES = 5
"""How many of the largest files the error about a package that is too large names."""
_BLOCK_BYTES = 1 << 20
_DAY_ONE = (1980, 1, 1, 0, 0, 0)
"""Of every file in a package: equal files make equal packages, and one that the cluster has is not sent again."""


def max_package_bytes() -> int:
    """Return how large a package Ray's job server takes."""
    from ray._private.ray_constants import DASHBOARD_CLIENT_MAX_SIZE

    return int(DASHBOARD_CLIENT_MAX_SIZE)


def pack(checkout: Path, extra: dict[str, str], package: Path, max_bytes: int) -> int:
    """Write a checkout's files and some more into a .zip, and return its size in bytes.

    Left out is what workers have no use for, and what `.gitignore` and `.rayignore` name.

    Args:
        checkout: the folder that `sweep` is in.
        extra: path in the package to text, of files that are not in the checkout.
        package: the file to write.
        max_bytes: what the job server takes.

    Raises:
        UserError: it gets larger than that; the largest files are named.
    """
    files = shipped_files(checkout)
    commit, changed = git_state()
    state = {PACKED_STATE: json.dumps({"git_commit": commit, "git_dirty": changed})}
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (state | extra).items():
            archive.writestr(_entry(name), text)
        for file in files:
            with file.open("rb") as source, archive.open(_entry(file.relative_to(checkout).as_posix()), "w") as target:
                while (block := source.read(_BLOCK_BYTES)) and package.stat().st_size <= max_bytes:
                    target.write(block)
            if package.stat().st_size > max_bytes:  # looked at on the way: somebody may have data in there
                raise _too_large(checkout, files, max_bytes)
    return package.stat().st_size


def shipped_files(checkout: Path) -> list[Path]:
    """Return the files of a checkout that go to a cluster, by Ray's rules for its own packages, sorted."""
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    found: list[Path] = []
    _dir_travel(checkout, [_get_excludes(checkout, NOT_SHIPPED)], found.append, include_gitignore=True, logger=_Quiet())
    return sorted(path for path in found if path.is_file())


class _Quiet:
    """In place of a logger: Ray tells at every package which ignore files it heeds."""

    def info(self, message: str) -> None:
        pass

    error = info


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DAY_ONE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _too_large(checkout: Path, files: list[Path], max_bytes: int) -> UserError:
    largest = sorted(files, key=lambda file: file.stat().st_size, reverse=True)[:NAMED_FILES]
    named = ", ".join(f"{file.relative_to(checkout)} ({file.stat().st_size / 2**20:.1f} MiB)" for file in largest)
    return UserError(
        f"{checkout} packed is larger than the {max_bytes / 2**20:.0f} MiB that a cluster's job server takes. Its "
        f"largest files: {named}. Move what is no part of the program elsewhere, or name it in .gitignore or "
        f".rayignore."
    )
