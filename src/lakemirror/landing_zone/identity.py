"""Is this still the folder that the table was filled from (contract section 7)?

    marker, listing, the table's own position ─▶ decide ─▶ known · new · recreated · renamed · marker-lost

`decide` is pure; `identify` reads and writes the marker `_mirror.json` around it. Every id but a first one is derived
from what is there, so that two engines which see the same thing write the same marker.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import AppliedFiles, TableFiles
from lakemirror.landing_zone.metadata import SEQUENTIAL, Warned
from lakemirror.landing_zone.zone import LANDING_ZONE, MARKER, TableFolder, TableName
from lakemirror.storage import Entry, Storage

MOST_BYTES = 64 * 1024  # of a marker; the engine writes about 100

Kind = Literal["known", "new", "recreated", "renamed", "marker-lost"]


@dataclass(frozen=True)
class Marker:
    """What `_mirror.json` says: the folder's id, and its place below the landing zone when it was marked.

    `resync_of`: the ids that the folder had before resyncs, newest first: history tables go on where they were.
    """

    id: str
    folder: str
    renamed_from: str = ""
    resync_of: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        content: dict[str, str | int | tuple[str, ...]] = {"id": self.id, "folder": self.folder, "version": 1}
        if self.renamed_from:
            content["renamedFrom"] = self.renamed_from
        if self.resync_of:
            content["resyncOf"] = self.resync_of
        return json.dumps(content).encode() + b"\n"


class AppliedSoFar(NamedTuple):
    """What the table's own position records. `last`: the last applied file; None where the manifest is not known any
    more.

    `files` tells more than `number` where the folder is not one sequence.
    """

    identity: str
    number: int
    last: Entry | None = None
    files: AppliedFiles | None = None


@dataclass(frozen=True)
class Identity:
    """Which folder this is. `marker` is what the folder must be marked with; `must_write` where it is not yet.

    known: the folder that the table was filled from, also after another name for a while, or one that was marked and
    has no table yet. new: first seen.
    recreated and renamed: a new table, whose content replaces what the table holds; position 0. marker-lost: known,
    although the marker was gone.
    """

    kind: Kind
    marker: Marker
    must_write: bool = False
    warning: Warned | None = None

    @property
    def id(self) -> str:
        return self.marker.id

    @property
    def is_same(self) -> bool:
        """True where the table's position counts."""
        return self.kind in ("known", "marker-lost")


def decide(content: bytes | None, files: TableFiles, applied: AppliedSoFar | None, new_id: str) -> Identity:
    """Which folder this is. `content` is the marker's, None where there is none; `new_id` serves a folder first seen.

    A marker that does not parse counts as none.
    """
    folder = files.folder
    path = path_in_zone(folder.name)
    marker = None if content is None else parse_marker(content)
    if marker is not None and marker.folder != path:
        if applied is not None and _came_back(marker, path, files, applied):
            return Identity("known", Marker(applied.identity, path), True)
        renamed = Marker(_derived(marker.id, path, applied), path, renamed_from=marker.folder)
        return Identity("renamed", renamed, True, _renamed_warning(renamed, files))
    if marker is not None:
        if applied is None or applied.identity == marker.id:
            warning = _renamed_warning(marker, files) if applied is None else None
            return Identity("known", marker, warning=warning)
        # marked again by an engine that has not replaced the table yet
        return Identity("recreated", marker, warning=_renamed_warning(marker, files))
    if content is not None:
        new_id = _derived(hashlib.sha256(content).hexdigest(), path, applied)
    if applied is None:
        return Identity("new", Marker(new_id, path), True)
    if _is_recreated(files, applied):
        return Identity("recreated", Marker(new_id, path), True)
    message = f"{MARKER} was missing; it was written again, and the table goes on after number {applied.number}"
    return Identity("marker-lost", Marker(applied.identity, path), True, _warned("marker-lost", message, folder))


def identify(
    storage: Storage,
    files: TableFiles,
    applied: AppliedSoFar | None,
    *,
    write: bool = True,
    durable: bool = True,
) -> Identity:
    """Which folder this is, marked as such unless `write` is False. `durable`: the marker survives a power cut.

    LakemirrorError `concurrent-commit` where another program deletes, recreates or marks the folder at this moment:
    look again.
    """
    home = files.folder.name.folder
    path = f"{home}/{MARKER}"
    for attempt in range(3):
        content = _read_marker(storage, path, None if attempt else files.folder.marker)
        decided = decide(content, _seen_now(storage, files, content, applied), applied, uuid.uuid4().hex)
        if not (write and decided.must_write):
            return decided
        if _replace(storage, path, content, decided.marker, durable):
            # The folder may have been made again between the look at its files and the marker: look once more.
            again = decide(content, _seen_now(storage, files, content, applied), applied, decided.id)
            if again.kind == decided.kind:
                return decided
            storage.delete(path)
    raise LakemirrorError("concurrent-commit", f"{home} changed while it was looked at")


def path_in_zone(name: TableName) -> str:
    """The table folder as a marker names it: its path below the landing zone."""
    return name.folder[len(LANDING_ZONE) + 1 :]


