"""What is wrong with a landing zone, for a publisher's author. Nothing is applied or changed.

path ─▶ zone ─▶ each table: metadata, names, numbers ─▶ each file: columns, markers, keys ─▶ findings
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from lakemirror.errors import LakemirrorError, Rejected, SetupError, TableError
from lakemirror.failures import coded
from lakemirror.landing_zone.change_file import (
    AppliedFiles,
    ChangeFile,
    FolderFile,
    Readiness,
    TableFiles,
    Waiting,
    ambiguous,
    complete,
    footer_reader,
    ignored,
)
from lakemirror.landing_zone.cut_manifests import CutManifests
from lakemirror.landing_zone.database_folder import databases_below, missing_database
from lakemirror.landing_zone.findings import Finding, from_error, from_warning, reported
from lakemirror.landing_zone.metadata import SEQUENTIAL, TableMetadata
from lakemirror.landing_zone.partner_events import read_partner
from lakemirror.landing_zone.reserved_columns import ADDED_COLUMNS
from lakemirror.landing_zone.zone import (
    LANDING_ZONE,
    MARKER,
    METADATA,
    PROCESSED,
    TableFolder,
    TableName,
    Zone,
    check_name,
    collisions,
    data_stem,
    not_files,
    read_metadata,
    scan,
    why_skipped,
)
from lakemirror.lint.contents import check_content, check_delimited
from lakemirror.lint.next_apply import check_next, look
from lakemirror.lint.rows import Expected, SeenColumns
from lakemirror.mirror.history.history_tables import named_tables
from lakemirror.mirror.table_rules import allowed, column_rules
from lakemirror.settings.settings import DEFINITION, Settings, read_definition, resolve
from lakemirror.storage import Entry, Listing, LocalStorage, Place, Storage
from lakemirror.storage.place import local_path, storage_of

_MOST_CUTS = 100  # the newest manifests of cuts that are read

MANY_FILES = 1000  # that wait in one folder
SMALL_FILES = 20  # so many files, each on average smaller than both
SMALL_BYTES = 64 * 1024
SMALL_ROWS = 1000
LARGE_BYTES = 1024**3
MANY_KEYS = 5


def check(
    path: str | os.PathLike[str] | Place,
    *,
    settle: float | None = None,
    now: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Finding]:
    """The findings in a mirrored database, a landing zone or one table folder; none where all is well.

    Files are named relative to the path. `settle` in seconds, by default as
    the settings have it: a younger file may still be written. `progress` is
    called with the number of tables done and of all. LakemirrorError `database-missing` for a path that is no folder.
    """
    local = local_path(path)
    storage, mount = _open_store(str(path)) if local is None else _open(local)
    now = time.time() if now is None else now
    try:
        zone = scan(storage)
    except FileNotFoundError as error:
        raise SetupError("database-missing", f"{path} is gone") from error
    zone.tables = {name: folder for name, folder in zone.tables.items() if f"{folder.name.folder}/".startswith(mount)}
    settings, findings = _settings(storage)
    findings += _check_zone(storage, zone, settings)
    settings = settings if settle is None else replace(settings, settle=settle)
    for done, folder in enumerate(zone.tables.values()):
        if progress:
            progress(done, len(zone.tables))
        try:
            view = look(storage, folder, settings)
            of_table = list(check_table(storage, folder, settings, view.applied, now=now))
            findings += [*of_table, *check_next(storage, view, settings, of_table)]
        except Exception as failure:  # the boundary around one table
            found = coded(failure, table=str(folder.name))
            findings.append(replace(from_error(found, str(folder.name)), file=found.file or folder.name.folder))
    return [replace(finding, file=_relative(finding.file, mount)) for finding in findings]


def check_table(
    storage: Storage, folder: TableFolder, settings: Settings, applied: AppliedFiles, *, now: float
) -> Iterator[Finding]:
    """The findings in one table folder. `applied`: files that need no sequence any more."""
    table = str(folder.name)
    yield from (from_warning(each, table) for each in not_files(folder.others))
    if folder.error is not None:
        yield replace(from_error(folder.error, table), file=folder.error.file or folder.name.folder)
        return
    try:
        check_name(folder.name)
    except TableError as error:
        yield from_error(error, table)
        return
    metadata, findings = _check_metadata(storage, folder, settings)
    yield from findings
    yield from (from_warning(each, table) for each in ignored(TableFiles(folder, metadata or TableMetadata())))
    if not folder.files:
        yield reported("table-empty", "no change file has arrived yet", table=table, file=folder.name.folder)
        return
    read = metadata or TableMetadata()
    yield from _check_numbers(folder, read)
    yield from _check_sizes(folder, read)
    expected = _expected(table, metadata, settings)
    seen, rows, files = SeenColumns(), 0, 0
    if read.delimited is not None:
        for file in _in_order(folder, read):
            of_file = replace(expected, sequence=()) if applied.holds(file) else expected
            yield from _check_delimited(storage, file.entry, read, of_file, seen, now - settings.settle)
        return
    for file in _in_order(folder, read):
        number, entry = file.number, file.entry
        try:
            change = complete(entry, number, Readiness(now, settings.settle, footer_reader(storage)), read)
        except LakemirrorError as error:
            yield replace(from_error(error, table), file=entry.path)
            continue
        if isinstance(change, ChangeFile):
            of_file = replace(expected, sequence=()) if applied.holds(file) else expected
            yield from check_content(storage, change, of_file, seen)
            rows, files = rows + change.footer.num_rows, files + 1
        elif isinstance(change, Rejected):
            yield from_error(change.error(), table)
        else:
            yield from _incomplete(change, entry, table)
    size = sum(file.entry.size for file in _in_order(folder, read))
    if files >= SMALL_FILES and size / files < SMALL_BYTES and rows / files < SMALL_ROWS:
        message = f"{files} files hold {rows} rows: {rows / files:.0f} rows and {size / files / 1024:.1f} KiB each"
        yield reported("files-small", message, table=table, file=folder.name.folder)


def _expected(table: str, metadata: TableMetadata | None, settings: Settings) -> Expected:
    read, rules = metadata or TableMetadata(), column_rules(allowed(settings, table))
    if read.options.reserves_names:
        rules = replace(rules, added=ADDED_COLUMNS)
    keys, sequence = metadata.key_columns if metadata else None, read.options.sequence
    others = read.options.keeps_times, settings.undeclared_columns, settings.memory
    return Expected(table, keys, read.upsert_by_default, rules, sequence, *others)


def _check_delimited(
    storage: Storage, entry: Entry, metadata: TableMetadata, expected: Expected, seen: SeenColumns, settled: float
) -> Iterator[Finding]:
    """The findings in one delimited file. One that cannot be read and changed after `settled` may still be written."""
    try:
        with storage.open(entry.path) as source:
            yield from check_delimited(source, entry.path, metadata, expected, seen)
    except FileNotFoundError:
        return  # deleted by its publisher since the listing
    except TableError as error:
        if entry.modified / 1e9 > settled:
            message = f"{entry.name} is not complete yet"
            yield reported("file-incomplete", message, table=expected.table, file=entry.path)
        else:
            yield from_error(error, expected.table)
    except LakemirrorError as error:
        yield replace(from_error(error, expected.table), file=entry.path)


class _Mounted(LocalStorage):
    """One folder, shown at `mount` in a landing zone that need not exist."""

    def __init__(self, folder: Path, mount: str) -> None:
        super().__init__(folder)
        self._mount = mount

    def list(self, path: str, enter: Callable[[str], bool] = lambda _: True) -> Listing:
        inner = super().list("", lambda below: enter(f"{self._mount}/{below}"))
        files = [replace(entry, path=f"{self._mount}/{entry.path}") for entry in inner.files]
        folders = [f"{self._mount}/{folder}" for folder in inner.folders]
        others = {f"{self._mount}/{path}": kind for path, kind in inner.others.items()}
        errors = {f"{self._mount}/{path}" if path else self._mount: error for path, error in inner.errors.items()}
        return Listing(files, folders if self._mount == LANDING_ZONE else [self._mount, *folders], others, errors)

    def open(self, path: str, listed: Entry | None = None) -> BinaryIO:
        return super().open(_relative(path, self._mount), listed)

    def read(self, path: str, most_bytes: int | None = None, listed: Entry | None = None) -> bytes:
        return super().read(_relative(path, self._mount), most_bytes, listed)


def _open_store(address: str) -> tuple[Storage, str]:
    """The same for an address in a store: a database, its landing zone, or a folder of it."""
    database, found, below = address.partition(f"/{LANDING_ZONE}")
    storage = storage_of(database)
    if not storage.exists(LANDING_ZONE):
        raise missing_database(address)
    return storage, f"{LANDING_ZONE}{below}" if found else ""


def _open(path: Path) -> tuple[Storage, str]:
    """The folder as a database, and where in it the given path is.

    A database holds Files/LandingZone. A table folder is in a landing zone, or looks like one. Any other folder is
    taken for a landing zone.
    """
    path = Path(os.path.realpath(path))  # unlike `Path.resolve`, it takes a link to itself
    if not path.is_dir():
        raise SetupError("database-missing", f"{path} is no folder", hint="Give a database, a landing zone or a table.")
    if (path / LANDING_ZONE).is_dir():
        return LocalStorage(path), ""
    schema = f"{path.parent.name}/" if path.parent.name.endswith(".schema") else ""
    zone = path.parent.parent if schema else path.parent
    if path.match(LANDING_ZONE):
        mount = LANDING_ZONE
    elif path.name.endswith(".schema"):
        mount = f"{LANDING_ZONE}/{path.name}"
    elif zone.match(LANDING_ZONE) or _looks_like_a_table(path):
        mount = f"{LANDING_ZONE}/{schema}{path.name}"
    elif any(databases_below(path)):
        raise missing_database(str(path))
    else:
        mount = LANDING_ZONE
    return _Mounted(path, mount), mount


def _looks_like_a_table(path: Path) -> bool:
    """True where a folder holds what only table folders hold, or data files and no folder that could be a table."""
    try:
        items = {item.name: item.is_dir() for item in path.iterdir()}
    except OSError as error:
        raise LakemirrorError("storage-unavailable", f"{path}: {error.strerror or error}") from error
    if not items.keys().isdisjoint((METADATA, MARKER, PROCESSED)):
        return True
    tables = [name for name, is_folder in items.items() if is_folder and not name.startswith("_") and "=" not in name]
    return not tables and any(data_stem(name) for name, is_folder in items.items() if not is_folder)


def _settings(storage: Storage) -> tuple[Settings, list[Finding]]:
    """The settings with which an engine would run, and what is wrong with them."""
    try:
        return allowed(resolve({} if isinstance(storage, _Mounted) else read_definition(storage))), []
    except LakemirrorError as error:
        return Settings(), [replace(from_error(error), file=DEFINITION)]


def _check_zone(storage: Storage, zone: Zone, settings: Settings) -> Iterator[Finding]:
    for warned in not_files(zone.others):
        yield from_warning(warned)
    for path, failed in zone.errors.items():
        yield replace(from_error(failed), file=path)
    for path in zone.skipped:
        message = f"the folder {path.rpartition('/')[2]} is no table: {why_skipped(path)}"
        yield reported("folder-skipped", message, file=path)
    for entry in zone.strays:
        yield reported("file-stray", f"{entry.name} is in no table folder", file=entry.path)
    for name, other in sorted(collisions(zone, settings.default_schema).items()):
        message = f"{name} and {other} become the same table of Tables/"
        yield reported("table-name-ambiguous", message, table=str(name), file=name.folder)
    for name, other, ours in _named_like_ours(storage, zone, settings):
        message = f"{name} and a second table of {other} become the same table {ours}"
        yield reported("table-name-ambiguous", message, table=str(name), file=name.folder)
    _, warning = read_partner(storage, zone)
    if warning is not None:
        yield from_warning(warning)
    manifests = CutManifests(storage)
    for entry in manifests.listed()[-_MOST_CUTS:]:
        try:
            manifests.read(entry)
        except LakemirrorError as error:
            yield replace(from_error(error), file=entry.path)
        except FileNotFoundError:
            continue


def _named_like_ours(storage: Storage, zone: Zone, settings: Settings) -> Iterator[tuple[TableName, TableName, str]]:
    """The table folders whose table is a history table of another one, or remembers its late changes."""
    folders = {name.target(settings.default_schema).lower(): name for name in zone.tables}
    for other, folder in sorted(zone.tables.items()):
        with contextlib.suppress(LakemirrorError, OSError):  # what is wrong with it is said elsewhere
            metadata = read_metadata(storage, folder, settings.tables)
            for table in named_tables(other, other.target(settings.default_schema), metadata):
                if (name := folders.get(table.target.lower())) is not None:
                    yield name, other, table.target


def _check_metadata(
    storage: Storage, folder: TableFolder, settings: Settings
) -> tuple[TableMetadata | None, list[Finding]]:
    """The metadata, None where it does not parse, and what there is to say about it."""
    table, entry = str(folder.name), folder.metadata
    try:
        metadata = read_metadata(storage, folder, settings.tables)
    except LakemirrorError as error:
        return None, [replace(from_error(error, table), file=error.file or f"{folder.name.folder}/{METADATA}")]
    if entry is None:
        return metadata, []
    findings = [from_warning(each, table) for each in metadata.warnings]
    if len(metadata.key_columns) >= MANY_KEYS:
        message = f"{len(metadata.key_columns)} key columns are declared"
        findings.append(reported("keys-many", message, table=table, file=entry.path))
    return metadata, findings


def _check_numbers(folder: TableFolder, metadata: TableMetadata) -> Iterator[Finding]:
    """Numbers with two files, and numbers that are missing.

    Where files were applied already, their numbers need not be there any more: only what is missing between the
    numbers that are there is missing.
    """
    table = str(folder.name)
    if metadata.file_detection_strategy != SEQUENTIAL or metadata.partitioned:
        return
    files = TableFiles(folder, metadata)
    numbered, rivals = files.by_partition.get("", {}), files.rivals()
    for number, entries in sorted(numbered.items()):
        if len(entries) + len(rivals.get(number, ())) > 1:
            yield from_error(ambiguous(number, [*entries, *rivals.get(number, ())]).error(), table)
    resting = TableFolder(folder.name, [replace(e, path=f"{folder.name.folder}/{e.name}") for e in folder.processed])
    present = numbered.keys() | TableFiles(resting, metadata).by_partition.get("", {}).keys()
    awaited = 1 if not folder.processed and folder.marker is None else min(present, default=1)
    for number in sorted(present):
        if number > awaited:
            missing = f"number {awaited} is" if number == awaited + 1 else f"numbers {awaited} to {number - 1} are"
            first = numbered.get(number)
            file = first[0].path if first else folder.name.folder
            yield reported("number-missing", f"{missing} missing before number {number}", table=table, file=file)
        awaited = number + 1


def _check_sizes(folder: TableFolder, metadata: TableMetadata) -> Iterator[Finding]:
    table = str(folder.name)
    files = _in_order(folder, metadata)
    if len(files) > MANY_FILES:
        message = f"{len(files)} files are in the folder"
        yield reported("files-many", message, table=table, file=folder.name.folder)
    for entry in (file.entry for file in files):
        if entry.size > LARGE_BYTES:
            message = f"{entry.name} has {entry.size / 1024**3:.1f} GiB"
            yield reported("file-large", message, table=table, file=entry.path)


def _incomplete(waiting: Waiting, entry: Entry, table: str) -> Iterable[Finding]:
    if waiting.what.endswith("to be complete"):
        yield reported("file-incomplete", f"{entry.name} is not complete yet", table=table, file=entry.path)


def _in_order(folder: TableFolder, metadata: TableMetadata) -> list[FolderFile]:
    """The change files in the order in which they would be applied."""
    files = TableFiles(folder, metadata).changes
    if metadata.file_detection_strategy == SEQUENTIAL:
        return sorted(files, key=lambda file: (file.partition, file.number, file.entry.path))
    return sorted(files, key=lambda file: (file.entry.modified, file.entry.path))


def _relative(path: str, mount: str) -> str:
    return path[len(mount) + 1 :] if mount and path.startswith(mount) else path
