"""Small changes gathered into one change file: until so many rows, bytes or seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from lakemirror.publisher.change_writer import MARKER_COLUMN


@dataclass(frozen=True)
class Buffer:
    """When gathered changes become a file: whichever limit is met first. `seconds` counts from the oldest change."""

    rows: int = 100_000
    bytes: int = 64 << 20
    seconds: float = 5.0


class Gathered:
    """Changes of one table, in order, not yet published; safe to use from several threads.

    `publish` writes one file from a table. What it raises is raised by the call that met the limit; where the limit
    was the time, by the next call. Gathered changes are kept until `publish` has returned.
    """

    def __init__(self, limits: Buffer, publish: Callable[[pa.Table], None]) -> None:
        self._limits = limits
        self._publish = publish
        self._lock = threading.RLock()
        self._tables: list[pa.Table] = []
        self._timer: threading.Timer | None = None
        self._failed: BaseException | None = None

    def add(self, changes: pa.Table) -> None:
        """Takes changes with their marker column; publishes where a limit is met."""
        with self._lock:
            self._raise_failure()
            self._tables.append(changes)
            rows = sum(table.num_rows for table in self._tables)
            size = sum(table.nbytes for table in self._tables)
            if rows >= self._limits.rows or size >= self._limits.bytes:
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
                del self._tables[:taken]

    def discard(self) -> None:
        """Forgets everything gathered."""
        with self._lock:
            self._stop_timer()
            self._tables.clear()

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
    """As many tables from the front as have compatible columns, and their rows as one table, the marker last."""
    taken, joined = 1, tables[0]
    for count in range(len(tables), 1, -1):
        try:
            joined = pa.concat_tables(tables[:count], promote_options="default")
            taken = count
            break
        except pa.ArrowException:
            continue
    names = [name for name in joined.column_names if name != MARKER_COLUMN]
    return taken, joined.select([*names, MARKER_COLUMN])
