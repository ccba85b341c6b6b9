"""A table folder behind the storage endpoint of a service.

A file gets its number by a rename, which fails where the number is taken or the table folder is gone. On a disk it is
one step, and of a repeated one the source is missing. In a store a killed service leaves both names: then the file's
own token says whose the number is. So a file gets one number, whatever becomes of the answers.
"""

from __future__ import annotations

import base64
import email.utils
import io
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote
from xml.etree import ElementTree as etree

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.folders.endpoint import WHERE, Answer, Endpoint, FilePart
from lakemirror.publisher.folders.remote_folder import KEPT, RemoteFolder
from lakemirror.publisher.folders.table_folder import DROPPED_PREFIX, IS_DROPPED
from lakemirror.storage.ranged_file import RangedFile

_BLOCK = 64 << 20  # bytes of one request
_TAIL = 64 << 10  # bytes that are read first: a Parquet footer is at the end
_PAGE = "5000"


class EndpointFolder(RemoteFolder):
    """A table folder of a database behind a service."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        super().__init__(endpoint.url, path)
        self._endpoint = endpoint

    def is_there(self) -> bool:
        return self._exists(self._folder)

    def make(self) -> None:
        if self.is_there():
            return
        for folder in (KEPT, self._folder):
            answer = self._endpoint.ask("PUT", folder, {"resource": "directory"})
            if answer.status == 404:
                raise self._no_database()
            if answer.status != 201:
                raise self._endpoint.refusal(answer, folder)

    def keep(self, staged: Path) -> None:
        """The service makes folders for an upload, so that only the database can be missing: `database-missing`."""
        try:
            super().keep(staged)
        except FileNotFoundError as error:
            raise self._no_database() from error

    def names(self, inner: str = "", first: str = "") -> list[str]:
        folder = f"{self._folder}/{inner}".rstrip("/")
        return self._names_from(folder, first) if first else [name for name, _ in self._listed(folder)]

    def drop(self, staged: Path | None = None) -> None:
        parent = self._folder.rpartition("/")[0]
        leaving = f"{parent}/{DROPPED_PREFIX}{uuid.uuid4().hex}"
        self._remembered = 0
        self._rename(self._folder, leaving)
        reach("publish.dropped")
        self._remove(leaving)

    def sweep(self) -> None:
        parent = self._folder.rpartition("/")[0]
        for name, _ in self._listed(parent):
            if IS_DROPPED(name):
                self._remove(f"{parent}/{name}")
        super().sweep()

    def _no_database(self) -> LakemirrorError:
        return LakemirrorError("database-missing", f"{self._endpoint.url}: there is no such database", hint=WHERE)

    def _opened(self, path: str) -> BinaryIO:
        return io.BufferedReader(_RemoteFile(self._endpoint, path), _TAIL)

    def _name(self, kept: str, path: str) -> None:
        try:
            self._rename(f"{KEPT}/{kept}", path)
        except FileExistsError:
            if token_of(self, path.removeprefix(f"{self._folder}/")) != kept:
                raise
            self.forget(kept)

    def _take_back(self, path: str, kept: str) -> None:
        self._rename(path, f"{KEPT}/{kept}")

    def _uploads(self) -> Iterator[tuple[str, float]]:
        return self._listed(KEPT)

    def _exists(self, path: str) -> bool:
        answer = self._endpoint.ask("HEAD", path, {"action": "getStatus"})
        if answer.status not in (200, 404):
            raise self._endpoint.refusal(answer, path)
        return answer.status == 200

    def _remove(self, *paths: str) -> None:
        for path in paths:
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
        size = staged.stat().st_size
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        if size <= _BLOCK:
            self._expect(self._endpoint.ask("PUT", path, None, headers, FilePart(staged, 0, size)), path)
            return
        blocks = []
        for start in range(0, size, _BLOCK):
            block = base64.b64encode(b"%010d" % (start // _BLOCK)).decode()
            blocks.append(f"<Latest>{block}</Latest>")
            query = {"comp": "block", "blockid": block}
            part = FilePart(staged, start, min(_BLOCK, size - start))
            self._expect(self._endpoint.ask("PUT", path, query, None, part), path)
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
            answer = self._endpoint.ask("GET", None, query)
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
            answer = self._endpoint.ask("GET", None, query)
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


class _RemoteFile(RangedFile):
    """A file behind the endpoint. It is one version of the file, or an OSError."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        """FileNotFoundError."""
        super().__init__()
        self._endpoint, self._path = endpoint, path
        answer = self._ranged(f"bytes=-{_TAIL}", "")
        self._etag = answer.headers.get("ETag", "")
        self._tail = b"" if answer.status == 416 else answer.body
        whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
        self.size = int(whole) if whole.isdigit() and answer.status == 206 else len(self._tail)

    def _read_at(self, begin: int, size: int) -> bytes:
        if not size:
            return b""
        kept = self.size - len(self._tail)
        if begin >= kept:
            return self._tail[begin - kept : begin - kept + size]
        return self._ranged(f"bytes={begin}-{begin + size - 1}", self._etag).body

    def _ranged(self, wanted: str, etag: str) -> Answer:
        headers = {"Range": wanted, **({"If-Match": etag} if etag else {})}
        answer = self._endpoint.ask("GET", self._path, None, headers)
        if answer.status not in (200, 206, 416):
            raise self._endpoint.refusal(answer, self._path)
        return answer
