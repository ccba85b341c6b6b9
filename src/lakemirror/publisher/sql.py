"""Rows of a database as rows to publish: a query, as a snapshot or by a watermark.

A watermark is a column that only grows, such as a modification time or a number from a sequence. Each time the query
is asked for rows at or above the last value that was seen; those that were seen with that very value already are left
out. So rows that share a value are not lost, and a query that finds nothing new publishes nothing. The state is
written after its change file: a crash in between publishes some rows a second time, which as upserts do no harm.
What a watermark cannot see: deleted rows, and rows whose transaction ends after younger values were read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.zoneless import UTC, local_times, zone_of
from lakemirror.publisher.change_writer import UPSERT, with_marker
from lakemirror.publisher.folders.table_folder import TableFolder, write_whole
from lakemirror.publisher.row_keys import positions
from lakemirror.publisher.snapshot import in_common_types, same_rows
from lakemirror.publisher.sources.files import publish_rows
from lakemirror.publisher.sources.sql_databases import SourceDatabase, connected
from lakemirror.publisher.sources.sql_types import INFINITE, ReadAs, quoted
from lakemirror.publisher.table_types import wider

if TYPE_CHECKING:
    from lakemirror.publisher.landing_table import LandingTable, Published

WATERMARK = "_watermark.arrow"


def publish_sql(
    table: LandingTable, url: str, query: str, mode: str | None = None, *, watermark: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Published | None:  # fmt: skip
    """Publishes the rows of a query. Returns None if there is nothing new.

    `url`: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user@host/database`, `duckdb:///file`.
    `mode`: load, insert, update, upsert, delete or snapshot; None: a snapshot if the table has keys, else insert.
    `watermark`: a column of the query; rows with at least its last value are upserted, the first time all rows.
    `progress` is called with the number of rows read so far. Rows are streamed, in bounded memory.
    Errors beside those of `LandingTable`: `sql-driver-missing`, `sql-failed`.
    """
    query = query.strip().rstrip(";")
    table.flush()
    with connected(url, table.zoneless) as database:
        columns = database.columns(query, table.types_before(), table.columns)
        for column in columns:
            if column.warning:
                table.warn(column.warning)
        if watermark is not None:
            return _publish_above(table, database, query, columns, watermark, progress)
        with database.rows(query, columns) as rows:
            watched = _watched(rows, table, progress)
            return publish_rows(table, watched, mode or ("snapshot" if table.keys else "insert"))


@dataclass(frozen=True)
class Watermark:
    """The rows with the highest value that was published, as the query gave them; none before the first."""

    rows: pa.Table
    column: str

    @property
    def value(self) -> pa.Array:
        """The highest value, as an array of one."""
        return self.rows[self.column].combine_chunks().slice(0, 1)


def read_watermark(folder: TableFolder, column: str, query: str) -> Watermark | None:
    """The last watermark of this query; None before the first, and where query or column are others now."""
    try:
        rows = pa.ipc.open_stream(folder.content(WATERMARK)).read_all()
    except (OSError, pa.ArrowException):
        return None
    kept = rows.schema.metadata or {}
    if kept.get(b"query") != _digest(query) or kept.get(b"column") != column.encode() or not rows.num_rows:
        return None
    return Watermark(rows.replace_schema_metadata(None), column)


def _publish_above(
    table: LandingTable, database: SourceDatabase, query: str, columns: Sequence[ReadAs], column: str,
    progress: Callable[[int], None] | None,
) -> Published | None:  # fmt: skip
    numbers, keys = table.known()
    if not keys:
        table.require_keys()
    if column not in {each.column for each in columns}:
        raise LakemirrorError(
            "input-invalid", f"{table.name}: the query has no column {column}", hint="Name a column of the query."
        )
    last = None if table.starts_again else read_watermark(table.place, column, query)
    top = _Highest(last, keys, column)
    bounded, parameters = query, None
    if last is not None:
        bounded = f"select * from ({query}) as q where q.{quoted(column)} >= {database.placeholder}"
        value = last.value
        if _is_instant(value) and any(each.zoneless for each in columns if each.column == column):
            value = local_times(value, zone_of(table.zoneless or UTC))  # as the database has them
        parameters = pa.record_batch([value], names=["0"])
    with database.rows(bounded, columns, parameters) as reader:
        rows = table.take(_watched(reader, table, progress))
        schema = rows.schema if last is None else _schema_of(last.rows.schema, rows.schema)
        new = pa.RecordBatchReader.from_batches(schema, top.seen(rows, table.folder.name))
        if table.starts_again or numbers.newest() == 0:
            published: Published | None = table.load(new)
        else:
            published = table.publish(with_marker(new, UPSERT))
    reach("watermark.before-state")
    if published is not None:
        _write_watermark(table.place, top.rows(), column, query)
    return published


def _is_instant(values: pa.Array) -> bool:
    return bool(pa.types.is_timestamp(values.type) and values.type.tz)


def _schema_of(before: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The given columns in the types they were published in, or in wider ones."""
    known = {field.name: field.type for field in before}
    return pa.schema([field.with_type(wider(known.get(field.name, field.type), field.type)) for field in given])


