"""Cuts: which files of several tables are one consistent picture (`_cuts/<20 digits>.json`).

    publisher: files of all tables ─▶ manifest ─▶ later files        engine: a batch ends at a cut's file

A publisher writes a manifest atomically, after every file that it names and before any later file of these tables. So
whoever lists the manifests after the files of a table misses none that ends between two of them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from lakemirror.bounded_json import parsed
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.zone import CUTS
from lakemirror.storage import Entry, Storage, seconds_since

log = logging.getLogger("lakemirror")

_NAME = re.compile(r"([0-9]{20})\.json")
_MOST_BYTES = 4 << 20
_FRESH = 2.0  # seconds: a folder's time this young may stay the same at the next change
_EARLIER = 3_600_000_000_000  # nanoseconds by which a copied manifest may be older than the files it names


@dataclass(frozen=True)
class CutManifest:
    """One manifest. `cut`: its number. `tables`: the number of each table's last file, 0 for none, by `schema.table`.

    `position` and `time`: the source's, as the publisher says. `files`: the token of the last file, where the publisher
    tells it: it tells a file from one with the same number in a folder that was made again. `reread`: values that may
    be newer than the cut. `modified`: when the manifest was written, in nanoseconds.
    """

    cut: int
    tables: Mapping[str, int]
    position: str = ""
    time: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    reread: int = 0
    modified: int = 0

    def to_json(self) -> str:
        content: dict[str, Any] = {
            "cut": self.cut,
            "position": self.position,
            "time": self.time,
            "tables": dict(self.tables),
            "files": dict(self.files),
        }
        if self.reread:
            content["reread"] = self.reread
        return json.dumps(content, indent=1)


def manifest_name(cut: int) -> str:
    """The file name of a cut's manifest."""
    return f"{cut:020}.json"


def cut_number(name: str) -> int:
    """The number of the cut whose manifest has this file name; 0 for another file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else 0


def parse_manifest(data: bytes, entry: Entry) -> CutManifest:
    """The manifest in a file. LakemirrorError `cut-invalid`."""
    try:
        content = parsed(data.decode("utf-8-sig"))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        number = cut_number(entry.name)
        if content.get("cut", number) != number:
            raise ValueError(f"its cut is {str(content['cut'])[:40]!r}, and its name says {number}")
        reread = _count("reread", content.get("reread", 0))
        position = content.get("position", "")
        return CutManifest(
            cut=number,
            tables={
                _table(name): _count(name, last) for name, last in _object(content, "tables", required=True).items()
            },
            position=position if isinstance(position, str) else json.dumps(position),
            time=str(content.get("time", "")),
            files={name: str(token) for name, token in _object(content, "files").items()},
            reread=reread,
            modified=entry.modified,
        )
    except (ValueError, RecursionError) as error:
        message = f"{entry.path} is no manifest of a cut: {str(error)[:200]}"
        raise LakemirrorError("cut-invalid", message, file=entry.path) from error


class CutManifests:
    """The manifests of one landing zone, each read once as long as it does not change. For any thread."""

    _of_storage: ClassVar[WeakKeyDictionary[Storage, CutManifests]] = WeakKeyDictionary()

    @classmethod
    def of(cls, storage: Storage) -> CutManifests:
        """Those that all tables of a database share in this process."""
        return cls._of_storage.setdefault(storage, cls(storage))

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._listed: tuple[int, list[Entry]] = (0, [])  # the time of the folder, where it shows every change
        self._read: dict[str, tuple[str, CutManifest | LakemirrorError]] = {}

    def listed(self) -> list[Entry]:
        """The manifests, oldest cut first; none where there is no folder for them. LakemirrorError.

        In a store that is a request each time: the first cut may be declared at any moment.
        """
        changed = 0
        try:
            if self._storage.capabilities.folder_times:
                folder = self._storage.stat(CUTS)
                if folder is None:
                    return []
                changed = folder.modified
                if self._listed[0] == changed:
                    return self._listed[1]
                if seconds_since(changed) < _FRESH:
                    changed = 0
            found = self._storage.list(CUTS, lambda _: False)
        except FileNotFoundError:
            return []
        except LakemirrorError as error:
            if error.code != "path-refused":
                raise
            log.warning("%s is no folder: the cuts in it count for nothing", CUTS)
            return []
        entries = [entry for entry in found.files if entry.path == f"{CUTS}/{entry.name}" and cut_number(entry.name)]
        entries.sort(key=lambda entry: entry.name)
        if changed:
            self._listed = changed, entries
        return entries

    def read(self, entry: Entry) -> CutManifest:
        """The manifest. FileNotFoundError; LakemirrorError `cut-invalid`, and what the storage raises."""
        etag, known = self._read.get(entry.path, ("", None))
        if known is None or etag != entry.etag:
            try:
                known = parse_manifest(self._storage.read(entry.path, _MOST_BYTES, entry), entry)
            except LakemirrorError as error:
                if error.code not in ("cut-invalid", "content-too-large", "path-refused"):
                    raise
                known = LakemirrorError("cut-invalid", error.message, file=entry.path)
                log.warning("%s", known)
            self._read[entry.path] = (entry.etag, known)
        if isinstance(known, LakemirrorError):
            raise known
        return known

    def last_files(self, table: str, since: int) -> frozenset[int]:
        """The numbers of a table's files at which cuts end. `since`: when the oldest file that matters was written, in
        nanoseconds: cuts before it are not read. A manifest that cannot be read counts for nothing."""
        ends = set()
        listed = self.listed()
        for entry in listed:
            if entry.modified < since - _EARLIER:
                continue
            try:
                ends.add(self.read(entry).tables.get(table, 0))
            except FileNotFoundError:
                continue
            except LakemirrorError as error:
                if error.code != "cut-invalid":
                    raise
        if len(self._read) > 2 * len(listed):
            paths = {entry.path for entry in listed}
            self._read = {path: known for path, known in dict(self._read).items() if path in paths}
        return frozenset(ends - {0})


def until_cut(files: Sequence[ChangeFile], last_files: frozenset[int]) -> Sequence[ChangeFile]:
    """The files up to the first at which a cut ends, that one included; all of them if there is none."""
    for index, file in enumerate(files):
        if file.number in last_files:
            return files[: index + 1]
    return files


def _table(name: str) -> str:
    """The name of a table: `table`, or `schema.table`. None leads out of the landing zone."""
    if not name or name[0] in "._" or name[-1] == "." or any(mark in name for mark in "/\\\0"):
        raise ValueError(f"{name[:100]!r} is no table")
    return name


def _count(name: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {str(value)[:40]!r}, not the number of a file")
    return value


def _object(content: Mapping[str, Any], name: str, *, required: bool = False) -> Mapping[str, Any]:
    value = content.get(name, None if required else {})
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no object")
    return value
