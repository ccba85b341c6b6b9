"""How a table's files are found, and which paths are applied: the record that the Delta table itself keeps.

A single sequence needs only the position. Each partition has a position of its own (`position.py`). Under last-update
detection every applied path is recorded for ever. Paths are kept as 128-bit hashes in small immutable files,
*segments*, in a folder of the table that readers, writers and VACUUM ignore; a property of the table names the live
ones:

    Tables/orders/_lakemirror/<id>     sorted hashes, 16 bytes each
    property lakemirror.detection      {"strategy": …, "segments": [<id>, …], "numbered": 17}

Before an apply commits, it writes the hashes of its files as a new segment, merged with the segments at the end of
the list that are no larger, like the carry of a binary counter. A million paths are at most twenty segments of 16 MB
in all, a commit names them in less than a kilobyte, and each hash is written at most twenty times. The commit that
applies the files also changes the property, so the record cannot differ from the rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.metadata import LAST_UPDATE, SEQUENTIAL, TableMetadata
from lakemirror.storage.durable import make_folders, sync
from lakemirror.storage.place import Place, files_below, place

DETECTION_PROPERTY = "lakemirror.detection"
FOLDER = "_lakemirror"

_HASH = 16  # bytes
_NAME = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Detection:
    """How the files of a table have been found so far.

    `segments`: the live ones, largest first. `numbered`: the last number of the plain sequence when last-update
    detection was switched on; files up to it count as applied.
    """

    strategy: str = SEQUENTIAL
    partitioned: bool = False
    segments: tuple[str, ...] = ()
    numbered: int = 0

    @property
    def is_plain(self) -> bool:
        """True for one sequence, for which the position is enough."""
        return self.strategy == SEQUENTIAL and not self.partitioned

    def to_json(self) -> str:
        """The property's value; empty for one plain sequence, which has none."""
        if self.is_plain:
            return ""
        content = {**self.__dict__, "segments": list(self.segments)}
        return json.dumps({name: value for name, value in content.items() if value}, separators=(",", ":"))


def parse_detection(text: str, table: str) -> Detection:
    """The record in a table's property or manifest; TableError `table-unreadable` where it cannot be read."""
    if not text:
        return Detection()
    try:
        content = json.loads(text)
        return Detection(**{**content, "segments": tuple(content.get("segments", ()))})
    except (ValueError, TypeError, AttributeError) as error:
        raise TableError("table-unreadable", f"{table}: its property {DETECTION_PROPERTY} makes no sense") from error


def declared(before: Detection, metadata: TableMetadata, position: int, table: str) -> Detection:
    """The record after the change that `_metadata.json` asks for; `before` is the table's, `position` its position.

    TableError `detection-strategy-changed` if the record could not tell any more which files are applied (contract
    section 4).
    """
    strategy, partitioned = metadata.file_detection_strategy, metadata.partitioned
    if (before.strategy, before.partitioned) == (strategy, partitioned):
        return before
    if before.strategy == LAST_UPDATE and strategy == SEQUENTIAL:
        raise _changed(table, metadata, f"fileDetectionStrategy was {LAST_UPDATE} and is now {SEQUENTIAL}")
    if before.partitioned and not partitioned:
        raise _changed(table, metadata, "isPartitionEnabled was true and is now false")
    if before.partitioned and before.strategy != strategy:
        raise _changed(table, metadata, f"fileDetectionStrategy of a partitioned table was {before.strategy}")
    numbered = position if before.is_plain and strategy == LAST_UPDATE else before.numbered
    return replace(before, strategy=strategy, partitioned=partitioned, numbered=numbered)


class AppliedPaths:
    """The applied paths of one table folder, by hash; use `in`."""

    def __init__(self, table: str | os.PathLike[str] | Place, segments: Iterable[str]) -> None:
        """`table`: the Delta table's folder. TableError `table-unreadable` where a segment is missing."""
        self._table = place(table)
        self._segments = tuple(segments)
        self._contents = [_read(str(self._table / FOLDER / each)) for each in self._segments]

    def __contains__(self, path: object) -> bool:
        wanted = _hash(str(path))
        return any(_find(content, wanted) for content in self._contents)

    def with_paths(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The segments that also hold these paths. A new one is on disk when this returns."""
        hashes = {_hash(path) for path in paths}
        kept = list(zip(self._segments, self._contents, strict=True))
        while kept and len(kept[-1][1]) <= len(hashes) * _HASH:
            hashes.update(_split(kept.pop()[1]))
        name = uuid.uuid4().hex
        folder = self._table / FOLDER
        make_folders(folder, self._table)
        (folder / name).write_bytes(b"".join(sorted(hashes)))
        sync(folder / name)
        return (*(each for each, _ in kept), name)


def sweep(table: str | os.PathLike[str], live: Iterable[str], older_than: float) -> int:
    """Deletes segments that are not live and that nobody touched for so many seconds; returns their number.

    Younger ones may belong to a commit that is being made, or to an older version that somebody reads. A file that is
    no segment stays.
    """
    kept, before, swept = set(live), time.time() - older_than, 0
    folder = place(table) / FOLDER
    for name, modified in files_below(folder, lambda _: False):
        with suppress(FileNotFoundError):
            if name not in kept and modified < before and _is_segment(folder / name):
                (folder / name).unlink(missing_ok=True)
                swept += 1
    return swept


def _is_segment(path: Place) -> bool:
    """True for a file with the name of a segment that holds sorted hashes."""
    if not _NAME.fullmatch(path.name):
        return False
    content = path.read_bytes()
    hashes = list(_split(content))
    return len(content) % _HASH == 0 and hashes == sorted(hashes)


@lru_cache(maxsize=256)
def _read(path: str) -> bytes:
    try:
        content = place(path).read_bytes()
    except OSError as error:
        table = place(path).parent.parent
        raise TableError(
            "table-unreadable", f"{table}: the record of applied files is not readable: {error}", table=table.name
        ) from error
    if len(content) % _HASH:
        raise LakemirrorError("table-unreadable", f"{path} is cut short: the record of applied files is not complete")
    return content


def _hash(path: str) -> bytes:
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=_HASH).digest()


def _find(content: bytes, wanted: bytes) -> bool:
    low, high = 0, len(content) // _HASH
    while low < high:
        middle = (low + high) // 2
        at = content[middle * _HASH : (middle + 1) * _HASH]
        if at == wanted:
            return True
        if at < wanted:
            low = middle + 1
        else:
            high = middle
    return False


def _split(content: bytes) -> Iterable[bytes]:
    return (content[at : at + _HASH] for at in range(0, len(content), _HASH))


def _changed(table: str, metadata: TableMetadata, what: str) -> TableError:
    return TableError("detection-strategy-changed", f"{table}: {what}", table=table, file=metadata.file or None)
