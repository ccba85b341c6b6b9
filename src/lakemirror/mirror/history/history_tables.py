"""The history tables of one table folder: where they are, and what each of them has applied (history.md section 4).

    options, name ─▶ places ─▶ the log of each ─▶ HistoryTable: position, detection, which files it has

A history table is a target of the same change files as the mirrored table, with a position, a manifest and a record of
detection of its own. An apply commits to the history tables first and to the mirrored table last, so the position of
the mirrored table is that of the table folder. After a crash between two commits a history table is ahead by one batch:
the next batch is that one, and the table that has it does nothing.

    property lakemirror.history, manifest   changes:orders      mode and table folder, to know the table again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lakemirror.delta.log_folder import Log
from lakemirror.errors import Rejected, TableError
from lakemirror.landing_zone.change_file import AppliedFiles, ChangeFile, FolderFile, TableFiles
from lakemirror.landing_zone.findings import Warned, capped
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.pending import Pending
from lakemirror.landing_zone.table_options import LATE, HistoryOptions, named_targets
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.position import (
    AGAIN,
    BEYOND,
    Detection,
    Manifest,
    Position,
    declared,
    file_mark,
    from_note,
    parse_detection,
)
from lakemirror.mirror.schema_evolution import check_needed_columns
from lakemirror.mirror.table_log import LogCache, TableLog, applied_after, applied_of, read_table_log
from lakemirror.mirror.table_places import check_no_table_around, in_other_case
from lakemirror.status.status import format_time
from lakemirror.storage import Entry, Storage


@dataclass(frozen=True)
class HistoryTable:
    """A history table at one look.

    `label`: mode and table folder, as its manifest and its property have it. `target`: its folder, relative to the
    database. `table`: what its log says, None where there is no table yet; `log`: as in `View`. `detection`, `applied`:
    of its own; none is applied where the table folder was made again (`is_of_earlier`).
    """

    options: HistoryOptions
    label: str
    target: str
    table: TableLog | None = None
    log: Log | None = field(default=None, repr=False)
    detection: Detection = field(default_factory=Detection)
    applied: AppliedFiles = field(default_factory=AppliedFiles)
    is_of_earlier: bool = False

    @property
    def at(self) -> Position | None:
        """The position that the table records; None where there is no table."""
        return self.table.position if self.table is not None else None

    def holds(self, file: ChangeFile) -> bool:
        """True where the file is applied to this table."""
        return self.applied.holds(FolderFile(file.entry, file.sequence or file.number, file.below, file.partition))

    def is_behind(self, at: Position) -> bool:
        """True where the table lacks files that the mirrored table has: its option is new, or was off for a while."""
        return self.at is None or self.applied.count < at.number

    def after(self, files: Sequence[ChangeFile], table: TableLog, path: str, log: Log | None) -> HistoryTable:
        """The table once these files are applied to it. `table`: what the commit recorded; `log`: with the commit."""
        detection, applied = applied_after(table, self.applied, files, path)
        return replace(self, table=table, log=log, detection=detection, applied=applied, is_of_earlier=False)


class HistoryObserver:
    """Looks at the history tables of one table folder."""

    def __init__(self, storage: Storage, name: TableName, target: str) -> None:
        """`target`: of the mirrored table."""
        self._storage, self._name, self._target = storage, name, target
        self._logs: dict[str, LogCache] = {}

    @property
    def targets(self) -> list[str]:
        """The history tables that this process has looked at."""
        return list(self._logs)

    def forget(self) -> None:
        """The next look lists the logs."""
        for log in self._logs.values():
            log.forget()

    def log_of(self, target: str) -> LogCache:
        """The log of a history table, as this process knows it."""
        if target not in self._logs:
            self._logs[target] = LogCache(self._storage.uri(target), self._storage.capabilities.looks_last)
        return self._logs[target]

    def observe(self, metadata: TableMetadata, identity: str, earlier: Sequence[str] = ()) -> tuple[HistoryTable, ...]:
        """The history tables that the options ask for. `identity`: of the table folder; `earlier`: those that it had
        before resyncs, whose files a history table has.

        TableError, with the name of the table or of `_metadata.json`: `metadata-invalid`, `table-name-ambiguous`,
        `target-foreign`, `table-restored`, `key-columns-missing-in-table`.
        """
        named = named_tables(self._name, self._target, metadata)
        return tuple(self._looked(table, metadata, (identity, *earlier)) for table in named)

    def newest(self, metadata: TableMetadata) -> tuple[TableLog, AppliedFiles] | None:
        """The history table with the newest apply, and which files it has: after a crash it may know the identity of a
        table folder whose mirrored table does not have it yet, and whose marker is lost."""
        found = [(each.target, read_table_log(self._storage.uri(each.target)), each.label)
                 for each in named_tables(self._name, self._target, metadata)]  # fmt: skip
        ours = [(target, log) for target, log, label in found if log is not None and log.history == label]
        if not ours:
            return None
        target, log = max(ours, key=lambda each: each[1].applied_at)
        path = self._storage.uri(target)
        return log, applied_of(path, parse_detection(log.detection, path), log.position, log.manifest)

    def _looked(self, named: HistoryTable, metadata: TableMetadata, same: Sequence[str]) -> HistoryTable:
        path = self._storage.uri(named.target)
        log = self.log_of(named.target).read()
        table = read_table_log(path, log) if log is not None or not self._storage.capabilities.waits else None
        at = table.position if table is not None else None
        same = same[:1] if named.options.mode == LATE else same  # a resync begins it again
        if table is not None:
            _check(named, table)
        else:
            check_no_table_around(self._storage, named.target)
            if named.options.name and (other := in_other_case(self._storage, named.target)) is not None:
                message = f"{metadata.file}: lakemirror.history.name: {named.target} and {other} differ in case alone"
                raise TableError("table-name-ambiguous", message, file=metadata.file, hint=_OTHER_CASE)
        is_same = table is not None and at is not None and at.identity in same
        before = parse_detection(table.detection, path) if table is not None and is_same else Detection()
        detection = declared(before, metadata, at.number if at is not None and is_same else 0, str(self._name))
        manifest = table.manifest if table is not None and is_same else None
        applied = applied_of(path, detection, at if is_same else None, manifest, log)
        is_of_earlier = at is not None and not is_same
        return replace(
            named, table=table, log=log, detection=detection, applied=applied, is_of_earlier=is_of_earlier
        )  # fmt: skip


def named_tables(name: TableName, target: str, metadata: TableMetadata) -> list[HistoryTable]:
    """The history tables that a table folder asks for, not looked at. `target`: of the mirrored table.

    TableError `metadata-invalid` for a name that a history table cannot have.
    """
    above = target.rpartition("/")[0]
    found = named_targets(metadata.options, name.table, metadata.file)
    return [HistoryTable(options, f"{options.mode}:{name}", f"{above}/{table}") for options, table in found]


def ahead_first(pending: Pending, tables: Sequence[HistoryTable]) -> Pending:
    """The pending files, with those first that a history table has already: a process has ended between two commits."""
    files = pending.files
    ahead = [file for file in files if any(table.holds(file) for table in tables)]
    if not ahead or list(files[: len(ahead)]) == ahead:
        return pending
    order = [*ahead, *(file for file in files if file not in ahead)]
    numbers = [file.number for file in files]
    return replace(pending, files=tuple(replace(f, number=n) for f, n in zip(order, numbers, strict=True)))


def until_another(
    pending: Pending, files: TableFiles, applied: AppliedFiles, tables: Sequence[HistoryTable], identity: str
) -> Pending:
    """The pending files before the first that is not what a history table has applied under its name.

    A process has ended between two commits, and the publisher has replaced or deleted the file meanwhile. `applied`: to
    the mirrored table. A table that goes on after a resync keeps what it has; a copied folder has other times.
    """
    marker = files.folder.marker.modified / 1e9 if files.folder.marker is not None else 0.0
    for table in tables:
        log, manifest = table.table, table.table.manifest if table.table is not None else None
        if log is None or manifest is None or manifest.identity != identity or table.applied.count <= applied.count:
            continue
        if 0 < log.applied_at < marker:
            continue
        for file in pending.files:
            if table.holds(file) and not _is_same(file, manifest):
                message = f"{table.target} has applied another file under this name, which the mirrored table lacks"
                if manifest.last_file is not None and file.below == manifest.file:
                    message += f": {_told(manifest.last_file)}; this one has {_told(file.entry)}"
                return pending.until(_rejected(table, message, file.entry.path))
        if _lacks_files(files, applied, table, manifest):
            path = f"{files.folder.name.folder}/{manifest.file}"
            message = (
                f"{table.target} has applied files up to this one, and not all that the mirrored table lacks are there"
            )
            since = int(pending.oldest * 1e9) if pending.oldest is not None else None
            return Pending((), pending.count, since, pending.waiting, _rejected(table, message, path))
    return pending


def _is_same(file: ChangeFile, manifest: Manifest) -> bool:
    if manifest.last_file is not None and file.below == manifest.file:
        return file.entry.etag == manifest.last_file.etag
    return not manifest.earlier or file_mark(file.below, file.entry.etag) in manifest.earlier


def _lacks_files(files: TableFiles, applied: AppliedFiles, table: HistoryTable, manifest: Manifest) -> bool:
    """True where a file that only the history table has is gone. At a missing number the table waits anyway."""
    if applied.paths is None or manifest.file in applied.paths:
        return False
    there = sum(table.applied.holds(file) and not applied.holds(file) for file in files.changes)
    return there < table.applied.count - applied.count


def _told(entry: Entry) -> str:
    """Size and time of a file; the time as `touch -d` takes it."""
    return f"{entry.size} bytes of {format_time(entry.modified // 10**9)[:19]}.{entry.modified % 10**9:09}Z"


def _rejected(table: HistoryTable, message: str, path: str) -> Rejected:
    hint = f"Put the earlier file back, or its time (touch -d) if the content is the same. Or: {AWAY}"
    return Rejected("file-replaced", message, path, hint=hint if table.options.mode == LATE else None)


def alike(files: Sequence[ChangeFile], tables: Sequence[HistoryTable]) -> list[ChangeFile]:
    """The first files that each history table has, or has not: one commit of each table takes them."""
    found: list[ChangeFile] = []
    for file in files:
        if [table.holds(file) for table in tables] != [table.holds(files[0]) for table in tables]:
            break
        found.append(file)
    return found


def warnings_of(tables: Sequence[HistoryTable]) -> list[Warned]:
    """What other writers changed in history tables since their last apply, with their names, and what they lack."""
    manifests = [each.table.manifest for each in tables if each.table is not None]
    notes = [from_note(note) for manifest in manifests if manifest is not None for note in manifest.notes]
    return [warned for warned in notes if warned.code in (GAP, BEYOND, AGAIN)] + [
        warned._replace(message=f"{each.target}: {warned.message}")
        for each in tables
        if each.table is not None and each.table.foreign.changes
        for warned in capped(each.table.foreign.warnings)
    ]


def _check(named: HistoryTable, table: TableLog) -> None:
    target = named.target
    if table.identity:
        message = f"{target}: another program removed the position, so it is unknown which files are applied"
        raise TableError("table-restored", message, table=target, file=target, hint=AWAY)
    if table.position is None:
        raise TableError("target-foreign", f"{target} holds a Delta table that lakemirror did not make", file=target)
    if table.history != named.label:
        mode, _, folder = table.history.partition(":")
        what = f"the history table of {folder}, mode {mode}" if folder else "the mirrored table of another folder"
        hint = _OTHER_NAME if named.options.mode != LATE else None  # of which no option gives the name
        raise TableError("table-name-ambiguous", f"{target} is {what}", table=target, file=target, hint=hint)
    if table.foreign.restored is not None:
        message = f"{target}: {table.foreign.restored} took rows back; nothing is applied on top of them"
        raise TableError("table-restored", message, table=target, file=target, hint=AWAY)
    check_needed_columns(table.missing, target, f"Rename the column back. Or: {AWAY}")


GAP = "history-gap"
"""The code of the warning that a history table lacks changes of files."""

AWAY = "Move that table away: its history begins again with the next change."
_OTHER_CASE = (
    "Take another name. Or, if it is the history of this folder: write the name as it has it, or run "
    "`lakemirror history drop DB TABLE`: it begins again."
)
_OTHER_NAME = 'Give the history table another name in _metadata.json ("lakemirror": {"history": {"name": …}}).'
