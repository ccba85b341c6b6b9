"""A database's status as the REST interface, the metrics and the page show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lakemirror.api import current_status
from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.mirror.table_rules import allowed
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.operator_settings import OperatorSettings, warnings_of
from lakemirror.settings.settings import DEFINITION, MOST_BYTES, read_definition
from lakemirror.status.status import DatabaseStatus, TableStatus, format_time
from lakemirror.status.status_reader import last_status
from lakemirror.storage.place import storage_of


def status_of(database: DatabaseEntry, state: str, written: DatabaseStatus | None = None) -> DatabaseStatus:
    """What the database's engine wrote last; where none runs, what is there now, all tables `Stopped`.

    `state`: of the database. `written`: as `EngineHost.status` knows it; else its files are read. Never raises for what
    is in the database's folder.
    """
    if written is not None and state == "Running":
        return written
    storage = storage_of(database.folder)
    if state in ("Running", "Stopping"):
        return last_status(storage)
    try:
        definition = read_definition(storage)
        settings = allowed(OperatorSettings.from_environment().of_database(definition))
        found = current_status(storage, settings, warnings_of(definition))
    except LakemirrorError as error:
        found = replace(last_status(storage), error_code=error.code, error_message=error.message)
    return replace(found, tables=tuple(replace(each, status="Stopped") for each in found.tables))


def written_error(database: DatabaseEntry) -> LakemirrorError | None:
    """The error of the database's engine as its status file has it."""
    found = last_status(storage_of(database.folder))
    return LakemirrorError(found.error_code, found.error_message) if found.error_code in CODES else None


def table_rows(tables: Iterable[TableStatus]) -> list[dict[str, Any]]:
    """The entries of getTablesMirroringStatus."""
    return [_row(each) for each in tables]


def read_definition_file(database: DatabaseEntry) -> bytes | None:
    """The bytes of `mirroring.json`; None where there is none, or nothing that can be read."""
    try:
        return storage_of(database.folder).read(DEFINITION, MOST_BYTES)
    except (FileNotFoundError, LakemirrorError):
        return None


def _row(table: TableStatus) -> dict[str, Any]:
    metrics: dict[str, Any] = {"processedRows": table.processed_rows, "processedBytes": table.processed_bytes}
    if table.last_sync:
        metrics["lastSyncDateTime"] = format_time(table.last_sync)
        if table.last_source_commit and table.last_sync >= table.last_source_commit:
            metrics["lastSyncLatencyInSeconds"] = round(table.last_sync - table.last_source_commit)
    row = {
        "sourceObjectType": "Table",
        "sourceSchemaName": table.schema,
        "sourceTableName": table.table,
        "status": table.status,
        "metrics": metrics,
    }
    if table.status == "Failed":
        row["error"] = {"errorCode": table.error_code, "message": table.error_message}
    return row
