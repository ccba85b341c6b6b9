"""The landing zone as one listing shows it: which table folders there are and what is in each.

What cannot be listed, and what is neither a regular file nor a folder, is recorded with the table it belongs to. If
the landing zone itself cannot be listed, `scan` raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import starmap
from typing import NamedTuple

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.findings import Warned, capped
from lakemirror.landing_zone.metadata import MAX_SIZE, TableMetadata, parse_metadata, undeclared_metadata
from lakemirror.landing_zone.option_patterns import OptionPatterns, options_for
from lakemirror.storage import Entry, Listing, Storage

LANDING_ZONE = "Files/LandingZone"
PROCESSED = "_ProcessedFiles"
QUARANTINED = "_QuarantinedFiles"
METADATA = "_metadata.json"
MARKER = "_mirror.json"
PAUSED = "_paused.json"
PARTNER_EVENTS = "_partnerEvents.json"
CUTS = f"{LANDING_ZONE}/_cuts"
"""Manifests of cuts (`cut_manifests.py`)."""
TOKEN = "lakemirror.file"
"""In the footer of a change file: the name under which our publisher wrote it. No two files have the same."""


@dataclass(frozen=True, order=True)
class TableName:
    """A mirrored table's name as its publisher spells it; `schema` is empty for a table without schema folder."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @cached_property
    def folder(self) -> str:
        """The table folder, relative to the database."""
        return f"{LANDING_ZONE}/{self.schema}.schema/{self.table}" if self.schema else f"{LANDING_ZONE}/{self.table}"

    def target(self, default_schema: str) -> str:
        """The Delta table's folder, relative to the database (contract section 1)."""
        schema = self.schema or default_schema
        return f"Tables/{schema}/{self.table}" if schema else f"Tables/{self.table}"


@dataclass
class TableFolder:
    """One table folder at one instant. Internal files of the publisher or lakemirror (`_…`) are kept apart.

    `files`: everything that could be a change file, with its full path, also below sub-folders (partitions).
    `processed`: what is in `_ProcessedFiles`; `quarantined`: in `_QuarantinedFiles`. `skipped`: sub-folders left out
    because their name begins with `_`, but the service's own. `others`: entries that are neither a regular file nor a
    folder: what each is, by its path. `paused`: the entry of `_paused.json`, which stops all applies of the table.
    `error`: why the folder could not be listed completely. `folders`: where change files may come, the table folder
    itself and those below it.
    """

    name: TableName
    files: list[Entry] = field(default_factory=list)
    metadata: Entry | None = None
    marker: Entry | None = None
    paused: Entry | None = None
    folders: list[str] = field(default_factory=list)
    processed: list[Entry] = field(default_factory=list)
    quarantined: list[Entry] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    error: LakemirrorError | None = None


@dataclass
class Zone:
    """One listing of the landing zone.

    `skipped`: folders that are no table (`why_skipped`). `strays`: files in no table folder. `others`:
    what is neither a regular file nor a folder, outside of table folders. `errors`: schema folders that could not be
    listed; nothing is known of their tables. `folders`: the schema folders.
    """

    tables: dict[TableName, TableFolder]
    skipped: list[str]
    folders: list[str] = field(default_factory=list)
    partner_events: Entry | None = None
    strays: list[Entry] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    errors: dict[str, LakemirrorError] = field(default_factory=dict)

    @cached_property
    def warnings(self) -> list[Warned]:
        """What is in no table and why, and what could not be listed (contract section 1)."""
        skipped = [Warned("folder-skipped", f"{path} is no table: {why_skipped(path)}", path) for path in self.skipped]
        strays = [
            Warned("file-stray", f"{entry.name} is in no table folder", entry.path)
            for entry in self.strays
            if data_stem(entry.name)
        ]
        unlisted = [Warned(error.code, error.message, path) for path, error in sorted(self.errors.items())]
        found = [*skipped, *strays, *starmap(_not_a_file, sorted(self.others.items())), *unlisted]
        return capped(found) if found else []

    def is_unknown(self, target: str, default_schema: str) -> bool:
        """True where the listing does not tell whether the Delta table's folder is still in the landing zone.

        Its folder, or the folder of its schema, was not listed, or something else is in its place.
        """
        located = [_located(path) for path in (*self.errors, *self.others)]
        tables = [at.table for at in located if at.table is not None and not at.below]
        if any(not name.table.startswith("_") and name.target(default_schema) == target for name in tables):
            return True
        tops = [path[len(LANDING_ZONE) + 1 :] for path in (*self.errors, *self.others)]
        schemas = [name.removesuffix(_SCHEMA_SUFFIX) for name in tops if "/" not in name]
        return any(target.startswith(f"Tables/{schema}/") for schema in schemas)


