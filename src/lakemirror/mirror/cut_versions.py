"""Which versions of a database's Delta tables are the cuts that its publisher declared (contract: sources.md, 8).

    manifest: table → number of its last file ─▶ the commit that ends at this file ─▶ table → version

Nothing is recorded for a cut: each apply's commit says at which file it ends, and by which token. So a version is a cut
from the commit on that made it, whatever is killed, for as long as the log has that commit. Of the versions with the
same rows, a cut is the newest that there was when it was declared: VACUUM keeps that one for the whole retention.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from lakemirror.delta.log import Action, latest_commits, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.cut_manifests import CutManifest, CutManifests, cut_number
from lakemirror.landing_zone.identity import marker_of
from lakemirror.landing_zone.zone import TableFolder, TableName, scan_table
from lakemirror.maintenance.vacuum import files_of_table, named_paths
from lakemirror.mirror.position import parse_manifest, position_of_commit
from lakemirror.mirror.table_log import OURS
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage, place

REACHED, EMPTY, WAITS, VOID = "reached", "empty", "waits", "void"


@dataclass(frozen=True)
class TableAtCut:
    """One table at a cut. `number`: of its last file. `version`: of the Delta table, None where there is none.

    `state`: `reached`; `empty`: it had no file yet; `waits`: the file is not applied yet; `void`: no version is or will
    be this cut. `reason`: why it waits or is void. `path`: of the Delta table. `applied`: the version that applied the
    file: the cut is found as long as the log has its commit.
    """

    name: str
    number: int
    path: str
    version: int | None
    state: str
    reason: str = ""
    applied: int | None = None


@dataclass(frozen=True)
class Cut:
    """One consistent picture of several tables. `position`, `time`: the source's, as its publisher says.

    `tables`: by name. `reread`: how many values may be newer than the cut. `error`: why the manifest cannot be read.
    """

    number: int
    position: str = ""
    time: str = ""
    tables: tuple[TableAtCut, ...] = ()
    reread: int = 0
    error: LakemirrorError | None = None

    @cached_property
    def is_complete(self) -> bool:
        """True where every table has reached it."""
        return self.error is None and all(table.state in (REACHED, EMPTY) for table in self.tables)

    @cached_property
    def is_void(self) -> bool:
        """True where it will never be complete."""
        return self.error is not None or any(table.state == VOID for table in self.tables)

    @cached_property
    def versions(self) -> Mapping[str, int]:
        """The version of each Delta table that is this cut, by `schema.table`; only of tables that have reached it and
        had a file."""
        return {table.name: table.version for table in self.tables if table.version is not None}

    @cached_property
    def reasons(self) -> Mapping[str, str]:
        """Why tables have not reached it, by name."""
        return {table.name: table.reason for table in self.tables if table.reason}

    def snippets(self) -> dict[str, dict[str, str]]:
        """For each table the lines that read its version, by tool."""
        from lakemirror.readers.table_readers import ReadableTable

        return {
            table.name: ReadableTable(table.name, table.path).snippets(table.version)
            for table in self.tables
            if table.version is not None
        }

    def to_json(self) -> dict[str, Any]:
        """The cut as `lakemirror cuts --json` prints it."""
        content: dict[str, Any] = {
            "cut": self.number, "position": self.position, "time": self.time, "complete": self.is_complete,
            "void": self.is_void, "versions": dict(self.versions), "reasons": dict(self.reasons),
            "reread": self.reread,
        }  # fmt: skip
        if self.error is not None:
            content |= {"errorCode": self.error.code, "errorMessage": self.error.message}
        return content


class Cuts:
    """The cuts of one database, newest first. Each manifest and each commit is read once."""

    def __init__(self, storage: Storage, default_schema: str, retention_days: float) -> None:
        """`retention_days`: how long VACUUM keeps old versions. Whether older ones can still be read is looked up."""
        self._storage = storage
        self._schema = default_schema
        self._kept_from = time.time_ns() - int(retention_days * 86_400e9)
        self._manifests = CutManifests(storage)
        self._tables: dict[str, _Table] = {}

    def __iter__(self) -> Iterator[Cut]:
        for entry in reversed(self._manifests.listed()):
            number = cut_number(entry.name)
            try:
                yield self._cut(self._manifests.read(entry))
            except FileNotFoundError:
                continue
            except LakemirrorError as error:
                if error.code != "cut-invalid":
                    raise
                yield Cut(number, error=error)

    def find(self, which: str) -> Cut:
        """The cut of a number, or the newest that is complete (`last`). LakemirrorError `cut-unknown`."""
        found = (cut for cut in self if (cut.is_complete if which == "last" else str(cut.number) == which))
        cut = next(found, None)
        if cut is None:
            what = "no cut is complete yet" if which == "last" else f"there is no cut {which!r}"
            raise LakemirrorError("cut-unknown", f"{self._storage.uri()}: {what}")
        return cut

    def last_complete(self) -> Cut | None:
        """The newest cut that every table has reached; None if there is none."""
        return next((cut for cut in self if cut.is_complete), None)

    def remove_old(self, before: int) -> int:
        """Deletes the manifests that were written before a moment (nanoseconds) and are older than the last complete
        cut; returns their number."""
        last = self.last_complete()
        old = [
            entry
            for entry in self._manifests.listed()
            if last is not None and cut_number(entry.name) < last.number and entry.modified < before
        ]
        for entry in old:
            self._storage.delete(entry.path)
        return len(old)

    def _cut(self, manifest: CutManifest) -> Cut:
        tables = tuple(
            self._table(name).at(number, manifest) for name, number in sorted(manifest.tables.items())
        )  # fmt: skip
        return Cut(manifest.cut, manifest.position, manifest.time, tables, manifest.reread)

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            named = _named(self._storage, name)
            path = self._storage.uri(named.target(self._schema))
            self._tables[name] = _Table(self._storage, named, name, path, self._kept_from)
        return self._tables[name]


def oldest_needed(storage: Storage, settings: Settings, table: str) -> int | None:
    """The version of a table (`schema.table`) from which on its log shows the last complete cut; None without one.

    It is the version that applied the cut's file; that of the cut may be a later one with the same rows.
    """
    last = Cuts(storage, settings.default_schema, settings.retention_in_days).last_complete()
    found = (each.applied for each in last.tables if each.name == table) if last is not None else ()
    return next(iter(found), None)


def versions_to_keep(storage: Storage, settings: Settings, target: str) -> Collection[int]:
    """The versions of a Delta table that the last complete cut needs. Deletes manifests that are older than the
    retention. `target`: the table's folder, relative to the database."""
    cuts = Cuts(storage, settings.default_schema, settings.retention_in_days)
    cuts.remove_old(time.time_ns() - int(settings.retention_in_days * 86_400e9))
    last, path = cuts.last_complete(), storage.uri(target)
    tables = last.tables if last is not None else ()
    return {table.version for table in tables if table.version is not None and table.path == path}


