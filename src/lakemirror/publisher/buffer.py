"""Small changes gathered into one change file, up to a number of rows, bytes or seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from lakemirror.publisher.change_writer import MARKER_COLUMN


@dataclass(frozen=True)
class Buffer:
    """Limits for gathering changes: the first one that is reached makes a file. `seconds`: since the oldest change."""

    rows: int = 100_000
    bytes: int = 64 << 20
    seconds: float = 5.0


class Gathered:
    """Changes of one table, in order, not yet published; safe to use from several threads.

    `publish` writes one file from a table. Its errors are raised by the call that reached the limit; where the limit
    was the time, by the next call. Gathered changes are kept until `publish` has returned.
    """

    def __init__(self, limits: Buffer, publish: Callable[[pa.Table], None]) -> None:
        self._limits = limits
        self._publish = publish
        self._lock = threading.RLock()
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._timer: threading.Timer | None = None
        self._failed: BaseException | None = None

    def add(self, changes: pa.Table) -> None:
        """Takes changes with their marker column; publishes when a limit is reached."""
        with self._lock:
            self._raise_failure()
            self._tables.append(changes)
            self._count(changes, 1)
            if self._rows >= self._limits.rows or self._bytes >= self._limits.bytes:
                self.flush()
            elif self._timer is None:
                self._timer = threading.Timer(self._limits.seconds, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Publishes everything gathered, as one file where the columns allow it."""
        with self._lock:
            self._stop_timer()
            self._raise_failure()
            while self._tables:
                taken, table = _joined(self._tables)
                self._publish(table)
                for each in self._tables[:taken]:
                    self._count(each, -1)
                del self._tables[:taken]

    def discard(self) -> None:
        """Forgets everything gathered."""
        with self._lock:
            self._stop_timer()
            self._tables.clear()
            self._rows = self._bytes = 0

    def _count(self, changes: pa.Table, sign: int) -> None:
        self._rows += sign * changes.num_rows
        self._bytes += sign * changes.nbytes

    def _flush_late(self) -> None:
        with self._lock:
            try:
                self.flush()
            except BaseException as error:
                self._failed = error

    def _raise_failure(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _joined(tables: list[pa.Table]) -> tuple[int, pa.Table]:
    """The number of first tables with compatible columns, and their rows as one table, the marker last."""
    schema, taken = tables[0].schema, 1
    for table in tables[1:]:
        try:
            schema = schema if table.schema.equals(schema) else pa.unify_schemas([schema, table.schema])
        except pa.ArrowException:
            break
        taken += 1
    joined = pa.concat_tables(tables[:taken], promote_options="default")
    names = [name for name in joined.column_names if name != MARKER_COLUMN]
    return taken, joined.select([*names, MARKER_COLUMN])
