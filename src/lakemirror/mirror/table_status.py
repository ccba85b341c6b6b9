"""A table's state as the status files and `lakemirror status` show it (contract section 11)."""

from __future__ import annotations

from dataclasses import replace

from lakemirror.errors import CODES
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror import table_state
from lakemirror.mirror.observe import View
from lakemirror.mirror.table_state import LastApply, TableState, next_state
from lakemirror.status import TableStatus


def table_status(name: TableName, state: TableState) -> TableStatus:
    """The status of a table that a running engine knows."""
    error, last = state.error, state.last
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
    )


def remembered(last: TableStatus | None) -> TableState:
    """What an earlier process wrote down and the table itself does not tell: its last apply, its wait, its events."""
    if last is None:
        return TableState()
    return TableState(
        waiting=last.waiting_for,
        warnings=last.warnings,
        last=LastApply(synced=last.last_sync or 0.0, engine=last.engine, reason=last.engine_reason),
    )


def status_now(name: TableName, look: View, last: TableStatus | None, now: float) -> TableStatus:
    """The status of a table from a look at it and from the record of the last pass.

    An error that only an apply can find is taken from the last pass, as long as its file is still there.
    """
    if look.error is None and look.pending.rejected is not None:
        look = look.failed(look.pending.rejected.error())
    shown = table_status(name, next_state(remembered(last), look, None, now=now, longest=0.0))
    if shown.error_code or last is None or not last.error_code or last.id != shown.id:
        return shown
    still_there = any(file.path == last.error_file for file in look.folder.files)
    if not (look.pending.count and still_there and last.position == look.position):
        return shown
    kind = CODES.get(last.error_code)  # another version of lakemirror may know other codes
    failed = last.status == table_state.FAILED or kind is None or not kind.retry
    return replace(
        shown,
        status=table_state.FAILED if failed else shown.status,
        error_code=last.error_code,
        error_message=last.error_message,
        error_file=last.error_file,
        error_hint=last.error_hint,
    )


__all__ = ["remembered", "status_now", "table_status"]