class _Apply(NamedTuple):
    """One apply in a table's log: its version, the file at which it ends, the generation of the table folder.

    `is_numbered`: `last` is the number of a file, and not a count of files, as where several sequences run.
    `same`: later versions with the same rows, newest first, each with the time of its commit in nanoseconds.
    """

    version: int
    last: int
    token: str
    modified: int
    identity: str
    generation: int
    is_numbered: bool
    same: tuple[tuple[int, int], ...]

    def at(self, moment: int) -> int:
        """The newest version with these rows at a moment; this one if there was none yet."""
        return next((version for version, committed in self.same if committed <= moment), self.version)


class _Table:
    """One table: what its log and its folder say of files."""

    def __init__(self, storage: Storage, named: TableName, name: str, path: str, kept_from: int) -> None:
        """`path`: of the Delta table. `kept_from`: files of later cuts are kept, in nanoseconds."""
        self._storage, self._named, self._name = storage, named, name
        self._path, self._kept_from = path, kept_from
        self._there: dict[str, float] | None = None
        self._left = _applies(self._path)
        self._seen: dict[int, list[_Apply]] = {}
        self._newest: _Apply | None = None
        self._oldest: _Apply | None = None

    def at(self, number: int, manifest: CutManifest) -> TableAtCut:
        """The table at a cut that ends at this file."""
        if number == 0:
            return TableAtCut(self._name, 0, self._path, None, EMPTY)
        token = manifest.files.get(self._name, "")
        found = self._find(number, token, manifest.modified)
        is_told = found is not None and bool(token and found.token)
        if found is not None and (is_told or not self._is_made_again(found, manifest.modified)):
            version = found.at(manifest.modified)
            lost = self._lost(version) if manifest.modified < self._kept_from else ""
            if not lost:
                return TableAtCut(self._name, number, self._path, version, REACHED, applied=found.version)
            return TableAtCut(self._name, number, self._path, None, VOID, lost)
        state, reason = self._unreached(number, manifest.modified)
        return TableAtCut(self._name, number, self._path, None, state, reason)

    def _find(self, number: int, token: str, before: int) -> _Apply | None:
        """The newest apply that ends at this very file. Reads the log back as far as one may be there."""
        while True:
            for each in self._seen.get(number, ()):
                # without a token on either side, a file with this number that is younger is another
                if each.token == token if token and each.token else each.modified <= before:
                    return each
            oldest = self._oldest
            if oldest is not None and oldest.generation == 1 and oldest.last < number:
                return None
            earlier = next(self._left, None)
            if earlier is None:
                return None
            if earlier.is_numbered:
                self._seen.setdefault(earlier.last, []).append(earlier)
            self._newest, self._oldest = self._newest or earlier, earlier

    def _is_made_again(self, found: _Apply, modified: int) -> bool:
        """True if another file with this number was there before the manifest (`modified`), in a folder that was made
        again and is not applied yet: a manifest without tokens means that one."""
        folder = self._folder
        if folder is None or self._is_current(folder):
            return False
        begin = f"{folder.name.folder}/{found.last:020}."
        its = [entry.modified for entry in folder.files if entry.path.startswith(begin)]
        return any(each <= modified and each != found.modified for each in its)

    @cached_property
    def _folder(self) -> TableFolder | None:
        return scan_table(self._storage, self._named)

    def _lost(self, version: int) -> str:
        """Why a version cannot be read any more; empty if it can."""
        try:
            snapshot = read_snapshot(self._path, version)
        except LakemirrorError as error:
            return f"version {version} cannot be read any more: {error.message}"
        if snapshot is None:
            return f"version {version} is gone"
        if self._there is None:
            self._there = files_of_table(place(self._path), snapshot.metadata.partition_columns)
        named = {path for add in snapshot.files.values() for path in named_paths(snapshot.table, add)}
        return f"files of version {version} were removed" if named - self._there.keys() else ""

    def _unreached(self, number: int, modified: int) -> tuple[str, str]:
        """Whether the cut's file is still to be applied, and why it has no version. `modified`: of the manifest."""
        folder = self._folder
        if folder is None:
            return VOID, f"{self._named.folder} is gone, and file {number} with it"
        begin = f"{folder.name.folder}/{number:020}."
        is_there = any(entry.path.startswith(begin) and entry.modified <= modified for entry in folder.files)
        position = self._newest.last if self._newest is not None and self._is_current(folder) else 0
        if number <= position:
            return VOID, f"no version ends at file {number}: files up to {position} are applied"
        if is_there:
            return WAITS, f"file {number} is not applied yet"
        return VOID, f"file {number} is gone, or is another one than that of the cut"

    def _is_current(self, folder: TableFolder) -> bool:
        """True if the table folder is the one that was applied last."""
        if folder.marker is None or self._newest is None:
            return False
        marker = marker_of(self._storage, folder.name, folder.marker)
        return marker is not None and marker.id == self._newest.identity


