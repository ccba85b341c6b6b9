"""Makes the history tables of one table folder again from its applied files (history.md section 4).

    _ProcessedFiles + table folder ─▶ plans of a history table, as in any apply ─▶ a table in a work folder
                                                                                    └▶ one commit to the history table

Readers have the old history until that commit, and the whole new one after it. A build that is killed has changed
nothing, and begins again. An engine may work meanwhile: where it commits first, the build goes on with what is new.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from lakemirror.delta import commit as delta
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action, Metadata, Snapshot, read_snapshot
from lakemirror.delta.schema import Column, from_delta
from lakemirror.engines.engine import LOCAL, Engine, Preference, local_engine
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import Remembered, RowWork, Target
from lakemirror.engines.target import target_of
from lakemirror.engines.versions import may_have_open
from lakemirror.errors import Bad, LakemirrorError, TableError, TryAs
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import widens
from lakemirror.landing_zone.reserved_columns import ADDED_COLUMNS
from lakemirror.landing_zone.table_options import CHANGES, LATE, SCD2
from lakemirror.landing_zone.zone import TableFolder, TableName, scan_table
from lakemirror.mirror.apply import commit, make_table_folder, run, state_actions, transactions
from lakemirror.mirror.history.applied_files import HistoryFiles, incomplete
from lakemirror.mirror.history.history_tables import AWAY, HistoryTable
from lakemirror.mirror.history.open_versions import are_of_the_rows
from lakemirror.mirror.history.row_options import EARLIER_PROPERTY, upserts_as_earlier, upserts_recorded
from lakemirror.mirror.history.target_plans import completing, history_metadata, plan_history, remembered, view_of
from lakemirror.mirror.history.version_plans import (
    BEGAN_PROPERTY,
    OFF_PROPERTY,
    SINCE_PROPERTY,
    TRACK_PROPERTY,
    spelled,
)
from lakemirror.mirror.next_batch import Batch
from lakemirror.mirror.observe import TableObserver, View
from lakemirror.mirror.planner import ApplyPlan, Base
from lakemirror.mirror.position import Manifest, Position
from lakemirror.mirror.table_log import LogCache, read_table_log
from lakemirror.mirror.table_rules import TableRules, allowed, rules_of
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage, place

_ROUNDS = 5
_OF_BEFORE = (TRACK_PROPERTY, SINCE_PROPERTY, BEGAN_PROPERTY, OFF_PROPERTY)
_IN_PROCESS = "process"  # the table in the work folder needs to survive nothing


class Built(NamedTuple):
    """The history tables that were made again, and from how many change files."""

    targets: tuple[str, ...]
    files: int


def build(storage: Storage, name: TableName, settings: Settings) -> Built:
    """Makes each history table again, up to the position of the mirrored table.

    Errors: `history-incomplete`, without any change, where files or their times are not known since the table began;
    `concurrent-commit` where engines are always faster; what an apply raises.
    """
    settings, done = allowed(settings, str(name)), list[str]()
    with tempfile.TemporaryDirectory(prefix="lakemirror-history-") as scratch:
        for _ in range(_ROUNDS):
            view = _look(storage, name, settings)
            files = HistoryFiles(storage, view, settings)
            tables = [table for table in view.history if table.options.mode != LATE]
            try:
                for table in tables:
                    _check(view, table)
                left = [table for table in tables if table.target not in done]
                builds = [_build(storage, view, table, files, settings, Path(scratch)) for table in left]
                for each in builds:
                    each.check_options()
                for each in builds:
                    each.run()
                    done.append(each.table.target)
                return Built(tuple(done), view.position)
            except LakemirrorError as error:
                if error.code != "concurrent-commit":
                    raise
                last = error
            except FileNotFoundError as error:  # an engine has just set it aside
                last = LakemirrorError("concurrent-commit", f"{error.filename or error} was moved while it was read")
    raise last


def _look(storage: Storage, name: TableName, settings: Settings) -> View:
    folder = scan_table(storage, name)
    log = LogCache(storage.uri(name.target(settings.default_schema)), storage.capabilities.looks_last)
    view = TableObserver(storage, name, settings, log).observe(folder or TableFolder(name), mark=False)
    if view.failure is not None:
        raise view.failure
    if not any(table.options.mode != LATE for table in view.history):
        hint = "Declare one first: `history` in _metadata.json or mirroring.json."
        raise incomplete(view, "no history is declared", hint)
    return view


def _check(view: View, table: HistoryTable) -> None:
    """LakemirrorError `history-incomplete` where the folder's files are not all that the history is of."""
    if view.at is None or not view.position:
        raise incomplete(view, "no file is applied; the history begins with the first one")
    if not view.detection.is_plain:
        raise incomplete(view, "in which order its files were applied is not kept")
    if view.at.generation > 1:
        raise incomplete(view, "its folder was made again or resynced, and its earlier files are gone")
    if table.at is not None and (table.at.identity != view.identity or table.at.generation > 1):
        why = f"{table.target} also has versions of an earlier table folder, whose files are gone"
        raise incomplete(view, why, "Run `lakemirror history drop DB TABLE`, then build it.")
    if table.at is not None and table.at.number > view.position:
        raise view.error or LakemirrorError("concurrent-commit", f"{table.target} is being written")


