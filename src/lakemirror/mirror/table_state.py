"""A table's state, and what each event does to it; pure (contract sections 5 and 11).

Initialized ─▶ Snapshotting ─▶ Replicating ◀─▶ Failed
  no file yet    first apply      ▲ │
                                  │ ▼
                               Reseeding   the folder was made again
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import Waiting
from lakemirror.landing_zone.warned import Warned, lasting
from lakemirror.mirror.observe import View

INITIALIZED = "Initialized"
SNAPSHOTTING = "Snapshotting"
REPLICATING = "Replicating"
RESEEDING = "Reseeding"
STOPPED = "Stopped"
FAILED = "Failed"


@dataclass(frozen=True)
class TableState:
    """What is known of one table.

    `position`: number of the last applied file. `pending`: change files not applied. `rows` and `bytes` count changes
    applied since the folder was made. `failures` counts tries in a row that failed; `next_try` is when the next one
    is due (seconds since the epoch); `oldest`: when the oldest file that is not applied was written. `engine` made
    the last apply, for `engine_reason`. `failed_on`: what must change before a permanent failure is tried again.
    """

    identity: str = ""
    status: str = INITIALIZED
    position: int = 0
    pending: int = 0
    waiting: Waiting | None = None
    error: LakemirrorError | None = None
    warnings: tuple[Warned, ...] = ()
    oldest: float | None = None
    engine: str = ""
    engine_reason: str = ""
    rows: int = 0
    bytes: int = 0
    last_commit: float = 0.0
    last_sync: float = 0.0
    failures: int = 0
    next_try: float = 0.0
    failed_on: str = ""

    def due(self, fingerprint: str, now: float) -> bool:
        """True if an apply should be tried: nothing failed, the next try is due, or the failure's cause has changed."""
        if self.error is None:
            return True
        if self.error.retry:
            return now >= self.next_try
        return fingerprint != self.failed_on


def looked(state: TableState, look: View, fingerprint: str, now: float) -> TableState:
    """The state after a look at folder and table. `fingerprint`: changes when the cause of a failed apply may have.

    An error of an apply stays until its cause changes or is gone. What a table waits for keeps the time when the wait
    began, and so does a warning.
    """
    manifest = look.manifest
    if manifest is not None:
        state = replace(state, rows=manifest.rows, bytes=manifest.bytes, last_commit=manifest.committed)
    waiting, error = look.waiting, look.error
    if waiting is not None and state.waiting is not None and waiting.what == state.waiting.what:
        waiting = replace(waiting, since=min(waiting.since, state.waiting.since))
    unchanged = state.error is not None and (state.error.retry or fingerprint == state.failed_on)
    if error is None and look.has_work and unchanged:
        error = state.error
        failed_on = state.failed_on
    else:
        failed_on = fingerprint if error is not None else ""
    if error is not None and not error.retry:
        status = FAILED
    elif look.is_recreated:
        status = RESEEDING
    elif look.position:
        status = REPLICATING
    elif look.pending.count and waiting is None:
        status = SNAPSHOTTING
    else:
        status = INITIALIZED
    return replace(
        state, identity=look.identity, status=status, position=look.position, pending=look.pending.count,
        waiting=waiting, warnings=lasting(state.warnings, look.warnings, now), error=error, failed_on=failed_on,
        oldest=look.pending.oldest, failures=state.failures if error is not None else 0,
    )  # fmt: skip


def applied(
    state: TableState, *, position: int, files: int, rows: int, bytes: int, commit_time: float,
    now: float | None = None, engine: str = "", engine_reason: str = "", warnings: Sequence[Warned] = (),
) -> TableState:  # fmt: skip
    """The state after one apply. `rows` and `bytes`: all that were applied since the folder was made. `warnings`:
    values that the table does not keep as they were; they are added to those of the last look.
    """
    now = time.time() if now is None else now
    return replace(
        state, status=REPLICATING, position=position, pending=max(0, state.pending - files), rows=rows, bytes=bytes,
        last_commit=commit_time, last_sync=now, error=None, failures=0, failed_on="",
        next_try=0.0, engine=engine, engine_reason=engine_reason,
        warnings=lasting(state.warnings, (*state.warnings, *warnings), now),
        oldest=state.oldest if state.pending > files else None,
    )  # fmt: skip


def failed(state: TableState, error: LakemirrorError, fingerprint: str, *, now: float, longest: float) -> TableState:
    """The state after an apply that failed. A transient failure is tried again after 1, 2, 4 … `longest` seconds."""
    failures = state.failures + 1
    pause = min(longest, 2.0 ** min(failures - 1, 30))
    return replace(
        state, status=state.status if error.retry and failures < 5 else FAILED, error=error, failures=failures,
        next_try=now + pause if error.retry else 0.0, failed_on=fingerprint,
    )  # fmt: skip