def scan(storage: Storage) -> Zone:
    """Lists the landing zone once. FileNotFoundError where the landing zone itself is missing.

    Every folder that may be a table is there, also one without any file.
    """
    return _zone(storage.list(LANDING_ZONE, _enter))


def scan_table(storage: Storage, name: TableName) -> TableFolder | None:
    """One table folder, listed alone; None where it is gone."""
    try:
        listing = storage.list(name.folder, _enter)
    except FileNotFoundError:
        return None
    except LakemirrorError as error:
        return TableFolder(name, error=error)
    listing.folders.append(name.folder)
    return _zone(listing).tables.get(name)


def read_metadata(storage: Storage, folder: TableFolder, patterns: OptionPatterns = ()) -> TableMetadata:
    """What the folder's `_metadata.json` says; the defaults where there is none. `patterns`: options for many tables.

    TableError `metadata-invalid` also where it is not a regular file or has more than 16 MiB, which are not read:
    without it the table's key columns are not known, and rows applied without them would be wrong.
    """
    path = f"{folder.name.folder}/{METADATA}"
    kind = folder.others.get(path) or ("a folder" if path in folder.skipped else "")
    if kind:
        raise TableError("metadata-invalid", f"{path} is {kind}, not a file", file=path)
    options = options_for(str(folder.name), patterns) if patterns and (folder.metadata or folder.files) else None
    if folder.metadata is None:
        return undeclared_metadata(options)
    try:
        return parse_metadata(storage.read(path, MAX_SIZE, folder.metadata), path, options)
    except FileNotFoundError:
        return undeclared_metadata(options)
    except LakemirrorError as error:
        if error.code == "content-too-large":
            message = f"{path} is larger than {MAX_SIZE // 1024**2} MiB and is not read"
            raise TableError("metadata-invalid", message, file=path) from error
        if error.code == "path-refused":  # it became one since the listing
            raise TableError("metadata-invalid", error.message, file=path) from error
        raise


def check_name(name: TableName) -> None:
    """TableError `table-name-invalid` for a folder whose name is no UTF-8: no Delta table can have that name."""
    try:
        str(name).encode("utf-8")
    except UnicodeEncodeError as error:
        shown = name.folder.encode("utf-8", "backslashreplace").decode("ascii", "backslashreplace")
        raise TableError("table-name-invalid", f"the folder's name is not UTF-8: {shown}", file=name.folder) from error


def not_files(others: dict[str, str]) -> list[Warned]:
    """One warning for each path that is neither a regular file nor a folder."""
    return capped(starmap(_not_a_file, sorted(others.items())))


def _not_a_file(path: str, kind: str) -> Warned:
    return Warned("not-a-file", f"{path.rpartition('/')[2]} is {kind}: it is never opened", path)


def _zone(listing: Listing) -> Zone:
    zone = Zone(tables={}, skipped=[])
    for path in sorted(listing.folders):
        at = _located(path)
        folder = zone.tables.get(at.table) if at.table is not None else None
        if at.table is None:
            (zone.folders if at.schema else zone.skipped).append(path)
        elif not at.below:
            if not at.table.table.startswith("_"):
                zone.tables[at.table] = TableFolder(at.table, folders=[path])
            elif path != CUTS:
                zone.skipped.append(path)
        elif folder is None:
            continue
        elif at.below[-1].startswith("_") and not (len(at.below) == 1 and at.below[0] in _OF_THE_SERVICE):
            if not at.aside:
                folder.skipped.append(path)
        elif not any(part.startswith("_") for part in at.below):
            folder.folders.append(path)
    _give_files(zone, listing.files)
    for path, kind in listing.others.items():
        at = _located(path)
        folder = zone.tables.get(at.table) if at.table is not None else None
        (zone.others if folder is None else folder.others)[path] = kind
    for path, error in listing.errors.items():
        at = _located(path)
        folder = zone.tables.get(at.table) if at.table is not None else None
        if folder is None:
            zone.errors[path] = error
        elif not at.aside:  # what cannot be seen of applied files is not needed to apply others
            folder.error = folder.error or error
    return zone


