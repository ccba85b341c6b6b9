"""One table: the loop that applies each change exactly once.

    view     = observe(folder)        the only look: files after the position, snapshot's version, identity; frozen
    plan     = plan(view)             what one commit will do, from footers and the snapshot of that version
    rows     = run(plan)              files written by an engine, nothing committed
    done     = commit(plan, rows)     version N + 1 with rows and position at once, if it is still free
    archive(view)                     applied files are set aside; may fail or repeat without harm

The position is in the commit, so a file is applied exactly once: before the commit nothing has happened, after it
everything. A commit of anybody else takes version N + 1 (`Conflict`), and the table is observed again. A file that
cannot be applied (`Bad`) ends the batch before it, or is tried another way (`Rejected.try_as`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

from lakemirror import failpoints
from lakemirror.delta.commit import make_durable
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.schema import Column, from_delta
from lakemirror.engines.engine import Engine, Preference
from lakemirror.engines.kernels.compact import compact
from lakemirror.engines.row_work import Action, RewriteWork, Target
from lakemirror.errors import Bad, LakemirrorError, Rejected, TryAs
from lakemirror.failures import coded
from lakemirror.landing_zone import archive as files_aside
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.identity import marker_of
from lakemirror.landing_zone.staging import Staging
from lakemirror.landing_zone.table_options import NO_OPTIONS
from lakemirror.landing_zone.zone import MARKER, TableName
from lakemirror.maintenance import compaction
from lakemirror.maintenance.leftovers import is_first_look, remove_leftovers
from lakemirror.mirror.apply import Applied, commit, run
from lakemirror.mirror.history import soft_deletes
from lakemirror.mirror.history.history_tables import HistoryTable
from lakemirror.mirror.observe import TableObserver, View
from lakemirror.mirror.planner import ApplyPlan, Base, plan
from lakemirror.mirror.position import Position
from lakemirror.mirror.schema_evolution import zone_reader
from lakemirror.mirror.standstill import check_none_came_back
from lakemirror.mirror.table_log import LogCache, applied_after, metadata_at
from lakemirror.mirror.table_rules import rules_of
from lakemirror.settings.settings import Settings
from lakemirror.storage import Entry, Storage
from lakemirror.storage.durable import POWER

log = logging.getLogger("lakemirror")

_MUCH_WORK = 32 << 20  # bytes of change files: before so much work, the log is listed for other commits


@dataclass(frozen=True)
class Conflict:
    """Another commit came first, or a file changed: nothing was committed, and the table is observed again."""

    error: LakemirrorError


@dataclass(frozen=True)
class Begun:
    """History tables have begun, or deletes are soft now, at the same position: the table is observed again."""


Done = Applied | Rejected | Conflict | Begun
"""What a step did. Rejected: the next file cannot be applied; nothing was committed."""


class Replicator:
    """Brings one table folder's changes into its Delta table."""

    def __init__(self, storage: Storage, name: TableName, settings: Settings) -> None:
        self.name = name
        self.target = name.target(settings.default_schema)
        self._path = storage.uri(self.target)
        self._storage = storage
        self._settings = settings
        self._rules = rules_of(settings)
        self._staging = Staging(storage, settings.memory)
        self._merged_at: int | None = None
        self._has_looked = False  # for what attempts of killed processes left
        self._synced: Position | None = None  # of the last apply that this process made durable
        self._log = LogCache(self._path, storage.capabilities.looks_last)
        self._observer = TableObserver(storage, name, settings, self._log)
        self.observe = self._observer.observe

    def step(
        self, view: View, engine: Callable[[str], Engine], preference: Preference | None = None
    ) -> tuple[View, Done]:
        """One commit of the first files of a view that has work, and the view of what is left.

        `engine` gives the engine of a name. `preference`: for an engine, now; None: as the settings say. After Applied,
        the applied files are set aside. After Rejected, the view has no work, and its `error` says why.
        LakemirrorError: an error of the whole attempt, or of the table.
        """
        staged: Sequence[ChangeFile] = ()
        if preference is not None:
            self._rules = replace(self._rules, preference=preference)
        try:
            self._check_newest(view)
            base = self._base(view)
            if view.files.metadata.options is not NO_OPTIONS and soft_deletes.are_to_begin(view, base):
                soft_deletes.begin(view, base, self._history_base, engine, self._rules)
                self._log.forget()
                return view, Begun()
            if view.history or view.is_recreated:
                from lakemirror.mirror.history.begin import prepare  # few tables have a history

                if prepare(view, base, self._history_base, self._rules, self._storage, self.target):
                    return view, Begun()
            files = self._until_cut(view) if len(view.pending.files) > 1 else view.pending.files
            if view.files.metadata.file_format != "Parquet":
                view, files = self._staged(view, base, files)
                staged = files
            view, done = self._one_commit(view, base, files, engine)
            if not isinstance(done, Applied):
                self._observer.forget()
                return view, done
            self._synced = done.position
            if self._merged_at is None:
                self._merged_at = max(0, done.version - 1)
            view = self._after(view, done)
            self.archive(view)
            return view, done
        except LakemirrorError as error:
            self._observer.forget()
            if error.code != "concurrent-commit":
                raise
            return view, Conflict(error)
        except BaseException:
            self._observer.forget()
            raise
        finally:
            if staged:
                self._staging.clear(staged)

    def _one_commit(
        self, view: View, base: Base, files: Sequence[ChangeFile], engine: Callable[[str], Engine]
    ) -> tuple[View, Applied | Rejected]:
        """Plans, runs and commits, until something is applied or the first file is rejected."""
        tried: frozenset[TryAs] = frozenset()
        while files:
            try:
                if view.history:
                    from lakemirror.mirror.history.target_plans import plan_targets

                    bases = base, self._history_base
                    planned = plan_targets(view, files, bases, self._rules, self._storage.uri, tried)
                else:
                    planned = plan(view, files, base, self._rules, self._storage.uri, tried)
                return view, self._carry_out(planned, engine)
            except Bad as bad:
                rejected = bad.rejected
            if rejected.try_as is not None and rejected.try_as not in tried:
                tried |= {rejected.try_as}
            else:
                view = self._until(view, rejected)
                files = files[: len(view.pending.files)]
        assert view.pending.rejected is not None
        return view, view.pending.rejected

    def _carry_out(self, planned: ApplyPlan, engine: Callable[[str], Engine]) -> Applied:
        begun = time.monotonic()
        log.debug("%s: %s: %s", self.name, planned.choice.engine, planned.choice.reason)
        written = run(planned, engine, trust_footers=self._rules.trust_footers)
        return commit(
            planned, written, begun=begun, durability=self._rules.durability,
            check=lambda: self._check_unchanged(planned),
            oldest_kept=partial(_oldest_kept, self._storage, self._settings, self.name),
        )  # fmt: skip

    def _check_newest(self, view: View) -> None:
        """`concurrent-commit` if the table has got another version since the view: then the work would be for nothing.

        Before much work the log is listed, not taken from memory.
        """
        if sum(file.entry.size for file in view.pending.files) > _MUCH_WORK:
            self._log.forget()
        if not self._log.ends_as(view.log, view.table.version if view.table else -1):
            raise LakemirrorError("concurrent-commit", f"{self.target} has another version than it was seen at")

    def _check_unchanged(self, planned: ApplyPlan) -> None:
        """What is checked again before a commit: each change file, of which some rows were read, is the listed one.

        Nothing is to be done where a file is read as it was listed or not at all. That nobody else has committed since
        the view is what the commit itself finds: version N + 1 is then taken. Where a table begins, a replay could not
        take that version (`standstill.py`).
        """
        files, folder = [item.file for item in planned.batch.files], planned.view.files.folder
        if folder.quarantined:
            new = [each.base.history for each in (planned, *planned.also) if each.base.snapshot is None]
            targets = [self.target if table is None else table.target for table in new]
            if targets:
                check_none_came_back(self._storage, folder, targets)
        if not self._storage.capabilities.reads_listed:
            with self._storage.holding_folders() if len(files) > 1 else nullcontext():
                self._check_still_there(files)

    def _check_still_there(self, files: Sequence[ChangeFile]) -> None:
        """`concurrent-commit` if a file is missing or another one: a publisher may delete it at any time."""
        for file in files:
            entry = self._storage.stat(file.entry.path)
            if entry is None or not entry.is_same(file.entry):
                raise LakemirrorError("concurrent-commit", f"{file.entry.path} changed while it was read")

    def _until(self, view: View, rejected: Rejected) -> View:
        """The view without files from the rejected one on. `concurrent-commit` if that has changed since."""
        self._check_still_there([file for file in view.pending.files if file.entry.path == rejected.file])
        return replace(view, pending=view.pending.until(rejected))

    def _base(self, view: View) -> Base:
        """The table at the version of the view."""
        database = self._storage.uri()
        if view.table is None:
            return Base(self._path, database)
        snapshot = read_snapshot(self._path, view.table.version, view.log)
        reshaped_from = None
        if view.table.reshaped_after >= 0 and not view.is_recreated:
            reshaped_from = metadata_at(self._path, view.table.reshaped_after, view.log)
        return Base(self._path, database, snapshot, reshaped_from)

    def _history_base(self, table: HistoryTable) -> Base:
        """A history table at the version of the view."""
        path, snapshot, reshaped_from = self._storage.uri(table.target), None, None
        if table.table is not None:
            snapshot = read_snapshot(path, table.table.version, table.log)
            if table.table.reshaped_after >= 0:
                reshaped_from = metadata_at(path, table.table.reshaped_after, table.log)
        return Base(path, self._storage.uri(), snapshot, reshaped_from, history=table)

    def _until_cut(self, view: View) -> Sequence[ChangeFile]:
        """The pending files up to the first at which a cut ends: so the table gets a version that is the cut.

        The manifests are listed after the files. A single file needs none of this: a batch ends with it.
        """
        files = view.pending.files
        if not view.detection.is_plain:
            return files
        from lakemirror.landing_zone.cut_manifests import CutManifests, until_cut

        since = min(file.entry.modified for file in files)
        return until_cut(files, CutManifests.of(self._storage).last_files(str(self.name), since))

    def _staged(self, view: View, base: Base, files: Sequence[ChangeFile]) -> tuple[View, Sequence[ChangeFile]]:
        """The files of one batch as Parquet; the view ends before a file that cannot be converted."""
        chosen: list[ChangeFile] = []
        size = 0
        for file in files[: self._rules.limits.files]:
            size += file.entry.size
            if chosen and size > self._rules.limits.bytes:
                break
            chosen.append(file)
        columns: Sequence[Column] = ()
        if base.snapshot is not None and not view.is_recreated:
            columns = from_delta(base.snapshot.metadata.value["schemaString"])
        staged, rejected = self._staging.stage_all(
            chosen, view.files.metadata, undeclared=self._settings.undeclared_columns,
            zone=zone_reader(columns, self._rules.columns.zoneless),
        )  # fmt: skip
        return view if rejected is None else self._until(view, rejected), staged

    def _after(self, view: View, done: Applied) -> View:
        """What is left of a view after an apply."""
        table = done.logged
        if done.batch.rejected is not None:
            view = replace(view, pending=view.pending.until(done.batch.rejected))
        files = tuple(item.file for item in done.batch.files)
        log = None
        if len(files) < len(view.pending.files):  # else there is no next step
            with suppress(OSError, LakemirrorError):  # without a log, the next step is a conflict
                log = self._log.read()
        detection, applied = applied_after(table, view.applied, files, self._path)
        pending = view.pending.after(len(files))
        view = replace(view, table=table, log=log, detection=detection, applied=applied, pending=pending)
        if not view.history:
            return view
        from lakemirror.mirror.history.target_plans import history_after

        log_of = self._observer.history.log_of
        return replace(view, history=history_after(view.history, done, self._storage.uri, log_of))

    def archive(self, view: View) -> int:
        """Moves applied files aside and returns their number. Never raises: a file that cannot be moved now is moved in
        a later pass.

        Before, it syncs the commits that applied them (contract section 9), also those of another process.
        """
        try:
            marker = self._marker(view)
            if marker is None:
                return 0  # a resync has just brought them back, or the folder was recreated
            is_durable = self._rules.durability == POWER
            if is_durable and view.at != self._synced:
                for table in view.history:
                    make_durable(self._storage.uri(table.target))
                make_durable(self._path)
                self._synced = view.at
            failpoints.reach("archive.before-move")
            moved = files_aside.archive(self._storage, view.files, view.applied, partial(self._is_there, marker))
            if is_durable:
                files_aside.sync_moves(self._storage, view.files.folder, moved)
            return len(moved)
        except (OSError, LakemirrorError) as error:
            log.warning("%s: applied files could not be moved yet: %s", self.name, error)
            return 0

    def tidy(self, view: View, now: float) -> None:
        """Work without a commit: repeats failed moves and removes expired files. Never raises."""
        try:
            if view.has_files_to_archive:
                self.archive(view)
            if view.files.folder.processed:
                files_aside.purge(self._storage, view.files.folder, self._settings.processed_retention, now)
        except Exception as failure:
            log.debug("%s: tidied in a later pass: %s", self.name, coded(failure))

    def _marker(self, view: View) -> Entry | None:
        """The folder's marker if it is now that of the table."""
        name = view.files.folder.name
        entry = self._storage.stat(f"{name.folder}/{MARKER}")
        if entry is None or entry == view.files.folder.marker:
            return entry
        marker = marker_of(self._storage, name, entry)
        return entry if marker is not None and marker.id == view.identity else None

    def _is_there(self, marker: Entry) -> bool:
        """False once a resync has marked the folder again: its files are not applied any more. Where it takes a request
        to find out, it is not asked for each file."""
        return self._storage.capabilities.waits or self._storage.stat(marker.path) == marker

    def quarantine(self, view: View, error: LakemirrorError) -> bool:
        """Sets a bad file aside if `on_bad_file` says so; True if the table can go on."""
        if self._settings.on_bad_file != "quarantine" or error.code not in files_aside.QUARANTINABLE:
            return False
        entry = next((entry for entry in view.files.folder.files if entry.path == error.file), None)
        if entry is None:
            return False
        aside = files_aside.quarantine(self._storage, view.files.folder, entry, error)
        if aside is not None:
            log.warning("%s: %s was quarantined: %s", self.name, entry.path, error)
        return aside is not None

    def merge_small(self, version: int, on_written: Callable[[Target, Sequence[Action]], None]) -> int:
        """Merges the table's small files if that is due after these commits; `version` is that of the last commit.
        Returns their number.

        `on_written` gets the written files.
        """
        before, self._merged_at = self._merged_at or 0, version
        # What attempts left that were not committed (section 9): after the first apply of this process, and later as
        # often as small files are looked at. In a store only then: it takes a listing of the table.
        is_due = compaction.is_due(before, version)
        is_first = not self._has_looked and not self._storage.capabilities.waits and is_first_look(self._path)
        self._has_looked = True
        if is_due or is_first:
            remove_leftovers(self._path, self._log.read())
        if not self._settings.maintenance:
            return 0

        def rewrite(work: RewriteWork) -> list[Action]:
            adds = compact(work, may_copy=True)
            on_written(work.target, adds)
            return adds

        merged, durability = 0, self._rules.durability
        if is_due:
            merged = compaction.merge_small_files(
                self._path, durability=durability, rewrite=rewrite, known=self._log.read
            )
        if not merged and compaction.is_due_sooner(self._path, before, version):
            merged = compaction.merge_few(self._path, durability=durability, rewrite=rewrite, known=self._log.read)
        log.debug("%s: %d small files became one", self.name, merged)
        for target in self._observer.history_targets:
            self._merge_history(target, before, version)
        return merged

    def _merge_history(self, target: str, before: int, version: int) -> None:
        """The same for a history table, which has about as many commits as the mirrored table."""
        from lakemirror.maintenance.late_days import forget_old

        path, log = self._storage.uri(target), self._observer.history.log_of(target)
        is_due, durability = compaction.is_due(before, version), self._rules.durability
        if is_due or (not self._storage.capabilities.waits and is_first_look(path)):
            remove_leftovers(path, log.read())
        if is_due:
            forget_old(path, durability=durability)
        compaction.merge_history(path, before, version, durability=durability, known=log.read)


def _oldest_kept(storage: Storage, settings: Settings, table: TableName) -> int | None:
    """The version of a table that the last complete cut needs."""
    from lakemirror.mirror.cut_versions import oldest_needed

    return oldest_needed(storage, settings, str(table))