@lru_cache(256)
def parse_marker(content: bytes) -> Marker | None:
    """The content of a marker; None where it is invalid."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    id_, folder, before = found.get("id"), found.get("folder"), found.get("renamedFrom", "")
    if not isinstance(id_, str) or not _ID.fullmatch(id_) or not isinstance(folder, str) or not folder:
        return None
    earlier = found.get("resyncOf")
    ids = tuple(each for each in earlier if isinstance(each, str)) if isinstance(earlier, list) else ()
    return Marker(id_, folder, before if isinstance(before, str) else "", ids)


_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def _is_same(last: Entry, entry: Entry) -> bool:
    """Whether a file is the last applied one. In a store its ETag counts instead of its time."""
    if (entry.name, entry.size) != (last.name, last.size):
        return False
    return entry.tag == last.tag if entry.tag and last.tag else entry.modified == last.modified


def _is_recreated(files: TableFiles, so_far: AppliedSoFar) -> bool:
    """Whether a folder without marker was made again, told by its files.

    Where the manifest is lost, the last applied file cannot be compared. Then the folder counts as recreated if all
    files up to the position are there: if it is the old folder, applying them again gives the same table.
    """
    applied = so_far.files or AppliedFiles(so_far.number)
    sequences = {} if applied.paths is not None else files.by_partition
    if any(min(numbered) > 1 for numbered in sequences.values()):
        return False
    if so_far.last is not None:
        return not any(_is_same(so_far.last, entry) for entry in files.folder.files)
    if applied.paths is not None:
        # taken for the same folder, files under applied paths wait for a person; the other mistake would lose rows
        return not any(applied.holds(file) for file in files.changes)
    begun = {partition: applied.position(partition) for partition in sequences}
    if any(begun[partition] in numbered for partition, numbered in sequences.items()):
        return all(set(sequences[part]).issuperset(range(1, last + 1)) for part, last in begun.items())
    return True


def _came_back(marker: Marker, path: str, files: TableFiles, applied: AppliedSoFar) -> bool:
    """Whether the folder that this table was filled from had another name for a while, and was marked there."""
    was_ours = marker.renamed_from == path and marker.id == _derived(applied.identity, marker.folder, None)
    return was_ours and not _is_recreated(files, applied)


def _renamed_warning(marker: Marker, files: TableFiles) -> Warned | None:
    """Given until the publisher fills the renamed folder again: its files do not begin at 1."""
    if not marker.renamed_from or files.metadata.file_detection_strategy != SEQUENTIAL:
        return None
    if any(file.number == 1 for file in files.changes):
        return None
    message = f"the folder was {marker.renamed_from} before: it is a new table, and number 1 is awaited"
    return _warned("folder-renamed", message, files.folder)


def _seen_now(storage: Storage, files: TableFiles, content: bytes | None, applied: AppliedSoFar | None) -> TableFiles:
    """The folder with its files as they are now, where the decision depends on them.

    The pass's listing is older than the look at the marker. A folder made again in between would show the old files
    and no marker, and be taken for the old one.
    """
    if applied is None or (content is not None and parse_marker(content) is not None):
        return files
    name = files.folder.name
    try:
        listing = storage.list(name.folder, lambda path: "/_" not in path[len(LANDING_ZONE) :])
    except FileNotFoundError:
        return TableFiles(TableFolder(name), files.metadata)
    for error in listing.errors.values():
        raise error
    entries = [entry for entry in listing.files if not entry.name.startswith("_")]
    return TableFiles(TableFolder(name, entries), files.metadata)


def _read_marker(storage: Storage, path: str, listed: Entry | None = None) -> bytes | None:
    """The marker's content, None where there is none; empty, which makes no sense, where it is too large to be one.

    `listed`: as a listing showed it. In a store change files of that listing are read too or none (`Storage.open`), so
    marker and files belong together.
    """
    try:
        return storage.read(path, MOST_BYTES, listed)
    except FileNotFoundError:
        return None
    except LakemirrorError as error:
        if error.code == "content-too-large":
            return b""  # no marker of ours: it is replaced, like one that does not parse
        raise


def marker_of(storage: Storage, folder: TableName, listed: Entry | None = None) -> Marker | None:
    """The marker of a table folder; None where there is none, or it is invalid. `listed`: as of `_read_marker`."""
    content = _read_marker(storage, f"{folder.folder}/{MARKER}", listed)
    return parse_marker(content) if content is not None else None


def _replace(storage: Storage, path: str, content: bytes | None, marker: Marker, durable: bool) -> bool:
    """True once the marker is there; False where another was faster, or the folder is gone.

    Never with a plain write, which would make a deleted folder again.
    """
    if content is not None:
        if _read_marker(storage, path) != content:
            return False
        storage.delete(path)
    try:
        return storage.write_new(path, marker.to_json(), durable=durable)
    except FileNotFoundError:
        return False


def _derived(seed: str, path: str, applied: AppliedSoFar | None) -> str:
    """An id that is new for this table and the same for every engine that starts from the same marker."""
    parts = (seed, path, applied.identity if applied else "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _warned(code: str, message: str, folder: TableFolder) -> Warned:
    return Warned(code, message, f"{folder.name.folder}/{MARKER}")
