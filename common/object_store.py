"""Objects in S3, or a server of its protocol, below an address such as `s3://bucket/prefix`.

An object that is being uploaded is not seen until it is whole, and lists show what was put before they began.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from .errors import UserError, reason, translated
from .network import shown_uri

log = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE_S = 20.0
"""Seconds for which a request is made again, unless the user of the store says otherwise."""
_PAUSES_S = (0.1, 5.0)
"""Seconds before a request is made again, at first and at most: each pause is up to twice as long as the one before."""
_NOT_THERE = ("404", "NoSuchKey")
_OVERLOADED = (408, 429)
"""Codes of HTTP below 500 by which a server asks for another try."""
_CONDITION_FAILED = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict", *_NOT_THERE)


class UnansweredError(OSError):
    """A server is away or overloaded, or its answer was cut off: the same request may succeed later."""


class StoreError(UserError):
    """The store's address is wrong, or it cannot be used; the message says what to do."""


@dataclass(frozen=True)
class StoredObject:
    """An object of a store, as it was read."""

    content: bytes
    version: str
    age_s: float
    """Seconds since it was put, by the server's clock alone."""

    def facts(self) -> dict[str, Any]:
        """Return the content as a JSON object; empty if it is none."""
        try:
            content = json.loads(self.content)
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}


