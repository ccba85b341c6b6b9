"""Snapshots of shared tables. The newest of the tables that were asked for lately are kept, with their lines.

A commit is found by its name (`RecentLog`), so a table that has not changed costs two look-ups on the disk.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from lakemirror.delta.log import Snapshot, read_snapshot
from lakemirror.delta.log_folder import Log, RecentLog, list_log
from lakemirror.errors import LakemirrorError
from lakemirror.service.refused import Refused
from lakemirror.service.sharing.file_predicates import FileBounds
from lakemirror.service.sharing.response_lines import FileLine, file_line, head_lines
from lakemirror.service.sharing.shared_tables import SharedTable
from lakemirror.storage import Place

_MOST_TABLES = 256
_MOST_LINES = 50_000  # of files, some 100 MB


@dataclass(frozen=True)
class VersionLines:
    """What an answer about one version is made of. `files`: in the order of `bounds`. `stays`: the next question about
    this version gets the same objects."""

    head: Sequence[bytes]
    files: Sequence[FileLine]
    bounds: FileBounds
    stays: bool


@dataclass
class _Known:
    recent: RecentLog
    snapshot: Snapshot | None = None
    lines: dict[str, VersionLines] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Snapshots:
    """Reads snapshots of shared tables. Safe for threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[Place, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def newest(self, table: SharedTable) -> Snapshot:
        """The table as it is now. Refused 404 if it has just been dropped; LakemirrorError `table-unreadable`."""
        known = self._entry(table)
        with known.lock:
            log = known.recent.read()
            before = known.snapshot
            if log is None or before is None or (before.log.newest, before.version) != (log.newest, log.version):
                known.lines.clear()
                before = None if log is None else read_snapshot(table.folder, listed=log)
                known.snapshot = before
            if before is None:
                raise _dropped(table)
        self._keep_within_limits()
        return before

    def at(self, table: SharedTable, version: int) -> Snapshot:
        """The table at a version. Refused 400 if there is no such version, or its log has been cleaned up."""
        newest = self.newest(table)
        if version == newest.version:
            return newest
        found = None
        if 0 <= version < newest.version:
            try:
                found = read_snapshot(table.folder, version)
            except LakemirrorError as error:
                if error.code != "table-unreadable":
                    raise
        if found is None:
            message = f"Table {table.full_name} has no version {version} any more, or not yet: the newest is "
            raise Refused(400, "VersionNotFound", f"{message}{newest.version}.")
        return found

    def lines(
        self, table: SharedTable, snapshot: Snapshot, answer_format: str, at: tuple[int, int] | None
    ) -> VersionLines:
        """The lines of a snapshot. `at`: version and time, told in each line if given."""
        known = self._entry(table)
        if at is not None or known.snapshot is not snapshot:
            return _lines_of(table, snapshot, answer_format, at, stays=False)
        with known.lock:
            found = known.lines.get(answer_format)
            if found is None:
                found = _lines_of(table, snapshot, answer_format, None, stays=True)
                if known.snapshot is snapshot:
                    known.lines[answer_format] = found
        self._keep_within_limits()
        return found

    def _entry(self, table: SharedTable) -> _Known:
        with self._lock:
            known = self._known.setdefault(table.folder, _Known(RecentLog(table.folder)))
            self._known.move_to_end(table.folder)
            while len(self._known) > _MOST_TABLES:
                self._known.popitem(last=False)
            return known

    def _keep_within_limits(self) -> None:
        with self._lock:
            total = 0
            for known in reversed(self._known.values()):
                kept = list(known.lines.values())
                total += sum(len(each.files) + each.bounds.size for each in kept) or _files_read(known.snapshot)
                if total > _MOST_LINES:
                    known.lines = {}
                    known.snapshot = None


def _lines_of(
    table: SharedTable, snapshot: Snapshot, answer_format: str, at: tuple[int, int] | None, *, stays: bool
) -> VersionLines:
    head = head_lines(snapshot, answer_format, None if at is None else at[0])
    files = [file_line(table, add, "file", answer_format, at) for add in snapshot.files.values()]
    return VersionLines(head, files, FileBounds(snapshot), stays)


def _files_read(snapshot: Snapshot | None) -> int:
    """How many files of a snapshot are in memory: they are read at first use."""
    return len(snapshot.files) if snapshot is not None and "files" in vars(snapshot) else 0


def whole_log(table: SharedTable) -> Log:
    """All commits that the table's log still has. Refused 404."""
    log = list_log(table.folder)
    if log is None or log.version < 0:
        raise _dropped(table)
    return log


def _dropped(table: SharedTable) -> Refused:
    return Refused(404, "TableNotFound", f"There is no table {table.full_name} any more.")
