"""What the page shows, as data: each page's `.json` twin is one of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lakemirror.error_codes import CODES
from lakemirror.landing_zone.metadata import Warned
from lakemirror.service.captures.capture_host import CaptureSeen
from lakemirror.service.host import ApplySeen, EngineHost
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.operating.advice import advice, is_waiting, named
from lakemirror.service.operating.day_cache import DayCache
from lakemirror.service.rest.database_status import status_of
from lakemirror.status.status import DatabaseStatus, TableStatus, format_time, left_out, target_rows

MOST_TABLES = 200  # on one page


def overview(databases: list[DatabaseEntry], host: EngineHost, now: float) -> dict[str, Any]:
    """Every database with its state, its tables by state, rows, bytes and lag."""
    return {"time": format_time(now), "databases": [_summary(each, host, now) for each in databases]}


def database_view(
    database: DatabaseEntry,
    host: EngineHost,
    days: DayCache,
    now: float,
    page: int = 1,
    captures: Iterable[CaptureSeen] = (),
) -> dict[str, Any] | None:
    """One database with one page of its tables, those that need somebody first, the figures of its last day, and the
    captures that publish to it. None where it has no such page.
    """
    state, found, error = _look(database, host)
    pages = max(1, -(-len(found.tables) // MOST_TABLES))
    if not 1 <= page <= pages:
        return None
    tables = found.tables
    if pages > 1:  # sorting keeps the order of those that are alike
        tables = tuple(sorted(tables, key=lambda each: (not each.error_code, not each.misses_goal(now))))
    return {
        "time": format_time(now),
        **_summary_of(database, state, found, error, now),
        "page": page,
        "pages": pages,
        "description": database.description,
        "lastDay": days.plot(database),
        "tableList": [
            _table(each, folder_of(database), now) for each in tables[(page - 1) * MOST_TABLES : page * MOST_TABLES]
        ],
        "warnings": _warnings(found.warnings),
        "captures": [each.view() for each in captures],
    }


def table_view(
    database: DatabaseEntry, name: str, host: EngineHost, days: DayCache, now: float
) -> dict[str, Any] | None:
    """One table with its last day, and its last applies since the service started; None where there is none."""
    state, found, _ = _look(database, host)
    table = next((each for each in found.tables if each.name == name), None)
    if table is None:
        return None
    return {
        "time": format_time(now),
        "workspace": _workspace(database),
        "database": database.display_name,
        "databaseId": database.id,
        "databaseState": state,
        **_table(table, folder_of(database), now),
        "lastDay": days.plot(database, name),
        "history": [_apply(each) for each in host.history(database.id, name)],
    }


def _look(database: DatabaseEntry, host: EngineHost) -> tuple[str, DatabaseStatus, Mapping[str, str] | None]:
    state, error = host.state(database)
    found = status_of(database, state, host.status(database.id))
    shown = None
    if error is not None:
        shown = {"code": error.code, "message": error.message, "hint": named(error.hint, folder_of(database))}
    elif found.error_code:
        kind = CODES.get(found.error_code)
        hint = named(kind.hint, folder_of(database)) if kind else ""
        shown = {"code": found.error_code, "message": found.error_message, "hint": hint}
    return state, found, shown


def _summary(database: DatabaseEntry, host: EngineHost, now: float) -> dict[str, Any]:
    state, found, error = _look(database, host)
    return _summary_of(database, state, found, error, now)


def _summary_of(
    database: DatabaseEntry, state: str, found: DatabaseStatus, error: Mapping[str, str] | None, now: float
) -> dict[str, Any]:
    pending = [each for each in found.tables if each.pending_files]
    return {
        "workspace": _workspace(database),
        "database": database.display_name,
        "databaseId": database.id,
        "state": state,
        "error": error,
        "tables": dict(sorted(Counter(_state(each) for each in found.tables).items())),
        "rows": sum(each.processed_rows for each in found.tables),
        "bytes": sum(each.processed_bytes for each in found.tables),
        "pendingFiles": sum(each.pending_files for each in pending),
        "lagSeconds": round(max((each.lag(now) for each in pending), default=0.0), 1),
        "freshnessMissed": sum(each.misses_goal(now) for each in pending),
    }


def folder_of(database: DatabaseEntry) -> str:
    """The database's folder as commands on the service's machine name it, below the root that is served."""
    return f"ROOT/{database.folder.parent.name}/{database.folder.name}"


def _state(table: TableStatus) -> str:
    """The table's state, or `Waiting` where files wait for another one."""
    return "Waiting" if is_waiting(table) else table.status


def _table(table: TableStatus, folder: str, now: float) -> dict[str, Any]:
    waiting = table.waiting_for
    error = None
    if table.error_code:
        error = {
            "code": table.error_code, "message": table.error_message, "file": table.error_file,
            "hint": named(table.error_hint, folder, table.name),
        }  # fmt: skip
    return {
        "table": table.name,
        "state": _state(table),
        "position": table.position,
        **({"targets": target_rows(table)} if table.history else {}),
        "pendingFiles": table.pending_files,
        "waitingFor": None if waiting is None else {"what": waiting.what, "since": format_time(waiting.since)},
        "rows": table.processed_rows,
        **left_out(table),
        "bytes": table.processed_bytes,
        "lagSeconds": round(table.lag(now), 1),
        "freshnessSeconds": table.freshness or None,
        "freshnessMissed": table.misses_goal(now),
        "lastApply": format_time(table.last_sync) if table.last_sync else None,
        "engine": table.engine,
        "engineReason": table.engine_reason,
        "error": error,
        "whatToDo": [{"what": each.what, "command": each.command} for each in advice(table, folder)],
        "tableWarnings": _warnings(table.warnings),
    }


def _warnings(found: tuple[Warned, ...]) -> list[dict[str, Any]]:
    return [{**each._asdict(), "since": format_time(each.since) if each.since else None} for each in found]


def _apply(seen: ApplySeen) -> dict[str, Any]:
    return {
        "time": format_time(seen.time), "rows": seen.rows, "files": seen.files, "bytes": seen.bytes,
        "seconds": round(seen.seconds, 3), "engine": seen.engine,
    }  # fmt: skip


def _workspace(database: DatabaseEntry) -> str:
    return database.workspace.name if database.workspace else ""