def _build(
    storage: Storage, view: View, table: HistoryTable, files: HistoryFiles, settings: Settings, scratch: Path
) -> _Build:
    """The build of a table. Versions with a sequence have one more, of what late changes need."""
    late = next((each for each in view.history if each.options.mode == LATE), None)
    rules, beside = rules_of(settings), None
    if late is not None and table.options.mode == SCD2:
        beside = _Build(storage, view, late, files, rules, scratch, settings.memory)
    return _Build(storage, view, table, files, rules, scratch, settings.memory, beside)


@dataclass(frozen=True)
class _Build:
    """The build of one history table. `late`: of what late changes of its versions need, which is not published."""

    storage: Storage
    view: View
    table: HistoryTable
    files: HistoryFiles
    rules: TableRules
    scratch: Path
    memory: int
    late: _Build | None = None

    def check_options(self) -> None:
        """LakemirrorError `history-incomplete` where a table of changes would have to say what is not known any more:
        whether rows without a marker were inserts. In versions both are upserts."""
        last, upserts = self._flags[0]
        if self.table.options.mode == CHANGES and upserts is None:
            why = f"options were changed so often that those of the files up to number {last} are not known any more"
            raise incomplete(self.view, why, "Take the mode `changes` out of `history`: versions can be built.")

    def run(self) -> None:
        with self.files.chosen(self.table.options) as parts:
            for files in parts(self._position, self.rules.limits):
                for _, alike in groupby(files, self._upserts):
                    self._apply(list(alike))
        if self.late is not None:
            self._check_rows()
        self._publish()

    @cached_property
    def _path(self) -> str:
        return str(self.scratch / self.table.target)

    @property
    def _position(self) -> int:
        """The last number that the table in the work folder has."""
        log = read_table_log(self._path)
        return log.position.number if log is not None and log.position is not None else 0

    @cached_property
    def _mirrored(self) -> Snapshot:
        assert self.view.table is not None
        snapshot = read_snapshot(self.files.mirrored, self.view.table.version)
        assert snapshot is not None
        return snapshot

    @cached_property
    def _current(self) -> tuple[Column, ...]:
        """The columns of the mirrored table."""
        columns = from_delta(self._mirrored.metadata.value["schemaString"])
        return tuple(column for column in columns if column.name not in ADDED_COLUMNS)

    @cached_property
    def _flags(self) -> list[tuple[int, bool | None]]:
        """Up to which file a row without a marker was an upsert, or an insert."""
        return upserts_recorded(self._mirrored.metadata.configuration, self.view.position)

    def _upserts(self, file: ChangeFile) -> bool:
        return bool(next(upserts for last, upserts in self._flags if file.number <= last))

    def _apply(self, files: Sequence[ChangeFile], versions: RowWork | None = None) -> None:
        """Applies these files to the table in the work folder, by as many commits as they need. `versions`: as of
        `completing`."""
        tried: frozenset[TryAs] = frozenset()
        engine: Engine = local_engine(self.memory, None)
        rules = replace(self.rules, preference=Preference(LOCAL))
        while files:
            begun = time.monotonic()
            log = read_table_log(self._path)
            table = replace(self.table, table=log, log=None, is_of_earlier=False)
            snapshot = read_snapshot(self._path) if log is not None else None
            base = Base(self._path, str(self.scratch), snapshot, history=table, follows=self._current)
            tries = tried, self._remembered(snapshot)
            metadata = replace(self.view.files.metadata, upsert_by_default=self._upserts(files[0]))
            view = replace(self.view, files=replace(self.view.files, metadata=metadata))
            try:
                planned = plan_history(view_of(view, table), files, base, rules, self.storage.uri, tries)
                if versions is not None:
                    planned = completing(planned, versions)
                if self.late is not None:
                    self.late._apply_before(planned)
                written = run(planned, lambda _: engine)
            except Bad as bad:
                if bad.rejected.try_as is None or bad.rejected.try_as in tried:
                    raise bad.rejected.error() from bad
                tried |= {bad.rejected.try_as}
                continue
            done = commit(planned, written, begun=begun, durability=_IN_PROCESS)
            files = files[len(done.batch.files) :]

    def _apply_before(self, planned: ApplyPlan) -> None:
        """Remembers the changes of a batch of versions, unless an attempt before has done it."""
        known = self._position
        files = [item.file for item in planned.batch.files if item.file.number > known]
        self._apply(files, planned.row_work if planned.batch.partial else None)

    def _remembered(self, versions: Snapshot | None) -> Remembered | None:
        """All changes so far, for late ones."""
        snapshot = read_snapshot(self.late._path) if self.late is not None and versions is not None else None
        if self.late is None or versions is None or snapshot is None:
            return None
        metadata = self.view.files.metadata
        target = target_of(self._path, versions.metadata.value, metadata.key_columns)
        sequence = spelled(metadata.options.sequence, from_delta(versions.metadata.value["schemaString"]))
        return remembered(self.late._path, snapshot, target, sequence, self._position)

    def _check_rows(self) -> None:
        """LakemirrorError `history-incomplete` where current rows would not be the open versions."""
        assert self.view.table is not None
        versions = Base(self._path, str(self.scratch), read_snapshot(self._path))
        rows = Base(
            self.files.mirrored, self.storage.uri(), read_snapshot(self.files.mirrored, self.view.table.version)
        )
        if not are_of_the_rows(versions, rows, self.view.files.metadata.key_columns):
            raise incomplete(
                self.view,
                "its rows are not the newest by the sequence: it was declared later than the first files, or a late "
                "change came from before a delete that was forgotten",
                "Pause the table, run `lakemirror history drop` and `lakemirror resync`, and resume it: both tables "
                "then begin at number 1.",
            )

    def _publish(self) -> None:
        """Makes the history table what the table in the work folder is, in one commit."""
        path, before = self.storage.uri(self.table.target), None
        if self.table.table is not None:
            before = read_snapshot(path, self.table.table.version, self.table.log)
        built, log = read_snapshot(self._path), read_table_log(self._path)
        assert built is not None and log is not None and log.manifest is not None
        metadata = self._metadata(Base(path, self.storage.uri(), before, history=self.table), built)
        if before is None:
            make_table_folder(Base(path, self.storage.uri(), None))
        keys = self.view.files.metadata.key_columns
        source = target_of(self._path, built.metadata.value, keys)
        target = replace(target_of(path, metadata, keys), version=before.version + 1 if before else 0)
        now = int(time.time() * 1000)
        rows: list[Action] = [
            {"remove": removed(add, now, data_change=True)} for add in (before.files.values() if before else ())
        ]
        try:
            for adds in _apart(built.files.values(), source):
                rows += [{"add": add} for add in write_rows(_batches(adds, source), target)]
        except BaseException:
            delta.remove_written(place(path), before, rows)
            raise
        at = Position(self.view.identity, 1, self.view.position)
        info = commit_info(
            before, "WRITE", {"mode": "Overwrite"}, metrics={}, user_metadata=self._manifest(log.manifest).to_json()
        )  # fmt: skip
        actions = [{"commitInfo": info}, *state_actions(before, metadata), *transactions(at, ()), *rows]
        delta.commit(path, before, actions, durability=self.rules.durability)

    def _metadata(self, base: Base, built: Snapshot) -> dict[str, object]:
        """The metadata of the history table after the commit. What made its versions before does not count."""
        columns = from_delta(built.metadata.value["schemaString"])
        if base.snapshot is not None:
            value = base.snapshot.metadata.value
            kinds = {column.name: column.type for column in columns}
            for own in from_delta(value["schemaString"]):
                if own.name not in kinds:
                    why = f"{self.table.target} has the column {own.name!r}, which no change file gives values"
                    raise incomplete(self.view, why, f"Drop the column of {self.table.target}, or leave it as it is.")
                kind = kinds.get(own.name, own.type)
                if kind != own.type and not widens(own.type, kind) and not _are_of_one_sequence(own.type, kind):
                    message = f"{self.table.target}: column {own.name!r} is {own.type}, and would become {kind}"
                    raise TableError("type-changed", message, table=self.table.target, column=own.name, hint=AWAY)
            kept = {name: each for name, each in value["configuration"].items() if name not in _OF_BEFORE}
            metadata = Metadata({**value, "configuration": kept})
            base = replace(base, snapshot=replace(base.snapshot, metadata=metadata))
        batch = Batch((), columns, append_only=True)
        after = history_metadata(view_of(self.view, self.table), base, batch, self.rules)
        made = {name: each for name, each in after["configuration"].items() if name != EARLIER_PROPERTY}
        if self.table.options.mode == CHANGES:
            made |= upserts_as_earlier(self._flags, self.view.files.metadata.upsert_by_default)
        return {**after, "configuration": made}

    def _manifest(self, built: Manifest) -> Manifest:
        """What the commit records: the last file as the mirrored table's own commit describes it."""
        last = self.view.manifest or built
        return replace(
            built, first=1, last=self.view.position, built=True, file=last.file, size=last.size,
            modified=last.modified, tag=last.tag, token=last.token, committed=last.committed, history=self.table.label,
        )  # fmt: skip


def _are_of_one_sequence(one: str, other: str) -> bool:
    """True for the types of bounds by the same columns: their own types are compared as those of the columns are."""
    if not one.startswith("{") or not other.startswith("{"):
        return False
    fields = [json.loads(each).get("fields", ()) for each in (one, other)]
    return [each["name"] for each in fields[0]] == [each["name"] for each in fields[1]] != []


def _apart(adds: Iterable[Action], source: Target) -> Iterator[list[Action]]:
    """Data files of closed versions, and those of open ones: they stay in files of their own."""
    found: dict[bool, list[Action]] = {False: [], True: []}
    for add in adds:
        found[may_have_open(add, source)].append(add)
    return (each for each in found.values() if each)


def _batches(adds: Sequence[Action], source: Target) -> Iterator[pa.RecordBatch]:
    for add in adds:
        for rows in live_rows(add, source):
            yield from rows.to_batches()