def _applies(table: str) -> Iterator[_Apply]:
    """The applies in the log of a Delta table, newest first."""
    same: list[tuple[int, int]] = []
    for version, actions in latest_commits(table):
        position = position_of_commit(actions)
        info: Mapping[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        manifest = parse_manifest(info.get("userMetadata")) if position is not None else None
        if position is not None and manifest is not None:
            yield _Apply(
                version, position.number, manifest.token, manifest.modified, position.identity, position.generation,
                not manifest.detection, tuple(same),
            )  # fmt: skip
            same = []
        elif _has_same_rows(info, actions):
            moment = info.get("timestamp")
            same.append((version, moment * 1_000_000 if isinstance(moment, int) else time.time_ns()))
        else:
            same = []


def _has_same_rows(info: Mapping[str, Any], actions: Sequence[Action]) -> bool:
    """True for a commit that changes neither rows nor columns: a compaction of any engine, a feature drop of ours."""
    files = [each[kind] for each in actions for kind in ("add", "remove") if kind in each]
    if any(file.get("dataChange") is not False for file in files):
        return False
    return info.get("engineInfo") == OURS or not any("metaData" in each for each in actions)


def _named(storage: Storage, name: str) -> TableName:
    """The table folder that a manifest names `schema.table` or `table`: the one that is there."""
    parts = name.split(".")
    splits = [TableName(".".join(parts[:at]), ".".join(parts[at:])) for at in range(len(parts) - 1, 0, -1)]
    possible = [each for each in (TableName("", name), *splits) if each.table]
    if len(possible) == 1:
        return possible[0]
    return next((each for each in possible if storage.exists(each.folder)), possible[1])