class _Highest:
    """Passes on rows that were not published yet, batch by batch, and keeps those with the highest value."""

    def __init__(self, last: Watermark | None, keys: tuple[str, ...], column: str) -> None:
        self._last = last
        self._keys = keys
        self._column = column
        self._top: pa.Table | None = None

    def seen(self, rows: pa.RecordBatchReader, table: str) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            part = pa.Table.from_batches([batch])
            if self._last is not None:
                last, part = in_common_types(self._last.rows, part, table)
                part = _unseen(part, last, self._keys)
            self._top = _top_rows(part if self._top is None else pa.concat_tables([self._top, part]), self._column)
            yield from part.to_batches()
        if self._top is None:
            self._top = rows.schema.empty_table()

    def rows(self) -> pa.Table:
        """The rows with the highest value, among them those of before where it is still the same."""
        assert self._top is not None
        if self._last is None:
            return self._top
        before, _ = in_common_types(self._last.rows, self._top, self._column)
        before = before.filter(pc.is_null(positions(before, self._top, self._keys)))
        return _top_rows(pa.concat_tables([before, self._top], promote_options="default"), self._column)


def _top_rows(rows: pa.Table, column: str) -> pa.Table:
    return rows.filter(pc.fill_null(pc.equal(rows[column], pc.max(rows[column])), False))


def _watched(
    reader: pa.RecordBatchReader, table: LandingTable, progress: Callable[[int], None] | None
) -> pa.RecordBatchReader:
    """The same rows; counts them, and takes out the helper column that tells of infinite dates and times."""
    place = reader.schema.get_field_index(INFINITE)
    schema = reader.schema if place < 0 else reader.schema.remove(place)

    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in reader:
            rows += batch.num_rows
            if progress is not None:
                progress(rows)
            if place >= 0:
                if pc.any(batch.column(place)).as_py():
                    table.warn(
                        "infinite dates and times are published as the last, or first, day of the years 1 to 9999"
                    )
                batch = batch.remove_column(place)
            yield batch

    return pa.RecordBatchReader.from_batches(schema, batches())


def _unseen(rows: pa.Table, seen: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    at = positions(rows, seen, keys)
    known = pc.and_(pc.is_valid(at), same_rows(rows, seen, at, keys))
    return rows.filter(pc.invert(known))


def _write_watermark(folder: TableFolder, rows: pa.Table, column: str, query: str) -> None:
    schema = rows.schema.with_metadata({"query": _digest(query), "column": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(rows.replace_schema_metadata(schema.metadata))
    write_whole(folder, WATERMARK, sink.getvalue().to_pybytes())


def _digest(query: str) -> bytes:
    return hashlib.sha256(query.encode()).hexdigest()[:16].encode()
