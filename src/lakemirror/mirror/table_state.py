"""A table's state, what each step makes of it, and how the status shows it; pure (contract sections 5 and 11).

    state = next_state(state, look, done) ─▶ table_status: a row of the status files and of `lakemirror status`

Initialized ─▶ Snapshotting ─▶ Replicating ◀─▶ Failed
  no file yet    first apply      ▲ │
                                  │ ▼
                               Reseeding   the folder was made again
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import Waiting
from lakemirror.landing_zone.findings import Warned, lasting
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.observe import View
from lakemirror.mirror.position import MISSING_ROWS, from_note
from lakemirror.status.status import TableStatus, TargetStatus

INITIALIZED = "Initialized"
SNAPSHOTTING = "Snapshotting"
REPLICATING = "Replicating"
RESEEDING = "Reseeding"
STOPPED = "Stopped"
FAILED = "Failed"

FIRST_PAUSES = (1.0, 2.0, 4.0)
"""Seconds until the next try after a transient failure; each further pause is twice as long."""

_LASTING = 5  # applies in a row after which a transient failure makes the table `Failed`


@dataclass(frozen=True)
class Failure:
    """What keeps a table from going on.

    `tries`: looks or applies in a row that failed. `next_try`: when the next one is due, in seconds since the epoch; 0
    for a permanent failure. `cause`: a text that must change before a permanent failure is tried again. `of_look`: a
    look has failed, not an apply.
    """

    error: LakemirrorError
    tries: int = 0
    next_try: float = 0.0
    cause: str = ""
    of_look: bool = False

    @property
    def is_lasting(self) -> bool:
        """True for a permanent failure, and for applies that have failed often."""
        return not self.error.retry or (self.tries >= _LASTING and not self.of_look)


@dataclass(frozen=True)
class LastApply:
    """What a table holds, and how its last apply went. Times in seconds since the epoch, 0 where there was none.

    `rows`, `bytes`: changes applied since the folder was made. `committed`: by the table itself; `synced`: by this
    process. `engine` did the row work, for `reason`. `ignored_deletes`, `late_changes`: as of `Manifest`.
    """

    rows: int = 0
    bytes: int = 0
    committed: float = 0.0
    synced: float = 0.0
    engine: str = ""
    reason: str = ""
    ignored_deletes: int = 0
    late_changes: int = 0


@dataclass(frozen=True)
class TableState:
    """What is known of one table.

    `position`: number of the last applied file. `pending`: change files not applied; `oldest`: when the oldest of them
    was written, in seconds since the epoch. `reseeding`: the folder was made again, and nothing of it is applied yet.
    `freshness`: seconds within which changes are to be applied; 0: no goal.
    """

    identity: str = ""
    position: int = 0
    pending: int = 0
    oldest: float | None = None
    reseeding: bool = False
    waiting: Waiting | None = None
    warnings: tuple[Warned, ...] = ()
    failure: Failure | None = None
    last: LastApply = field(default_factory=LastApply)
    freshness: float = 0.0
    history: tuple[TargetStatus, ...] = ()

    @property
    def error(self) -> LakemirrorError | None:
        """What keeps the table from going on."""
        return self.failure.error if self.failure else None

    @property
    def status(self) -> str:
        """The state that people see."""
        if self.failure is not None and self.failure.is_lasting:
            return FAILED
        if self.reseeding:
            return RESEEDING
        if self.position:
            return REPLICATING
        return SNAPSHOTTING if self.pending and self.waiting is None else INITIALIZED

    def is_due(self, look: View, now: float) -> bool:
        """True if what the look found is to be applied now: nothing failed before, the next try is due, or the cause of
        the failure has changed."""
        if not look.has_work or self.failure is None:
            return look.has_work
        if self.failure.error.retry:
            return now >= self.failure.next_try
        return _cause(look, self.failure.error) != self.failure.cause


def next_state(
    state: TableState, look: View, done: Applied | LakemirrorError | None, *, now: float, longest: float
) -> TableState:
    """The state after a step: a look (`done` None), an apply, or an apply that failed.

    `now`: in seconds since the epoch. `longest`: most seconds between two tries.
    """
    match done:
        case None:
            return _looked(state, look, now, longest)
        case Applied():
            return _applied(state, done, now)
        case LakemirrorError():
            return replace(state, failure=_failure(state, look, done, now, longest))


def _looked(state: TableState, look: View, now: float, longest: float) -> TableState:
    """After a look at folder and table. What a table waits for keeps the time when the wait began."""
    last, waiting = state.last, look.pending.waiting
    if look.manifest is not None:
        manifest = look.manifest
        last = replace(
            last, rows=manifest.rows, bytes=manifest.bytes, committed=manifest.committed,
            ignored_deletes=manifest.ignored_deletes, late_changes=manifest.late_changes,
        )  # fmt: skip
    if waiting is not None and state.waiting is not None and waiting.what == state.waiting.what:
        waiting = replace(waiting, since=min(waiting.since, state.waiting.since))
    return TableState(
        identity=look.identity,
        position=look.position,
        pending=look.pending.count,
        oldest=look.pending.oldest,
        reseeding=look.is_recreated,
        waiting=waiting,
        warnings=lasting(state.warnings, look.warnings, now),
        failure=_failure_after(state, look, now, longest),
        last=last,
        freshness=state.freshness if look.failure is not None else look.files.metadata.options.freshness,
        history=_history(state, look),
    )


def _history(state: TableState, look: View) -> tuple[TargetStatus, ...]:
    """The history tables as a look has found them; those of before where it could not look."""
    if not look.history:
        return state.history if look.failure is not None else ()
    return tuple(
        TargetStatus(
            each.target.rpartition("/")[2], each.options.mode, each.at.number if each.at is not None else 0,
            REPLICATING if each.at is not None else INITIALIZED,
            began=each.table.manifest.began if each.table is not None and each.table.manifest is not None else 0.0,
        )
        for each in look.history
    )  # fmt: skip


def _failure_after(state: TableState, look: View, now: float, longest: float) -> Failure | None:
    """The error of the look; else that of the last apply, until its cause changes or nothing is left to apply."""
    before = state.failure
    if look.error is not None:
        return _failure(state, look, look.error, now, longest, of_look=True)
    if before is None or before.of_look or not look.has_work:
        return None
    return before if before.error.retry or _cause(look, before.error) == before.cause else None


def _applied(state: TableState, done: Applied, now: float) -> TableState:
    """After an apply. Values that the table does not keep as they were are warnings, beside those of the last look."""
    files, manifest = len(done.batch.files), done.manifest
    notes = [from_note(note) for note in manifest.notes]
    before = [warned for warned in state.warnings if not warned.message.endswith(MISSING_ROWS)]  # counted in the note
    return replace(
        state,
        position=done.position.number,
        pending=max(0, state.pending - files),
        oldest=state.oldest if state.pending > files else None,
        reseeding=False,
        failure=None,
        warnings=lasting(state.warnings, (*before, *notes), now),
        last=LastApply(
            manifest.rows,
            manifest.bytes,
            manifest.committed,
            now,
            done.engine,
            done.engine_reason,
            manifest.ignored_deletes,
            manifest.late_changes,
        ),
        history=tuple(each._replace(position=done.position.number, status=REPLICATING) for each in state.history),
    )


def _failure(
    state: TableState, look: View, error: LakemirrorError, now: float, longest: float, *, of_look: bool = False
) -> Failure:
    """A failure, and when to try again: a transient one after 1, 2, 4 … `longest` seconds."""
    tries = 1 + (state.failure.tries if state.failure else 0)
    pause = FIRST_PAUSES[tries - 1] if tries <= len(FIRST_PAUSES) else 2.0 ** min(tries - 1, 30)
    next_try = now + min(longest, pause) if error.retry else 0.0
    return Failure(error, tries, next_try, _cause(look, error), of_look)


def _cause(look: View, error: LakemirrorError) -> str:
    """A text that changes when the cause of a failed apply may have changed: that file, the metadata, the folder, the
    table."""
    file = next((each.etag for each in look.files.folder.files if each.path == error.file), "")
    metadata = look.files.folder.metadata.etag if look.files.folder.metadata else ""
    version = look.table.version if look.table is not None else -1
    return f"{file}|{metadata}|{look.identity}|{version}"


def table_status(name: TableName, state: TableState) -> TableStatus:
    """The status of a table that a running engine knows."""
    error, last = state.failure.error if state.failure else None, state.last
    return TableStatus(
        id=state.identity,
        status=state.status,
        table=name.table,
        schema=name.schema,
        error_code=error.code if error else "",
        error_message=error.message if error else "",
        error_file=(error.file or "") if error else "",
        error_hint=error.hint if error else "",
        processed_rows=last.rows,
        processed_bytes=last.bytes,
        last_source_commit=last.committed or None,
        last_sync=last.synced or None,
        position=state.position,
        pending_files=state.pending,
        waiting_for=state.waiting,
        warnings=state.warnings,
        oldest_pending=state.oldest,
        engine=last.engine,
        engine_reason=last.reason,
        freshness=state.freshness,
        ignored_deletes=last.ignored_deletes,
        late_changes=last.late_changes,
        history=tuple(_target(each, state) for each in state.history),
    )


def _target(target: TargetStatus, state: TableState) -> TargetStatus:
    """A history table with the error that concerns it alone: that names its folder."""
    error = state.error
    if error is None or (error.table or "").rpartition("/")[2] != target.name:
        return target
    return target._replace(status=state.status, error_code=error.code)


def remembered(last: TableStatus | None) -> TableState:
    """What an earlier process wrote down and the table itself does not tell: its last apply, its wait, its events."""
    if last is None:
        return TableState()
    return TableState(
        waiting=last.waiting_for,
        warnings=last.warnings,
        last=LastApply(synced=last.last_sync or 0.0, engine=last.engine, reason=last.engine_reason),
        freshness=last.freshness,
        history=last.history,
    )


def status_now(name: TableName, look: View, last: TableStatus | None, now: float) -> TableStatus:
    """The status of a table from a look at it and from the record of the last pass.

    An error that only an apply can find is taken from the last pass, unless its file is gone.
    """
    if look.error is None and look.pending.rejected is not None:
        look = look.failed(look.pending.rejected.error())
    shown = table_status(name, next_state(remembered(last), look, None, now=now, longest=0.0))
    if shown.error_code or last is None or not last.error_code or last.id != shown.id:
        return shown
    folder = look.files.folder
    there = [file.path for file in (*folder.files, folder.metadata) if file is not None]
    is_gone = last.error_file.startswith(f"{folder.name.folder}/") and last.error_file not in there
    if is_gone or not (look.pending.count or look.to_begin) or last.position != look.position:
        return shown
    kind = CODES.get(last.error_code)  # another version of lakemirror may know other codes
    failed = last.status == FAILED or kind is None or not kind.retry
    return replace(
        shown,
        status=FAILED if failed else shown.status,
        error_code=last.error_code,
        error_message=last.error_message,
        error_file=last.error_file,
        error_hint=last.error_hint,
        history=last.history,
    )
