"""The rows of one table in one snapshot, as files of about 64 MiB.

    table ─▶ ranges of its pages ─▶ readers side by side, each in the snapshot ─▶ batches ─▶ a file at a time ─▶ publish

Ranges of pages need no key and cost no sorting; the leaves of a partitioned table have ranges of their own. A reader
holds one batch, and one row group of the file it writes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.loaded_rows import Publish, Stopped, Tell, publish_empty, publish_rows
from lakemirror.publisher.capture.postgresql.source_sessions import failing, reading
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.sources.sql_types import quoted
from lakemirror.worker_pool import worker_pool

READERS = 2
_RANGE_PAGES = 1 << 16  # 512 MiB
_WITH_RANGES = 140000  # before PostgreSQL 14 a range of pages reads the whole table
BATCH_BYTES = 16 << 20
_BATCH = "adbc.postgresql.batch_size_hint_bytes"
_PAGES = """
select format('%I.%I', n.nspname, c.relname), greatest(pg_relation_size(c.oid) / current_setting('block_size')::int, 1),
       c.relfilenode = pg_relation_filenode(c.oid), current_setting('server_version_num')::int
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and (c.oid = {0} or c.oid in (select relid from pg_partition_tree({0}) where isleaf))
"""


class Loader:
    """Reads tables in one snapshot. Used in a `with` block."""

    def __init__(self, options: CaptureOptions, snapshot: str, stopped: Callable[[], bool]) -> None:
        """`stopped`: True where loads shall end."""
        self._options, self._snapshot, self._stopped = options, snapshot, stopped
        self._open = ExitStack()
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def load(self, table: SourceTable, publish: Publish, tell: Tell = lambda _: None) -> int:
        """As `Source.load`. `publish` is called from several threads, each time with the rows of one file."""

        def read(query: str) -> int:
            connection = self._connection()
            with connection.cursor() as cursor:
                with failing(self._options):
                    cursor.adbc_statement.set_options(**{_BATCH: str(BATCH_BYTES)})
                    cursor.execute(query)
                    found = cursor.fetch_record_batch()
                count = publish_rows(table, self._batches(found, tell), publish)
            self._idle.put(connection)
            return count

        with worker_pool(READERS, "capture-load") as pool:
            calls = [pool.submit(read, query) for query in self._queries(table)]
            done, _ = wait(calls, return_when=FIRST_EXCEPTION)
            if any(call.exception() for call in done):
                for call in calls:
                    call.cancel()
            count = sum(call.result() for call in calls)
        return count or publish_empty(table, publish)

    def _queries(self, table: SourceTable) -> list[str]:
        """One query for each range of pages; none for a table that is younger than the snapshot.

        The table is locked against changes of its form first. `capture-source-failed` where it was rewritten since the
        snapshot: it would seem empty.
        """
        columns = ", ".join(f"{column.load_expression} as {quoted(column.name)}" for column in table.columns)
        connection = self._connection()
        with failing(self._options), connection.cursor() as cursor:
            cursor.execute(f"lock table {table.qualified} in access share mode")
            cursor.execute(_PAGES.format(table.number))
            parts = cursor.fetchall()
        self._idle.put(connection)
        if not all(is_same for _, _, is_same, _ in parts):
            raise LakemirrorError(
                "capture-source-failed", f"{table.title} was truncated or rewritten as its load began"
            )
        queries = []
        for name, pages, _, version in parts:
            step = max(min(_RANGE_PAGES, -(-pages // (2 * READERS))), 1024)
            starts = range(0, pages, step) if version >= _WITH_RANGES else range(1)
            for start in starts:
                bounds = [f"ctid >= '({start},0)'"] if start else []
                bounds += [f"ctid < '({start + step},0)'"] if start + step < pages and len(starts) > 1 else []
                where = f" where {' and '.join(bounds)}" if bounds else ""
                queries.append(f"select {columns} from only {name}{where}")
        return queries

    def _connection(self) -> Any:
        """An idle session in the snapshot, or a new one."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            with ExitStack() as opened:
                connection = opened.enter_context(reading(self._options, self._snapshot))
                with self._lock:
                    self._open.push(opened.pop_all())
            return connection

    def _batches(self, found: pa.RecordBatchReader, tell: Tell) -> Iterator[pa.RecordBatch]:
        while not self._stopped():
            with failing(self._options):
                try:
                    batch = found.read_next_batch()
                except StopIteration:
                    return
            tell(batch.num_rows)
            yield batch
        raise Stopped
