"""The status files of a mirrored database (contract section 11), written atomically.

    DatabaseStatus ─▶ render ─▶ Files/Monitoring/replicator.json, tables.json

`status_reader.py` reads them back; publishers and monitors read them too. No table depends on them.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import Waiting
from lakemirror.landing_zone.findings import REPORTED, Warned
from lakemirror.landing_zone.partner_events import Partner
from lakemirror.landing_zone.table_options import CURRENT
from lakemirror.storage import Storage

MONITORING = "Files/Monitoring"
REPLICATOR = f"{MONITORING}/replicator.json"
TABLES = "Files/Monitoring/tables.json"

MOST_BYTES = 256 * 1024**2  # of a status file
HEARTBEAT = 10.0  # most seconds between two heartbeats of a running engine
STALE = 60.0  # seconds without a heartbeat after which an engine counts as not running

TABLE_STATES = ("Initialized", "Snapshotting", "Replicating", "Reseeding", "Stopped", "Failed")


class TargetStatus(NamedTuple):
    """A history table of a table folder. `name`: without its schema. `mode`: CHANGES or SCD2. `began`: when, if that
    was later than the mirrored table; else 0. Else as `TableStatus`."""

    name: str
    mode: str
    position: int = 0
    status: str = "Initialized"
    error_code: str = ""
    began: float = 0.0


@dataclass(frozen=True)
class TableStatus:  # 23 fields: what the status shows and tables.json keeps of a table
    """One mirrored table as the status shows it. Times in seconds since the epoch, None for never or not known.

    `status` is one of TABLE_STATES. `position` is the number of the last applied file, `pending_files` counts those
    that arrived and are not applied; `oldest_pending`: when the oldest of them was written. `engine` made the last
    apply, for `engine_reason`; empty where that is not known. `error_file` and `error_hint` go with `error_code`.
    `freshness`: seconds within which a change file is to be applied; 0: no goal.
    `ignored_deletes`, `late_changes`: how many changes were counted and not applied, by the table's options.
    """

    id: str
    status: str
    table: str
    schema: str = ""
    error_code: str = ""
    error_message: str = ""
    error_file: str = ""
    error_hint: str = ""
    processed_rows: int = 0
    processed_bytes: int = 0
    last_source_commit: float | None = None
    last_sync: float | None = None
    position: int = 0
    pending_files: int = 0
    waiting_for: Waiting | None = None
    warnings: tuple[Warned, ...] = ()
    oldest_pending: float | None = None
    engine: str = ""
    engine_reason: str = ""
    freshness: float = 0.0
    ignored_deletes: int = 0
    late_changes: int = 0
    history: tuple[TargetStatus, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table

    def lag(self, now: float) -> float:
        """Seconds since the oldest change file that is not applied was written; 0 where all are applied."""
        return max(0.0, now - self.oldest_pending) if self.pending_files and self.oldest_pending else 0.0

    def misses_goal(self, now: float) -> bool:
        """True if a change file waits for longer than the table's goal of freshness."""
        return 0 < self.freshness < self.lag(now)


@dataclass(frozen=True)
class EngineProcess:
    """The process that wrote the status last. Times in seconds since the epoch.

    It writes at least every HEARTBEAT seconds while it runs. `heartbeat`: when it wrote last.
    """

    pid: int
    host: str
    started: float
    heartbeat: float

    @classmethod
    def this(cls) -> EngineProcess:
        """This process, started now."""
        return cls(os.getpid(), socket.gethostname(), time.time(), time.time())

    def is_alive(self, now: float) -> bool:
        """False if the heartbeat is older than STALE seconds, or the process was on this machine and has ended."""
        if now - self.heartbeat > STALE:
            return False
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except OSError:
            pass  # another user's
        return True


@dataclass(frozen=True)
class DatabaseStatus:
    """The replicator, and all tables in the order of their names. `warnings` concern no single table.

    `partner`: who publishes, as `_partnerEvents.json` has it; None where it says nothing.
    """

    status: str
    error_code: str = ""
    error_message: str = ""
    tables: tuple[TableStatus, ...] = field(default=())
    warnings: tuple[Warned, ...] = ()
    partner: Partner | None = None
    process: EngineProcess | None = None

    def not_running_since(self, now: float) -> float | None:
        """When an engine that ended without writing `Stopped` was last known to run; else None."""
        if self.status in ("", "Stopped") or self.process is None or self.process.is_alive(now):
            return None
        return self.process.heartbeat


