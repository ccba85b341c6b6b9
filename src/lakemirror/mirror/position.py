"""What the Delta table itself records of the files that are applied: position, manifest, applied paths.

A Delta `txn` action holds an application id and a number. The application id names the identity of the table folder
and its generation, which grows with every recreation: the highest generation is the current one, whatever clocks say.
The number is the last applied file's (contract section 9). Where each partition folder has a sequence of its own, a
further application id each, with the folder at its end, holds the last number of that sequence.

    lakemirror:<generation>:<identity>              files applied so far
    lakemirror:<generation>:<identity>:region=eu    last number of that partition
    Tables/orders/_lakemirror/<id>                  a segment: sorted hashes of applied paths, 16 bytes each
    property lakemirror.detection                   {"strategy": …, "segments": [<id>, …], "numbered": 17}

Under last-update detection every applied path is recorded for ever, as a 128-bit hash in a *segment*: a small immutable
file in a folder of the table that readers, writers and VACUUM ignore. A property of the table names the live ones.

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
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import AppliedFiles
from lakemirror.landing_zone.metadata import LAST_UPDATE, SEQUENTIAL, TableMetadata, Warned
from lakemirror.landing_zone.zone import TableName
from lakemirror.storage import Entry
from lakemirror.storage.durable import make_folders, sync
from lakemirror.storage.place import Place, files_below, place

DETECTION_PROPERTY = "lakemirror.detection"
SEGMENTS = "_lakemirror"
"""The folder of the segments, within the table's folder."""

_PREFIX = "lakemirror"
_CONVERTED = "value-converted"
_LINE = "\n"
_HASH = 16  # bytes
_SEGMENT_NAME = re.compile("[0-9a-f]{32}")
BEYOND = "late-beyond-memory"
"""The code of the warning that a table of versions got late changes that are older than what is remembered."""

AGAIN = "column-added-again"
"""The code of the warning that an apply adds a column again, which another writer renamed or dropped."""

_NOTED = (
    "column-mapping",
    AGAIN,
    "separator-doubtful",
    "text-looks-typed",
    "partial-row-missing",
    "history-gap",
    "sequence-changed",
    BEYOND,
)
MISSING_ROWS = "partial rows had no row with their key: the columns that they leave out are NULL"


@dataclass(frozen=True)
class Position:
    """The last applied file of one table folder; `number` 0 where none is applied."""

    identity: str
    generation: int
    number: int

    @property
    def app_id(self) -> str:
        return f"{_PREFIX}:{self.generation}:{self.identity}"

    def partition_app_id(self, partition: str) -> str:
        return f"{self.app_id}:{partition}"


def current_position(transactions: Mapping[str, int]) -> Position | None:
    """The table's position from its `txn` actions (number by application id); None where none is ours."""
    found: Position | None = None
    for app_id, number in transactions.items():
        position = parse_app_id(app_id, number)
        if position is not None and (found is None or position.generation > found.generation):
            found = position
    return found


def position_of_commit(actions: Iterable[Mapping[str, Any]]) -> Position | None:
    """The position that a commit sets; None if it sets none of ours."""
    return current_position({a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a})


def parse_app_id(app_id: str, number: int) -> Position | None:
    """The position in a `txn` action; None for another application's, and for a partition's."""
    prefix, _, rest = app_id.partition(":")
    generation, _, identity = rest.partition(":")
    if prefix != _PREFIX or not generation.isdigit() or not identity or ":" in identity:
        return None
    return Position(identity, int(generation), number)


def position_after(before: Position | None, identity: str, number: int) -> Position:
    """The position at this number; its generation grows where the table folder had another identity before."""
    generation = 1 if before is None else before.generation + (before.identity != identity)
    return Position(identity, generation, number)


def sequences(transactions: Mapping[str, int], position: Position) -> dict[str, int]:
    """The last number of each partition folder, from a table's `txn` actions."""
    prefix = f"{position.app_id}:"
    return {app[len(prefix) :]: number for app, number in transactions.items() if app.startswith(prefix)}


@dataclass(frozen=True)
class Manifest:  # 21 fields: the members of the JSON object in a commit
    """What one apply covered, as its commit records it (`userMetadata`).

    `first` and `last` are the numbers of the batch's files. `file` (its path below the table folder), `size` and
    `modified` (nanoseconds) describe the last one, to know it again; in a store its ETag, `tag`, does. `key_columns` as
    declared. `rows` and `bytes` count all applies of this identity, `notes`: values of its files that the table could
    not keep as they were. `detection`: the table's record of how its files are found, as in its property
    (`position.py`). `token`: of the last file, as its publisher wrote it into the footer: manifests of cuts name it.
    `ignored_deletes`, `late_changes`: how many changes of all applies of this identity were counted and not applied.
    `history`: of a history table, its mode and the name of its table folder (`history_tables.py`); else empty.
    `earlier`: of a history table, what the files before the last one were (`file_mark`). `times`: of the mirrored
    table, when they were written (`file_times.py`). `built`: the commit made a history table again
    from all files up to the last one (`history/build.py`). `began`: of a history table that began later than the
    mirrored table, when; seconds since the epoch.
    """

    identity: str
    first: int
    last: int
    file: str
    size: int
    modified: int
    key_columns: tuple[str, ...] = ()
    rows: int = 0
    bytes: int = 0
    committed: float = 0.0  # of the newest change file: seconds since the epoch, 0 unknown
    notes: tuple[str, ...] = ()
    detection: str = ""
    tag: str = ""
    token: str = ""
    ignored_deletes: int = 0
    late_changes: int = 0
    history: str = ""
    earlier: tuple[str, ...] = ()
    times: tuple[int | None, ...] = ()
    built: bool = False
    began: float = 0.0

    @property
    def last_file(self) -> Entry | None:
        """The last file, by its path below the table folder; None where no file is known."""
        return Entry(self.file, self.size, self.modified, self.tag) if self.file else None

    def to_json(self) -> str:
        content = {**self.__dict__, "key_columns": list(self.key_columns), "notes": list(self.notes)}
        optional = ("tag", "token", "ignored_deletes", "late_changes", "history", "earlier", "times", "built", "began")
        for name in optional:
            if not content[name]:
                del content[name]
        return json.dumps({_PREFIX: content}, separators=(",", ":"))