class ObjectStore:
    """Objects below a URI, by their names relative to it; boto3 finds the credentials, and versions are ETags.

    A request to which the server gives no whole answer is made again for `patience_s`, then raises UnansweredError.
    Every method raises OSError if the server refuses, without an `errno`, and FileNotFoundError where it needs an
    object that is not there. Raises StoreError if the URI is not an object store's, or boto3 cannot be set up.
    """

    def __init__(self, uri: str, *, patience_s: float = PATIENCE_S) -> None:
        self.uri, self.patience_s = checked(uri), patience_s
        self._has_warned = False
        parts = urlsplit(self.uri)
        self._bucket, self._root = parts.netloc, unquote(parts.path).strip("/")
        import boto3  # late: it takes a fifth of a second, and results on a disk need none
        from botocore.config import Config
        from botocore.handlers import add_expect_header

        retries = {"mode": "standard", "total_max_attempts": 3}
        # Three attempts on a connection that has died without a word end before `settle` loses patience.
        config = Config(
            retries=retries, connect_timeout=10, read_timeout=20, max_pool_connections=32
        )
        with reachable(self.uri), _problems():
            self._client = boto3.session.Session().client("s3", config=config)
            # No `Expect: 100-continue`: on a busy machine botocore (1.44) and a server waited for each other for 20 s.
            self._client.meta.events.unregister("before-call.s3", add_expect_header)

    def listed(self, folder: str = "") -> Iterator[tuple[str, str]]:
        """Yield names and versions of all objects below a folder, at any depth."""
        asked = {"Bucket": self._bucket, "Prefix": self._key(f"{folder}/" if folder else "")}
        while asked:
            page = self._answer(partial(self._client.list_objects_v2, **asked))
            for stored in page.get("Contents", ()):
                yield stored["Key"].removeprefix(self._key("")), stored["ETag"]
            following = page.get("NextContinuationToken")
            asked = asked | {"ContinuationToken": following} if following else {}

    def names(self, folder: str) -> dict[str, str]:
        """Return the versions of all objects below a folder, by name; none if it is not there."""
        return dict(self.listed(folder))

    def find(self, name: str) -> StoredObject | None:
        """Read an object; None: it is not there."""

        def read() -> StoredObject:
            answer = self._client.get_object(**self._object(name))
            now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
            return StoredObject(
                answer["Body"].read(),
                answer["ETag"],
                (now - answer["LastModified"]).total_seconds(),
            )

        try:
            return self._answer(read)
        except FileNotFoundError:
            return None

    def sha256(self, name: str) -> str:
        """Return the checksum of an object that may be large."""

        def read() -> str:
            digest = hashlib.sha256()
            for piece in self._client.get_object(**self._object(name))["Body"].iter_chunks(8 << 20):
                digest.update(piece)
            return digest.hexdigest()

        return self._answer(read)

    def download(self, name: str, path: Path) -> None:
        """Write an object, which may be large, to a file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._answer(lambda: self._client.download_file(self._bucket, self._key(name), str(path)))

    def write(self, name: str, content: bytes) -> None:
        """Put an object; it replaces the one of this name."""
        self._answer(lambda: self._client.put_object(**self._object(name), Body=content))

    def upload(self, path: Path, name: str) -> None:
        """Put a file, which may be large, as the object of this name; FileNotFoundError: there is no such file."""
        # Opened here: of a path that is replaced now, boto3 might send another file's length.
        with path.open("rb") as file, _problems():
            self._client.upload_fileobj(file, self._bucket, self._key(name))

    def write_if(self, version: str | None, name: str, content: bytes) -> str | None:
        """Put an object if the one of this name still has a version (None: if there is none).

        Returns the new version; None: the condition does not hold, and nothing was written.
        """
        from botocore.exceptions import ClientError

        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}

        def put() -> str | None:
            place = self._object(name)
            try:
                return str(self._client.put_object(**place, Body=content, **condition)["ETag"])
            except ClientError as error:
                if error.response["Error"]["Code"] in _CONDITION_FAILED:
                    return None
                raise

        return self._answer(put)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        self._answer(lambda: self._client.delete_object(**self._object(name)))

    def _answer(self, request: Callable[[], T]) -> T:
        """Return what a request returns, with the body of its answer read: botocore tries again only up to the body."""
        end, (pause_s, longest_s) = time.monotonic() + self.patience_s, _PAUSES_S
        while True:
            try:
                with _problems():
                    return request()
            except UnansweredError as problem:
                if time.monotonic() + pause_s > end:
                    raise
                if not self._has_warned:
                    text = (
                        f"{self.uri}: {reason(problem)}; trying again for {self.patience_s:.0f} s"
                    )
                    log.warning(text)
                self._has_warned = True
            time.sleep(pause_s * random.uniform(0.5, 1.0))  # not all threads at once
            pause_s = min(2 * pause_s, longest_s)

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key(name)}

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}" if self._root else name


def local_path(location: str) -> Path | None:
    """Return the directory that a path names; None: it is the address of a store."""
    return None if "://" in location else Path(location)


def checked(uri: str) -> str:
    """Return a store's URI in its one spelling; raises StoreError if it is none, or has credentials in it."""
    parts = urlsplit(uri)
    if set(parts.netloc) & set("@:"):  # a secret key with a `/` ends the part before its `@`
        raise StoreError(
            f"got credentials in the address of {shown_uri(uri)}, which is printed and logged: leave them out; AWS's "
            f"tools take them from the environment, a profile or the machine's role"
        )
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise StoreError(
            f"got {shown_uri(uri)}, want a directory, or s3://BUCKET/PREFIX alone: name another server of S3's "
            f"protocol with AWS_ENDPOINT_URL, a region with AWS_DEFAULT_REGION"
        )
    return uri.rstrip("/")


def reachable(uri: str) -> AbstractContextManager[None]:
    """Turn the OSErrors of a store into a StoreError."""

    def explain(error: Exception) -> StoreError:
        return StoreError(
            f"cannot use {uri}: {reason(error)}. Check the bucket's name, the network and the credentials, then give "
            f"the same command again."
        )

    return translated((OSError,), explain)


def _problems() -> AbstractContextManager[None]:
    from boto3.exceptions import Boto3Error, RetriesExceededError
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError

    def explain(error: Exception) -> OSError:
        passes = isinstance(error, HTTPClientError | IncompleteReadError | RetriesExceededError)
        if isinstance(error, ClientError):
            if error.response["Error"]["Code"] in _NOT_THERE:
                return FileNotFoundError(errno.ENOENT, "no such object")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            passes = status >= 500 or status in _OVERLOADED
        return UnansweredError(reason(error)) if passes else OSError(reason(error))

    return translated((ClientError, BotoCoreError, Boto3Error), explain)
