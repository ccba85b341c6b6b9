"""A table folder behind the storage endpoint of a service.

    staged in a local file ─▶ uploaded to Files/_publishing/ ─▶ renamed to its number, where that is free

A rename is one step, fails where the number is taken or the table folder is gone, and of a repeated one the source is
missing: so a file gets one number, whatever becomes of the answers. There is no lock across the network. A publisher
that slept between counting and the rename may take a number that was applied and moved away meanwhile; then the moved
file is still there, and this one is taken back and numbered again.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import io
import json
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote
from xml.etree import ElementTree as etree

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.zone import PROCESSED
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.folders.endpoint import WHERE, Answer, Endpoint
from lakemirror.publisher.folders.table_folder import (
    ABANDONED_SECONDS,
    DROPPED_PREFIX,
    IS_DROPPED,
    IS_TEMPORARY,
    TEMPORARY_PREFIX,
    write_whole,
)

KEPT = "Files/_publishing"  # of the database: uploads that have no number yet
SEQUENCE = "_sequence"
_BLOCK = 64 << 20  # bytes of one request
_TAIL = 64 << 10  # bytes that are read first: a Parquet footer is at the end
_PAGE = "5000"
_LOCKS: dict[str, threading.Lock] = {}


class EndpointFolder:
    """A table folder of a database behind a service (`table_folder.TableFolder`)."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        self._endpoint = endpoint
        self._folder = path
        self._remembered = 0

    @property
    def path(self) -> Path:
        return Path(self._folder)

    def is_there(self) -> bool:
        return self._head(self._folder)

    def make(self) -> None:
        if self.is_there():
            return
        for folder in (KEPT, self._folder):
            answer = self._endpoint.ask("PUT", folder, {"resource": "directory"})
            if answer.status == 404:
                raise LakemirrorError(
                    "database-missing", f"{self._endpoint.url}: there is no such database", hint=WHERE
                )
            if answer.status != 201:
                raise self._endpoint.refusal(answer, folder)

    def names(self, inner: str = "", first: str = "") -> list[str]:
        folder = f"{self._folder}/{inner}".rstrip("/")
        return self._names_from(folder, first) if first else [name for name, _ in self._listed(folder)]

    def has(self, name: str) -> bool:
        return self._head(f"{self._folder}/{name}")

    def open(self, name: str) -> BinaryIO:
        return io.BufferedReader(_RemoteFile(self._endpoint, f"{self._folder}/{name}"), _TAIL)

    def content(self, name: str) -> pa.Buffer:
        with self.open(name) as file:
            return pa.py_buffer(file.read())

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Nothing is to be done: staged files are not in the table folder."""
        yield

    def staged(self, suffix: str = "tmp") -> Path:
        return Path(tempfile.gettempdir()) / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}.{suffix}"

    def replace(self, staged: Path, name: str, *, new: bool = False) -> None:
        token = uuid.uuid4().hex
        path = f"{self._folder}/{name}"
        if not new:
            self._upload(staged, path)
            return
        # uploaded under a name of its own, then renamed: so a repeated request cannot meet its own file
        kept = f"{KEPT}/{TEMPORARY_PREFIX}{token}"
        self._upload(staged, kept)
        try:
            self._rename(kept, path)
        except OSError:
            self._delete(kept)
            raise

    def keep(self, staged: Path) -> None:
        try:
            self._upload(staged, f"{KEPT}/{staged.name}")
        finally:
            with contextlib.suppress(OSError):
                staged.unlink()

    def is_kept(self, name: str) -> bool:
        return self._head(f"{KEPT}/{name}")

    def open_kept(self, name: str) -> BinaryIO:
        return io.BufferedReader(_RemoteFile(self._endpoint, f"{KEPT}/{name}"), _TAIL)

    def forget(self, name: str) -> None:
        self._delete(f"{KEPT}/{name}")

    def number(self, kept: str, name: str) -> None:
        self._rename(f"{KEPT}/{kept}", f"{self._folder}/{name}")
        reach("publish.after-link")
        applied = f"{PROCESSED}/{name}"
        if self.has(applied) and token_of(self, applied) != kept:
            self._take_back(kept, name)
            raise FileExistsError(name)

    def delete(self, name: str) -> None:
        self._delete(f"{self._folder}/{name}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps the other threads of this process out; publishers elsewhere, and a folder that is gone, are met by
        `number`."""
        with _LOCKS.setdefault(f"{self._endpoint.url}/{self._folder}", threading.Lock()):
            yield

    def remember(self, number: int) -> None:
        self._remembered = number
        write_whole(self, SEQUENCE, b"%020d\n" % number)

    def remembered(self) -> int:
        if not self._remembered:
            with contextlib.suppress(FileNotFoundError, ValueError), self.open(SEQUENCE) as file:
                self._remembered = int(file.read())
        return self._remembered

    def drop(self, staged: Path | None = None) -> None:
        parent = self._folder.rpartition("/")[0]
        leaving = f"{parent}/{DROPPED_PREFIX}{uuid.uuid4().hex}"
        self._remembered = 0
        self._rename(self._folder, leaving)
        reach("publish.dropped")
        self._delete(leaving)

    def sweep(self) -> None:
        parent = self._folder.rpartition("/")[0]
        for name, _ in self._listed(parent):
            if IS_DROPPED(name):
                self._delete(f"{parent}/{name}")
        for name, modified in self._listed(KEPT):
            if IS_TEMPORARY(name) and time.time() - modified > ABANDONED_SECONDS:
                self._delete(f"{KEPT}/{name}")

    def _take_back(self, kept: str, name: str) -> None:
        """Makes a file kept again whose number was applied before: the engine leaves it alone, or has set it aside."""
        repeated = (each for each in self.names(PROCESSED, name) if each.startswith(f"{name}."))
        for place in (name, *(f"{PROCESSED}/{each}" for each in repeated)):
            if token_of(self, place) == kept:
                self._rename(f"{self._folder}/{place}", f"{KEPT}/{kept}")
                return
        raise FileNotFoundError(name)

    def _head(self, path: str) -> bool:
        answer = self._endpoint.ask("HEAD", path, {"action": "getStatus"})
        if answer.status not in (200, 404):
            raise self._endpoint.refusal(answer, path)
        return answer.status == 200

    def _delete(self, path: str) -> None:
        answer = self._endpoint.ask("DELETE", path, {"recursive": "true"})
        if answer.status not in (200, 202, 404):
            raise self._endpoint.refusal(answer, path)

    def _rename(self, source: str, target: str) -> None:
        """FileExistsError where the target is there, FileNotFoundError where its folder is gone."""
        endpoint = self._endpoint
        origin = "/".join(("", endpoint.workspace, endpoint.database, source))
        headers = {"x-ms-rename-source": quote(origin), "If-None-Match": "*"}
        answer = endpoint.ask("PUT", target, {"mode": "legacy"}, headers)
        done_before = answer.again and answer.code == "SourcePathNotFound"
        if answer.status != 201 and not done_before:
            raise endpoint.refusal(answer, target)

    def _upload(self, staged: Path, path: str) -> None:
        """Makes the file at a path this one, durably; a repeated upload does no harm."""
        size = staged.stat().st_size
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        if size <= _BLOCK:
            self._expect(self._endpoint.ask("PUT", path, None, headers, staged), path)
            return
        blocks = []
        for start in range(0, size, _BLOCK):
            block = base64.b64encode(b"%010d" % (start // _BLOCK)).decode()
            blocks.append(f"<Latest>{block}</Latest>")
            query = {"comp": "block", "blockid": block}
            length = min(_BLOCK, size - start)
            self._expect(self._endpoint.ask("PUT", path, query, None, staged, start=start, length=length), path)
        listed = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{"".join(blocks)}</BlockList>'
        self._expect(self._endpoint.ask("PUT", path, {"comp": "blocklist"}, None, listed.encode()), path)

    def _expect(self, answer: Answer, path: str) -> None:
        if answer.status != 201:
            raise self._endpoint.refusal(answer, path)

    def _listed(self, folder: str) -> Iterator[tuple[str, float]]:
        """Names in a folder and when each was last modified, in Unix seconds; nothing where there is no folder."""
        directory = f"{self._endpoint.database}/{folder}"
        query = {"resource": "filesystem", "recursive": "false", "directory": directory, "maxResults": _PAGE}
        while True:
            answer = self._endpoint.ask("GET", "", query, workspace=True)
            if answer.status == 404:
                return
            if answer.status != 200:
                raise self._endpoint.refusal(answer, folder)
            for entry in json.loads(answer.body)["paths"]:
                modified = email.utils.parsedate_to_datetime(entry["lastModified"]).timestamp()
                yield entry["name"].rpartition("/")[2], modified
            following = answer.headers.get("x-ms-continuation", "")
            if not following:
                return
            query["continuation"] = following

    def _names_from(self, folder: str, first: str) -> list[str]:
        prefix = f"{self._endpoint.database}/{folder}/"
        query = {
            "restype": "container", "comp": "list", "delimiter": "/", "prefix": prefix, "startFrom": prefix + first,
            "maxresults": _PAGE,
        }  # fmt: skip
        names: list[str] = []
        while True:
            answer = self._endpoint.ask("GET", "", query, workspace=True)
            if answer.status == 404:
                return names
            if answer.status != 200:
                raise self._endpoint.refusal(answer, folder)
            found = etree.fromstring(answer.body)
            names += [each.findtext("Name", "").removeprefix(prefix) for each in found.iter("Blob")]
            following = found.findtext("NextMarker") or ""
            if not following:
                return [name for name in names if name >= first]
            query["marker"] = following


class _RemoteFile(io.RawIOBase):
    """A file behind the endpoint, read by ranges. It is one version of the file, or an OSError."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        """FileNotFoundError."""
        self._endpoint, self._path = endpoint, path
        self._at = 0
        answer = self._ranged(f"bytes=-{_TAIL}", "")
        self._etag = answer.headers.get("ETag", "")
        self._tail = b"" if answer.status == 416 else answer.body
        whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
        self._size = int(whole) if whole.isdigit() and answer.status == 206 else len(self._tail)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self._bytes(self._at, min(len(view), self._size - self._at))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _bytes(self, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        kept = self._size - len(self._tail)
        if start >= kept:
            return self._tail[start - kept : start - kept + length]
        return self._ranged(f"bytes={start}-{start + length - 1}", self._etag).body

    def _ranged(self, wanted: str, etag: str) -> Answer:
        headers = {"Range": wanted, **({"If-Match": etag} if etag else {})}
        answer = self._endpoint.ask("GET", self._path, None, headers)
        if answer.status not in (200, 206, 416):
            raise self._endpoint.refusal(answer, self._path)
        return answer


__all__ = ["EndpointFolder"]