def with_notes(before: Sequence[str], warnings: Sequence[Warned], most: int = 50) -> tuple[str, ...]:
    """The notes of a manifest: the earlier ones and the new warnings, each once with its first file.

    A note is a warning as a manifest keeps it: `code: message`, a line break, the file. `value-converted` goes without
    its code; notes of older versions have no file. Partial rows without a row of their key are counted in one note.
    """
    kept = {note.partition(_LINE)[0]: note for note in before}
    for warned in warnings:
        text = warned.message if warned.code == _CONVERTED else f"{warned.code}: {warned.message}"
        text = text.replace(_LINE, " ")
        if warned.message.endswith(MISSING_ROWS):
            text, kept = _counted(text, kept)
        kept.setdefault(text, f"{text}{_LINE}{warned.file}")
    return tuple(kept.values())[:most]


def _counted(text: str, kept: dict[str, str]) -> tuple[str, dict[str, str]]:
    """A note that begins with a number after its code, with that of the same one before; the notes without that one."""
    code, _, message = text.partition(": ")
    number = int(message.partition(" ")[0])
    for note in kept:
        if note.startswith(f"{code}: ") and note.endswith(MISSING_ROWS):
            number += int(note.removeprefix(f"{code}: ").partition(" ")[0])
    others = {note: line for note, line in kept.items() if not note.endswith(MISSING_ROWS)}
    return f"{code}: {number} {MISSING_ROWS}", others


def from_note(note: str) -> Warned:
    """The warning that a manifest keeps."""
    text, _, file = note.partition(_LINE)
    code, _, message = text.partition(": ")
    return Warned(code, message, file) if code in _NOTED else Warned(_CONVERTED, text, file)


def parse_manifest(text: Any) -> Manifest | None:
    """The manifest in a commit's `userMetadata`; None where there is none of ours."""
    try:
        content = json.loads(text)[_PREFIX]
        lists = {name: tuple(content.get(name, ())) for name in ("key_columns", "notes", "earlier", "times")}
        return Manifest(**{**content, **lists})
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


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


def declared(before: Detection, metadata: TableMetadata, position: int, table: TableName | str) -> Detection:
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
        self._contents = [_read_segment(str(self._table / SEGMENTS / each)) for each in self._segments]

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
        folder = self._table / SEGMENTS
        make_folders(folder, self._table)
        (folder / name).write_bytes(b"".join(sorted(hashes)))
        sync(folder / name)
        return (*(each for each, _ in kept), name)


def file_mark(below: str, etag: str) -> str:
    """What a change file was, in eight characters: its path below the table folder, and `Entry.etag`."""
    return _hash(f"{below}\0{etag}")[:4].hex()


def applied_files(
    detection: Detection,
    at: Position | None,
    manifest: Manifest | None,
    sequences: Mapping[str, int] | None,
    path: str,
) -> AppliedFiles:
    """Which files are applied, by the table's record, its position and its manifest. `path`: of the Delta table."""
    paths = AppliedPaths(path, detection.segments) if detection.strategy == LAST_UPDATE else None
    last = manifest.file if manifest is not None else ""
    return AppliedFiles(at.number if at else 0, sequences, paths, detection.numbered, last)


def sweep_segments(table: str | os.PathLike[str], live: Iterable[str], older_than: float) -> int:
    """Deletes segments that are not live and that nobody touched for so many seconds; returns their number.

    Younger ones may belong to a commit that is being made, or to an older version that somebody reads. A file that is
    no segment stays.
    """
    kept, before, swept = set(live), time.time() - older_than, 0
    folder = place(table) / SEGMENTS
    for name, modified in files_below(folder, lambda _: False):
        with suppress(FileNotFoundError):
            if name not in kept and modified < before and _is_segment(folder / name):
                (folder / name).unlink(missing_ok=True)
                swept += 1
    return swept


def _is_segment(path: Place) -> bool:
    """True for a file with the name of a segment that holds sorted hashes."""
    if not _SEGMENT_NAME.fullmatch(path.name):
        return False
    content = path.read_bytes()
    hashes = list(_split(content))
    return len(content) % _HASH == 0 and hashes == sorted(hashes)


@lru_cache(maxsize=256)
def _read_segment(path: str) -> bytes:
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
    places = range(0, len(content), _HASH)
    number = bisect_left(places, wanted, key=lambda at: content[at : at + _HASH])
    return content[number * _HASH : (number + 1) * _HASH] == wanted


def _split(content: bytes) -> Iterable[bytes]:
    return (content[at : at + _HASH] for at in range(0, len(content), _HASH))


def _changed(table: TableName | str, metadata: TableMetadata, what: str) -> TableError:
    return TableError("detection-strategy-changed", f"{table}: {what}", table=str(table), file=metadata.file or None)
