"""One table: the loop that applies each change exactly once.

    position = the table's own `txn` action            the only record of what is applied
    files    = complete, contiguous files after it     landing zone, in order
    plan     = what one commit will do                 pure; made once
    result   = engine.run(plan)                        files written, nothing committed
    commit   = version N+1, if it is still free        taken: the table is planned again
    archive  (applied files)                           may fail or repeat without harm

`inspector.py` makes the plan's first half: what a look at the folder and the table finds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakemirror import failpoints
from lakemirror.delta.commit import make_durable
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.schema import from_delta
from lakemirror.engines.engine import Engine, Preference
from lakemirror.engines.kernels.compact import compact
from lakemirror.engines.row_work import Action, RewriteWork, Target
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.identity import parse_marker, read_marker
from lakemirror.landing_zone.staging import Staging, needs_staging
from lakemirror.landing_zone.zone import MARKER, TableFolder, TableName
from lakemirror.maintenance import compaction as small_files
from lakemirror.maintenance.leftovers import is_first_look, remove_leftovers
from lakemirror.mirror import table_commit
from lakemirror.mirror.apply import apply
from lakemirror.mirror.apply_plan import Applied, ApplyPlan, ApplyStart, Limits
from lakemirror.mirror.inspector import Inspector
from lakemirror.mirror.log_cache import KnownLog
from lakemirror.mirror.planner import plan
from lakemirror.mirror.position import Position
from lakemirror.mirror.schema_evolution import zone_reader
from lakemirror.mirror.stored_columns import replaced_columns
from lakemirror.mirror.table_log import read_table_log
from lakemirror.mirror.table_plan import TablePlan
from lakemirror.settings import Settings
from lakemirror.storage import Storage, place
from lakemirror.storage.durable import POWER, sync_each

log = logging.getLogger("lakemirror")

_WORTH_A_LOOK = 32 << 20  # bytes of change files: before so much work, the log is read for other commits


@dataclass(frozen=True)
class Attempt:
    """What an apply assumes about its files: that footers are right about row markers, and that files can become data
    files as they are."""

    trust_statistics: bool = True
    as_they_are: bool = True


class Replicator:
    """Brings one table folder's changes into its Delta table."""

    def __init__(self, storage: Storage, name: TableName, settings: Settings, *, spark_given: bool = False) -> None:
        """`spark_given`: a Spark session runs already."""
        self.name = name
        given = spark_given or bool(settings.master or settings.connect_address)
        self._preference = Preference(settings.engine, given, settings.spark_from_bytes)
        self.target = name.target(settings.default_schema)
        self._storage = storage
        self._settings = settings
        self._staging = Staging(storage, settings.memory)
        self._merged_at: int | None = None
        self._synced: Position | None = None  # of the last apply that this process made durable
        self._log = KnownLog(self._table, storage.capabilities.looks_last)
        self._inspector = Inspector(storage, name, settings, self._log)

    @property
    def _table(self) -> str:
        return self._storage.uri(self.target)

    def inspect(self, folder: TableFolder, *, now: float | None = None, mark: bool = True) -> TablePlan:
        """What there is to do. With `mark`, a folder without an identity marker gets one.

        Errors of this table alone are in the result, not raised.
        """
        return self._inspector.inspect(folder, now=now, mark=mark)

    def apply(self, engine: Callable[[str], Engine], found: TablePlan) -> tuple[Applied | None, LakemirrorError | None]:
        """One commit from what a look found: what was applied, and the error of the next file, if any.

        `engine` gives the engine of a name. A batch ends before a file that cannot be applied. LakemirrorError is
        raised for errors of the whole attempt; `concurrent-commit` means that another look is needed.
        """
        assert found.start is not None
        files, error = self._staged(found)
        staged = list(files)
        attempt = Attempt()
        try:
            while files:
                planned = self._plan(found, found.start, files, attempt)
                if isinstance(planned, TableError):
                    self._log.forget()
                    self._check_still_there(files[:1])
                    return None, planned
                log.debug("%s: %s: %s", self.name, planned.choice.engine, planned.choice.reason)
                trust = self._settings.trust_footers
                done = apply(
                    planned,
                    self._table,
                    engine,
                    path_of=self._storage.uri,
                    trust_footers=trust,
                    durability=self._settings.durability,
                    check_unchanged=self._check_unchanged,
                )
                if isinstance(done, Applied):
                    self._synced = done.position
                    if self._merged_at is None:
                        self._merged_at = max(0, done.version - 1)
                    return done, planned.error or error or found.pending.error
                if done.try_as == "rows":
                    attempt = replace(attempt, as_they_are=False)
                elif done.try_as == "mixed":
                    attempt = replace(attempt, trust_statistics=False)
                else:
                    place = _index(files, done.file)
                    self._check_still_there(files[place : place + 1])
                    error = done.error()
                    files = files[:place]
            return None, error or found.pending.error
        except BaseException:
            self._log.forget()
            raise
        finally:
            self._staging.clear(staged)

    def _plan(
        self, found: TablePlan, start: ApplyStart, files: list[ChangeFile], attempt: Attempt
    ) -> ApplyPlan | TableError:
        """The plan of the next commit. `concurrent-commit` where others changed data since the look: that must be
        reported, and our commit would hide theirs from the next look."""
        if sum(file.entry.size for file in files) > _WORTH_A_LOOK:
            self._log.forget()
        snapshot, table_log = read_snapshot(self._table, known=self._log.read()), None
        if snapshot is not None:
            table_log = read_table_log(self._table, snapshot.version, known=snapshot.log)
        if snapshot is not None and table_log is not None:
            snapshot = table_commit.with_position(snapshot, table_log.position)
            if not start.replaces:
                table_commit.check_not_restored(table_log, self.target)
                seen = found.table_log.foreign.changes if found.table_log is not None else ()
                if not set(seen).issuperset(table_log.foreign.changes):
                    newest = table_log.foreign.changes[-1]
                    raise LakemirrorError("concurrent-commit", f"{self.target}: another writer made {newest}")
        planned = plan(
            start,
            files,
            snapshot,
            self._table,
            path_of=self._storage.uri,
            limits=Limits(self._settings.batch_files, self._settings.batch_bytes),
            preference=self._preference,
            trust_statistics=attempt.trust_statistics,
            trust_footers=self._settings.trust_footers,
            as_they_are=attempt.as_they_are,
        )
        if isinstance(planned, ApplyPlan) and table_log is not None and not start.replaces:
            planned = self._with_replaced_columns(planned, table_log.reshaped_after)
        return planned

    def _with_replaced_columns(self, planned: ApplyPlan, version: int) -> ApplyPlan:
        """The plan with a warning for each column that it adds again. `version`: of the table before others changed its
        columns; -1 where nobody did."""
        before = None
        with suppress(LakemirrorError):  # the log may not reach back so far
            before = read_snapshot(self._table, version) if version >= 0 else None
        if before is None or planned.snapshot is None:
            return planned
        batch, file = planned.batch, planned.batch.files[0].file.entry.path
        found = replaced_columns(before.metadata.value, planned.snapshot.metadata.value, batch.columns, file)
        return replace(planned, batch=batch._replace(warnings=(*batch.warnings, *found)))

    def tidy_up(self, version: int, on_written: Callable[[Target, Sequence[Action]], None]) -> None:
        """Merges the table's small files if that is due after these commits; `version` is that of the last commit.

        `on_written` gets the written files.
        """
        before, self._merged_at = self._merged_at or 0, version
        self._remove_leftovers(before, version)
        if not self._settings.maintenance:
            return

        def rewrite(work: RewriteWork) -> list[Action]:
            adds = compact(work)
            on_written(work.target, adds)
            return adds

        merged = 0
        if small_files.is_due(before, version):
            merged = small_files.merge_small_files(
                self._table, durability=self._settings.durability, rewrite=rewrite, known=self._log.read
            )
        if not merged and small_files.is_due_sooner(self._table, before, version):
            merged = small_files.merge_few(
                self._table, durability=self._settings.durability, rewrite=rewrite, known=self._log.read
            )
        log.debug("%s: %d small files became one", self.name, merged)

    def _remove_leftovers(self, before: int, version: int) -> None:
        """Removes what attempts left that were not committed (section 9): after the first apply of this process, and
        later as often as small files are looked at. In a store only then: it takes a listing of the table."""
        if small_files.is_due(before, version) or (not self._storage.capabilities.waits and is_first_look(self._table)):
            remove_leftovers(self._table, before - small_files.EVERY, self._log.read())

    def _staged(self, found: TablePlan) -> tuple[list[ChangeFile], TableError | None]:
        """The files of one batch as Parquet, and the error of the next one."""
        if not needs_staging(found.metadata):
            return list(found.pending.files), None
        chosen: list[ChangeFile] = []
        size = 0
        for file in found.pending.files[: self._settings.batch_files]:
            size += file.entry.size
            if chosen and size > self._settings.batch_bytes:
                break
            chosen.append(file)
        assert found.start is not None
        before = None if found.start.replaces else read_snapshot(self._table, known=self._log.read())
        columns = from_delta(before.metadata.value["schemaString"]) if before is not None else ()
        staged, error = self._staging.stage_all(
            chosen, found.metadata, undeclared=self._settings.undeclared_columns,
            zone=zone_reader(columns, found.start.rules.zoneless),
        )  # fmt: skip
        if error is not None:
            self._check_still_there([chosen[len(staged)]])
        return staged, error

    def quarantine(self, found: TablePlan, error: LakemirrorError | None) -> bool:
        """Sets a bad file aside if `on_bad_file` says so; True if the table can go on."""
        if error is None or self._settings.on_bad_file != "quarantine" or error.code not in cleanup.QUARANTINABLE:
            return False
        entry = next((each for each in found.folder.files if each.path == error.file), None)
        if entry is None:
            return False
        place = cleanup.quarantine(self._storage, found.folder, entry, error)
        if place is not None:
            log.warning("%s: %s was quarantined: %s", self.name, entry.path, error)
        return place is not None

    def archive(self, found: TablePlan) -> int:
        """Moves applied files aside and returns their number. Never raises: a file that cannot be moved now is moved in
        a later pass.

        Before, it syncs the commits that applied them (contract section 9), also those of another process.
        """
        try:
            if not self._is_marked(found):
                return 0  # a resync has just brought them back, or the folder was recreated
            position = found.table_log.position if found.table_log else None
            if self._settings.durability == POWER and position != self._synced:
                make_durable(self._storage.uri(self.target))
                self._synced = position
            failpoints.reach("retire.before-move")
            moved = cleanup.retire(self._storage, found.folder, found.metadata, found.applied)
            if self._settings.durability == POWER:
                self._sync_moves(found.folder, moved)
            return len(moved)
        except (OSError, LakemirrorError) as error:
            log.warning("%s: applied files could not be moved yet: %s", self.name, error)
            return 0

    def _sync_moves(self, folder: TableFolder, moved: Sequence[tuple[str, str]]) -> None:
        """Syncs the folders that received files, then those that lost them: after a power cut each file is in at least
        one.
        """
        home = folder.name.folder
        into = {target.rpartition("/")[0] for _, target in moved}
        for inner in sorted(into):
            while (inner := inner.rpartition("/")[0]) != home:
                into.add(inner)
        left = {source.rpartition("/")[0] for source, _ in moved} | ({home} if moved else set())
        for places in (into, left):
            sync_each(place(self._storage.uri(each)) for each in sorted(places, reverse=True))

    def _is_marked(self, found: TablePlan) -> bool:
        """True if the folder's marker is now that of the table."""
        path = f"{found.folder.name.folder}/{MARKER}"
        now = self._storage.stat(path)
        content = read_marker(self._storage, path, now) if now is not None else None
        marker = parse_marker(content) if content is not None else None
        return marker is not None and marker.id == found.identity

    def _check_unchanged(self, files: Sequence[ChangeFile]) -> None:
        """`_check_still_there`, unless a listed file is read as it was listed or not at all."""
        if not self._storage.capabilities.reads_listed:
            with self._storage.holding_folders():
                self._check_still_there(files)

    def _check_still_there(self, files: Sequence[ChangeFile]) -> None:
        """LakemirrorError `concurrent-commit` if a file is missing: a publisher may delete it at any time."""
        for file in files:
            entry = self._storage.stat(file.entry.path)
            if entry is None or entry.etag != file.entry.etag:
                raise LakemirrorError("concurrent-commit", f"{file.entry.path} changed while it was read")


def _index(files: list[ChangeFile], path: str) -> int:
    return next((i for i, f in enumerate(files) if f.entry.path == path), 0)