def rewrite_status(storage: Storage, status: DatabaseStatus, before: DatabaseStatus | None, *, heartbeat: bool) -> bool:
    """Writes the files that differ from `before`, over those that are there; False if one is gone, or in a store is not
    the one that this process wrote last: then `write_status` looks at what is there. None: that is not known.

    One request for each file, in a store. `heartbeat`: writes `replicator.json` even if only the time differs.
    LakemirrorError `storage-unavailable`.
    """
    if before is None:
        return False
    changed: dict[str, bytes] = {}
    if status.tables is not before.tables and (tables := _tables_text(status)) != _tables_text(before):
        changed[TABLES] = tables
    replicator = _dump(_replicator(status))
    if heartbeat or replicator != _dump(_replicator(replace(before, process=status.process))):
        changed[REPLICATOR] = replicator
    if TABLES not in changed and not storage.capabilities.waits and not storage.exists(TABLES):
        return False
    return all(storage.rewrite(path, data) for path, data in changed.items())


def write_status(storage: Storage, status: DatabaseStatus) -> bool:
    """Writes the files whose content changed. True if one changed. LakemirrorError `storage-unavailable`."""
    written = False
    for path, data in render(status).items():
        if stored_bytes(storage, path) != data:
            storage.write(path, data)
            written = True
    return written


def is_stored(storage: Storage, status: DatabaseStatus) -> bool:
    """True if `replicator.json` is as this status wrote it: each process writes its id and the time.

    LakemirrorError `storage-unavailable`.
    """
    return stored_bytes(storage, REPLICATOR) == _dump(_replicator(status))


def write_tables(storage: Storage, path: str, tables: tuple[TableStatus, ...]) -> None:
    """Writes the states of some tables, as `tables.json` has them. LakemirrorError `storage-unavailable`."""
    storage.write(path, _tables_text(DatabaseStatus("", tables=tables)))


def render(status: DatabaseStatus) -> dict[str, bytes]:
    """The files by path. The same status gives the same bytes, whatever the order of the tables."""
    return {TABLES: _tables_text(status), REPLICATOR: _dump(_replicator(status))}


_OF_FOLDERS = ("file-ignored", "detection-undeclared", "not-a-file")
"""Warnings that need a person where a table folder has no change file at all; else they are only shown."""

_OF_DATABASES = ("file-stray", "readers-unmet")


def needing_attention(tables: Iterable[TableStatus], warnings: Iterable[Warned]) -> dict[str, Warned]:
    """The first such warning of each table, by its name, and of the database, by its place."""
    found: dict[str, Warned] = {}
    for table in tables:
        if not table.error_code and not table.position and not table.pending_files:
            for each in filter(_is_in_the_way, table.warnings):
                found.setdefault(table.name, each)
    for warned in warnings:
        if warned.code in _OF_DATABASES or warned.code in CODES:
            found.setdefault(warned.file, warned)
    return found


def hint_for(code: str) -> str:
    """The edit that helps; empty if none is known."""
    if code in CODES:
        return CODES[code].hint
    return REPORTED[code][1] if code in REPORTED else ""


def _is_in_the_way(warned: Warned) -> bool:
    """True for a file that its publisher meant to be applied: names with a dot in front are temporary."""
    return warned.code in _OF_FOLDERS and not warned.file.rpartition("/")[2].startswith(".")


