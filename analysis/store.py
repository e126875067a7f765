"""An object store that holds a results directory, such as `s3://bucket/prefix`: whole objects, read and written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from analysis.record import RecordError

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
"""Stores where an object that is being uploaded is not seen until it is whole."""
PIECE_BYTES = 8 << 20
"""Large objects are read in pieces of this size."""


class StoreError(RecordError):
    """The store's address is wrong, or it cannot be reached; the message says what to do."""


@dataclass(frozen=True)
class Stamp:
    """What a listing tells of an object; another version of it has another stamp, unless both are of one second."""

    num_bytes: int
    modified_ns: int
    """By the store's clock, in ns since 1970; stores keep it to the second."""


def local_path(location: str) -> Path | None:
    """Return the directory that a path or a `file://` URI names; None: it is another URI, of a store."""
    if "://" not in location:
        return Path(location)
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


class Store:
    """Objects below a URI, by their names relative to it. Every method may raise OSError while the store is away.

    Raises:
        StoreError: no address of a store, or one with credentials in it.
    """

    def __init__(self, uri: str) -> None:
        self.uri = checked(uri)
        with told(self.uri):
            self._fs, root = fs.FileSystem.from_uri(self.uri)
        self._root = PurePosixPath(root)

    def names(self, folder: str) -> dict[str, Stamp]:
        """List all objects below a folder, at any depth; none if it is not there."""
        selector = fs.FileSelector(str(self._root / folder), recursive=True, allow_not_found=True)
        return {
            str(PurePosixPath(found.path).relative_to(self._root)): Stamp(found.size, found.mtime_ns)
            for found in self._fs.get_file_info(selector)
            if found.type == fs.FileType.File
        }

    def has_bucket(self) -> bool:
        """Tell whether there is a bucket to put anything into: one that is missing lists like an empty one."""
        return bool(self._fs.get_file_info(self._root.parts[0]).type != fs.FileType.NotFound)

    def top(self) -> set[str]:
        """List objects and folders at the top."""
        selector = fs.FileSelector(str(self._root), allow_not_found=True)
        return {found.base_name for found in self._fs.get_file_info(selector)}

    def stamp(self, name: str) -> Stamp | None:
        """Return the stamp of an object; None: there is none."""
        found = self._fs.get_file_info(str(self._root / name))
        return Stamp(found.size, found.mtime_ns) if found.type == fs.FileType.File else None

    def read(self, name: str) -> bytes:
        """Return an object's content; raises FileNotFoundError if there is none."""
        with self._fs.open_input_stream(str(self._root / name)) as stream:
            content: bytes = stream.read()
        return content

    def sha256(self, name: str) -> str:
        """Return the checksum of an object that may be large; raises FileNotFoundError if there is none."""
        digest = hashlib.sha256()
        with self._fs.open_input_stream(str(self._root / name)) as stream:
            while piece := stream.read(PIECE_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def write(self, name: str, content: bytes | pa.Buffer) -> None:
        """Put an object in the place of the one of this name, whole or not at all."""
        stream = self._fs.open_output_stream(str(self._root / name))
        stream.write(content)
        stream.close()  # not by `with`, which would put half an object there if `write` was interrupted

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        try:
            self._fs.delete_file(str(self._root / name))
        except FileNotFoundError:
            return


def checked(uri: str) -> str:
    """Return a store's URI in its one spelling.

    Raises:
        StoreError: it is none, or has credentials in it.
    """
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        raise StoreError(
            f"got {uri}, want a directory, file:///PATH, or an object store, {'://..., '.join(SCHEMES)}://...: only "
            f"there half a file is never seen"
        )
    if "@" in parts.netloc and parts.scheme not in ("abfs", "abfss"):
        raise StoreError(
            f"got credentials in the address of {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}, which "
            f"is printed and logged: leave them out, and give them as the store's own tools take them (environment, "
            f"profile, the machine's role)"
        )
    if not parts.netloc:
        raise StoreError(f"got {uri}, want the name of a bucket in it: {parts.scheme}://BUCKET/PREFIX")
    return uri.rstrip("/")


@contextmanager
def told(uri: str) -> Iterator[None]:
    """Turn what a store's library raises into a message.

    Raises:
        StoreError: in place of its errors.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StoreError(
            f"cannot use {uri}: {reason}. Look at the bucket's name, the network and the credentials; the same command "
            f"goes on from what is recorded."
        ) from error
