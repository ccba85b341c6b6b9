"""One thing that happened in a mirrored database, as its line in the spool and its row in the table.

apply, error, drop, maintenance ─▶ Execution ─▶ line (a JSON array) ─▶ Execution
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.apply import Applied
from lakemirror.status.status import format_time

SNAPSHOTTING, REPLICATING, FAIL, REMOVE = "Snapshotting", "Replicating", "FailTable", "RemoveTable"
DROP_FEATURE, COMPACT, VACUUM, CAPTURE = "DropFeature", "Compact", "Vacuum", "Capture"

_LONGEST_MESSAGE = 2000
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")


class Execution(NamedTuple):
    """One thing that happened. `ended` in seconds since the epoch, `seconds`: how long it took.

    `lag`: seconds from the writing of the oldest change file to the end of its apply; None for what is no apply.
    `first` and `last`: numbers of the files of an apply; 0 elsewhere. `version`: of the table, made by it; -1: none.
    `rows`: changes of an apply, files of a compaction or a vacuum. `size`: bytes of change files.
    """

    ended: float
    operation: str
    schema: str
    table: str
    seconds: float = 0.0
    rows: int = 0
    size: int = 0
    lag: float | None = None
    first: int = 0
    last: int = 0
    version: int = -1
    engine: str = ""
    error_code: str = ""
    error_message: str = ""

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def error_type(self) -> str:
        """As Fabric has it: `SystemError` for what may go away by itself, `UserError` for what a person must change."""
        if not self.error_code:
            return ""
        kind = CODES.get(self.error_code)
        return "SystemError" if kind is None or kind.retry else "UserError"

    def to_json(self) -> dict[str, Any]:
        """The execution by the names of the table's columns, with the complete name of its table."""
        return {
            "Timestamp": format_time(self.ended),
            "OperationName": self.operation,
            "SourceSchemaName": self.schema,
            "SourceTableName": self.table,
            "DurationSeconds": self.seconds,
            "ProcessedRows": self.rows,
            "ProcessedBytes": self.size,
            "ReplicatorBatchLatency": self.lag,
            "PositionFrom": self.first or None,
            "PositionTo": self.last or None,
            "TableVersion": self.version if self.version >= 0 else None,
            "EngineName": self.engine or None,
            "ErrorType": self.error_type or None,
            "ErrorCode": self.error_code or None,
            "ErrorMessage": self.error_message or None,
        }

    def line(self) -> bytes:
        """The line of the spool."""
        return json.dumps(self, separators=(",", ":")).encode("ascii")


def parse_line(line: bytes) -> Execution | None:
    """The execution of a line; None for one that is torn, or of another version of lakemirror."""
    try:
        values = json.loads(line)
        found = Execution(*values)
        kinds = (float, str, str, str, float, int, int, None, int, int, int, str, str, str)
        return Execution(*(_as(kind, value) for kind, value in zip(kinds, found, strict=True)))
    except (ValueError, TypeError, RecursionError):
        return None


def _as(kind: Any, value: Any) -> Any:
    if kind is None:
        return None if value is None else float(value)
    if isinstance(value, str) is not (kind is str):
        raise TypeError(value)
    return kind(value)


def of_apply(name: TableName, applied: Applied, now: float) -> Execution:
    """An apply that was committed. `now`: in seconds since the epoch."""
    batch, manifest = applied.batch, applied.manifest
    rows = batch.rows
    written = min([item.file.entry.modified for item in batch.files]) / 1e9
    return Execution(
        round(now, 3),
        SNAPSHOTTING if manifest.rows == rows else REPLICATING,
        name.schema,
        name.table,
        round(applied.seconds, 3),
        rows,
        batch.bytes,
        round(max(0.0, now - written), 3),
        manifest.first,
        manifest.last,
        applied.version,
        applied.engine,
    )


def of_error(name: TableName, error: LakemirrorError, now: float) -> Execution:
    """An error of a table."""
    message = without_credentials(error.message)
    return Execution(round(now, 3), FAIL, name.schema, name.table, error_code=error.code, error_message=message)


def without_credentials(message: str) -> str:
    """The message, not too long, without what is before the host of an address."""
    return _CREDENTIALS.sub("***@", message)[:_LONGEST_MESSAGE]


def of_target(operation: str, target: str, now: float, **more: Any) -> Execution:
    """What happened to the Delta table at `target`, such as `Tables/sales/orders`."""
    schema, _, table = target.removeprefix("Tables/").rpartition("/")
    return Execution(round(now, 3), operation, schema, table, **more)