def stored_bytes(storage: Storage, path: str) -> bytes | None:
    """What a status file holds; None if there is none, or it was not written by lakemirror."""
    try:
        return storage.read(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except LakemirrorError as error:
        if error.code in ("path-refused", "content-too-large"):
            return None  # it is replaced if possible
        raise


def duration_text(seconds: float) -> str:
    """A duration for people: 12 s, 5 min, 3 h, 2 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_time(seconds: float | None) -> str:
    """UTC as the vendor writes it, with seven digits; `0001-01-01T00:00:00` for an unknown time."""
    if seconds is None or not math.isfinite(seconds):
        return NEVER
    whole, ticks = divmod(round(seconds * _TICKS), _TICKS)
    try:
        moment = EPOCH + timedelta(seconds=whole)
    except OverflowError:
        return NEVER
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ticks:07}Z"


_ROWS_KEPT = 20_000  # tables whose rows are kept as text
_rows: dict[tuple[str, str, str], tuple[tuple[TableStatus, str], ...]] = {}
_rows_lock = threading.Lock()
NEVER = "0001-01-01T00:00:00"
_TICKS = 10_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _tables_text(status: DatabaseStatus) -> bytes:
    rows = [_row_text(each) for each in sorted(status.tables, key=lambda each: (each.schema, each.table))]
    listed = "[\n  " + ",\n  ".join(rows) + "\n ]" if rows else "[]"
    return f'{{\n "tables": {listed}\n}}\n'.encode("ascii")


def _replicator(status: DatabaseStatus) -> dict[str, Any]:
    replicator: dict[str, Any] = {
        "status": status.status,
        "errorCode": status.error_code,
        "errorMessage": status.error_message,
    }
    if status.partner is not None:
        replicator["partner"] = {
            "name": status.partner.name,
            "sourceType": status.partner.source_type,
            "sourceVersion": status.partner.source_version,
            "additionalInformation": dict(status.partner.additional),
        }
    if status.warnings:
        replicator["warnings"] = [_warning_row(each) for each in status.warnings]
    if status.process is not None:
        replicator["process"] = {
            "pid": status.process.pid,
            "host": status.process.host,
            "startedTimeUtc": format_time(status.process.started),
            "heartbeatTimeUtc": format_time(status.process.heartbeat),
        }
    return replicator


def _row_text(table: TableStatus) -> str:
    """A table's row as indented JSON. The last two of each table are kept, because few of many tables change at a time,
    and a new status is compared with the one before.
    """
    name = table.id, table.schema, table.table
    kept = _rows.get(name, ())
    for known, text in kept:
        if known is table or known == table:
            return text
    text = json.dumps(_row(table), indent=1).replace("\n", "\n  ")
    with _rows_lock:
        if len(_rows) >= _ROWS_KEPT and name not in _rows:
            del _rows[next(iter(_rows))]
        _rows[name] = ((table, text), *kept[:1])
    return text


def _row(table: TableStatus) -> dict[str, Any]:
    waiting = table.waiting_for
    optional: dict[str, Any] = {
        "oldestPendingTimeUtc": format_time(table.oldest_pending) if table.oldest_pending else "",
        "engine": table.engine,
        "engineReason": table.engine_reason,
        "freshnessSeconds": table.freshness,
    }
    return {
        **{name: value for name, value in optional.items() if value},
        "id": table.id,
        "status": table.status,
        "errorCode": table.error_code,
        "errorMessage": table.error_message,
        "normalizedTableName": table.name,
        "sourceTableName": table.table,
        "sourceSchemaName": table.schema,
        "sourceObjectType": "Table",
        "metrics": {
            "processedRowCount": table.processed_rows,
            "processedByte": table.processed_bytes,
            "lastSourceCommitTimeUtc": format_time(table.last_source_commit),
            "lastSyncTimeUtc": format_time(table.last_sync),
            **(left_out(table) if table.ignored_deletes or table.late_changes else {}),
        },
        "position": table.position,
        "pendingFiles": table.pending_files,
        "waitingFor": None if waiting is None else {"what": waiting.what, "since": format_time(waiting.since)},
        "warnings": [_warning_row(each) for each in table.warnings],
        "errorFile": table.error_file,
        "errorHint": table.error_hint,
        **({"targets": target_rows(table)} if table.history else {}),
    }


def left_out(table: TableStatus) -> dict[str, int]:
    """How many changes were counted and not applied, as tables.json names them; without those of which there are 0."""
    return {METRICS[name]: count for name in _LEFT_OUT if (count := getattr(table, name))}


def target_rows(table: TableStatus) -> list[dict[str, Any]]:
    """The mirrored table and its history tables, each with its own position; empty where there is no history."""
    if not table.history:
        return []
    code = "" if any(each.error_code for each in table.history) else table.error_code
    current = TargetStatus(table.table, CURRENT, table.position, table.status, code)
    names = ("name", "mode", "position", "status", "errorCode")
    schema = f"{table.schema}." if table.schema else ""
    return [
        {
            **dict(zip(names, each, strict=False)),
            "name": f"{schema}{each.name}",
            **({"since": format_time(each.began)} if each.began else {}),
        }
        for each in (current, *table.history)
    ]


def _warning_row(warned: Warned) -> dict[str, str]:
    return {**warned._asdict(), "since": format_time(warned.since or None)}


METRICS = {
    "processed_rows": "processedRowCount", "processed_bytes": "processedByte", "ignored_deletes": "ignoredDeletes",
    "late_changes": "lateChanges",
}  # fmt: skip
_LEFT_OUT = ("ignored_deletes", "late_changes")


def _dump(content: Mapping[str, Any]) -> bytes:
    # ASCII alone: file names may hold bytes that are no UTF-8, and come back as they were
    return json.dumps(content, indent=1).encode("ascii") + b"\n"