def table_of(path: str) -> TableName | None:
    """The table whose folder a folder of the landing zone is, or is in; None above all tables."""
    return _located(path).table


def data_stem(name: str) -> str:
    """The name without its extensions, of a file that is named as files with rows are; else empty."""
    match = _DATA_NAME.fullmatch(name)
    return match[1] if match is not None and match[2].lower() in _DATA_EXTENSIONS else ""


_DATA_EXTENSIONS = {"parquet", "csv", "tsv", "psv", "txt"}
_DATA_NAME = re.compile(r"(.+?)\.([^.]+)(?:\.(?:gz|zst|snappy))?")


def why_skipped(path: str) -> str:
    """Why a folder of `Zone.skipped` is no table and no schema."""
    if path.rpartition("/")[2] == _SCHEMA_SUFFIX:
        return "it names no schema, so that no table in it is mirrored"
    return "its name begins with _"


def collisions(zone: Zone, default_schema: str) -> dict[TableName, TableName]:
    """The tables that cannot all be mirrored, each with one of those in its way.

    In the way are names that differ by case alone, names that land in the same Delta table because of the default
    schema, and a table that would be inside another one's folder (table `sales` and schema `sales`): VACUUM of the
    outer table would delete the inner one's files.
    """
    targets: dict[str, list[TableName]] = {}
    for name in sorted(zone.tables):
        targets.setdefault(name.target(default_schema).lower(), []).append(name)
    found: dict[TableName, TableName] = {}
    for target, names in targets.items():
        if len(names) > 1:
            found.update({name: names[0] if name != names[0] else names[1] for name in names})
        for outer in targets.get(target.rpartition("/")[0], ()):
            found.setdefault(outer, names[0])
            for name in names:
                found.setdefault(name, outer)
    return found


_OF_THE_SERVICE = {PROCESSED, QUARANTINED, "_FilesReadyToDelete"}
_SCHEMA_SUFFIX = ".schema"


class _Located(NamedTuple):
    """Where a path below the landing zone is. `schema`: of its schema folder, empty where it is in none. `table`: whose
    folder it is or is in, by its name alone; None for a schema folder. `below`: the parts of the path in there.
    """

    schema: str
    table: TableName | None
    below: list[str]

    @property
    def aside(self) -> str:
        """The service's own folder of the table that the path is in; empty if it is in none that is read."""
        return self.below[0] if self.below and self.below[0] in (PROCESSED, QUARANTINED) else ""


def _located(path: str) -> _Located:
    first, *parts = path[len(LANDING_ZONE) + 1 :].split("/")
    if not first.endswith(_SCHEMA_SUFFIX) or first.startswith("_"):
        return _Located("", TableName("", first), parts)
    schema = first.removesuffix(_SCHEMA_SUFFIX)
    return _Located(schema, TableName(schema, parts[0]) if parts else None, parts[1:])


def _enter(path: str) -> bool:
    """Which folders are looked into: no `_…` but what the service has set aside of a table, with all below it."""
    if not path.rpartition("/")[2].startswith("_"):
        return path != f"{LANDING_ZONE}/{_SCHEMA_SUFFIX}"
    return bool(_located(path).aside)


def _give_files(zone: Zone, files: list[Entry]) -> None:
    """Gives every file to its table folder. One look-up per file: files come by the hundred thousand."""
    owners: dict[str, tuple[TableFolder, str, bool] | None] = {}
    for entry in files:
        parent, _, name = entry.path.rpartition("/")
        if parent not in owners:
            at = _located(parent)
            folder = zone.tables.get(at.table) if at.table is not None else None
            owners[parent] = (folder, at.aside, not at.below) if folder is not None else None
        owner = owners[parent]
        if owner is None:
            if parent == LANDING_ZONE and name == PARTNER_EVENTS:
                zone.partner_events = entry
            elif not name.startswith("_"):
                zone.strays.append(entry)
            continue
        folder, aside, directly = owner
        if aside:
            (folder.processed if aside == PROCESSED else folder.quarantined).append(entry)
        elif not name.startswith("_"):
            folder.files.append(entry)
        elif directly and name == METADATA:
            folder.metadata = entry
        elif directly and name == MARKER:
            folder.marker = entry
        elif directly and name == PAUSED:
            folder.paused = entry
