"""The status files of a mirrored database, read back as `status.py` wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import Waiting
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.table_options import CURRENT
from lakemirror.status.status import (
    EPOCH,
    METRICS,
    MONITORING,
    NEVER,
    REPLICATOR,
    TABLES,
    DatabaseStatus,
    EngineProcess,
    TableStatus,
    TargetStatus,
    stored_bytes,
)
from lakemirror.storage import Storage


def read_tables(storage: Storage, path: str) -> tuple[TableStatus, ...]:
    """The states of tables in such a file; empty if there is none, or it is invalid."""
    rows = _parse(stored_bytes(storage, path)).get("tables")
    return tuple(_table(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def read_status(storage: Storage) -> DatabaseStatus | None:
    """The status in the files; None if there are none, or they are invalid."""
    replicator, tables = _parse(stored_bytes(storage, REPLICATOR)), read_tables(storage, TABLES)
    if not replicator and not tables:
        return None
    return DatabaseStatus(
        **_fields(replicator, _OF_REPLICATOR, ""),
        tables=tables,
        warnings=_warnings(replicator),
        process=_process(replicator.get("process")),
    )


def last_status(storage: Storage) -> DatabaseStatus:
    """The status that the last process wrote; empty, with a warning if its files cannot be read."""
    try:
        return read_status(storage) or DatabaseStatus("Stopped")
    except LakemirrorError as error:
        unread = Warned("status-unreadable", f"the last status cannot be read: {error}", MONITORING)
        return DatabaseStatus("Stopped", warnings=(unread,))


_OF_REPLICATOR = {"status": "status", "error_code": "errorCode", "error_message": "errorMessage"}
_TEXTS = {
    **_OF_REPLICATOR, "id": "id", "table": "sourceTableName", "schema": "sourceSchemaName", "error_file": "errorFile",
    "error_hint": "errorHint", "engine": "engine", "engine_reason": "engineReason",
}  # fmt: skip
_NUMBERS = {"position": "position", "pending_files": "pendingFiles"}


def _targets(row: Mapping[str, Any], schema: str) -> tuple[TargetStatus, ...]:
    """The history tables in a row of `tables.json`."""
    found = row.get("targets")
    rows = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    texts = {"name": "name", "mode": "mode", "status": "status", "error_code": "errorCode"}
    targets = [
        TargetStatus(
            **_fields(each, texts, ""), **_fields(each, {"position": "position"}, 0),
            began=parse_time(each.get("since")) or 0.0,
        )
        for each in rows
    ]  # fmt: skip
    return tuple(
        each._replace(name=each.name.removeprefix(f"{schema}.") if schema else each.name)
        for each in targets
        if each.mode != CURRENT
    )


def _fields(row: Mapping[str, Any], members: Mapping[str, str], missing: Any) -> dict[str, Any]:
    """The fields that these members of a JSON object hold; `missing` for one that is not there or of another type."""
    found = {field: row.get(member) for field, member in members.items()}
    return {field: value if type(value) is type(missing) else missing for field, value in found.items()}


def _table(row: Mapping[str, Any]) -> TableStatus:
    metrics = row.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    waiting = row.get("waitingFor")
    return TableStatus(
        **_fields(row, _TEXTS, ""),
        **_fields(row, _NUMBERS, 0),
        **_fields(row, {"freshness": "freshnessSeconds"}, 0.0),
        **_fields(metrics, METRICS, 0),
        last_source_commit=parse_time(metrics.get("lastSourceCommitTimeUtc")),
        last_sync=parse_time(metrics.get("lastSyncTimeUtc")),
        waiting_for=Waiting(**_fields(waiting, {"what": "what"}, ""), since=parse_time(waiting.get("since")) or 0.0)
        if isinstance(waiting, dict)
        else None,
        warnings=_warnings(row),
        oldest_pending=parse_time(row.get("oldestPendingTimeUtc")),
        history=_targets(row, str(row.get("sourceSchemaName") or "")),
    )


def _process(found: Any) -> EngineProcess | None:
    if not isinstance(found, dict):
        return None
    started, heartbeat = parse_time(found.get("startedTimeUtc")), parse_time(found.get("heartbeatTimeUtc"))
    pid, host = found.get("pid"), found.get("host")
    if started is None or heartbeat is None or type(pid) is not int or pid <= 0:
        return None
    return EngineProcess(pid, host if isinstance(host, str) else "", started, heartbeat)


def _warnings(row: Mapping[str, Any]) -> tuple[Warned, ...]:
    found = row.get("warnings")
    if not isinstance(found, list):
        return ()
    names = {"code": "code", "message": "message", "file": "file"}
    return tuple(
        Warned(**_fields(each, names, ""), since=parse_time(each.get("since")) or 0.0)
        for each in found
        if isinstance(each, dict)
    )


def _parse(data: bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def parse_time(text: Any) -> float | None:
    """Seconds since the epoch of a time in any ISO form with up to nine digits; None if unknown."""
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[1] == NEVER:
        return None
    try:
        moment = datetime.fromisoformat(match[1]).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return (moment - EPOCH).total_seconds() + float(f"0.{match[2] or 0}")


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?", re.ASCII)
