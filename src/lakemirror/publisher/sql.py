"""Rows of a database as rows to publish: a query through ADBC, as a snapshot or by a watermark.

A watermark is a column that only grows, such as a modification time or a number from a sequence. Each time the query
is asked for rows at or above the last value that was seen; those that were seen with that very value already are left
out. So rows that share a value are not lost, and a query that finds nothing new publishes nothing. The state is
written after its change file: a crash in between publishes some rows a second time, which as upserts do no harm.
What a watermark cannot see: deleted rows, and rows whose transaction ends after younger values were read.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.failpoints import reach
from lakemirror.publisher.change_writer import UPSERT, with_marker
from lakemirror.publisher.files import publish_rows
from lakemirror.publisher.row_keys import positions
from lakemirror.publisher.sequence import write_whole
from lakemirror.publisher.snapshot import in_types_of, same_rows

if TYPE_CHECKING:
    from lakemirror.publisher.landing import LandingTable, Published

WATERMARK = "_watermark.arrow"
GUESS_ROWS = "65536"  # SQLite columns have no types: the driver goes by so many rows
DRIVERS = {"sqlite": "adbc_driver_sqlite", "postgresql": "adbc_driver_postgresql", "postgres": "adbc_driver_postgresql"}


def publish_sql(
    table: LandingTable, url: str, query: str, mode: str | None = None, *, watermark: str | None = None
) -> Published | None:
    """Publishes what a query finds; None where that is nothing new.

    `url`: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user@host/database`. `mode`: as in
    `files.publish_files`; None takes a snapshot where there are keys, else inserts. `watermark`: a column of the
    query; rows at or above the last value are upserted, the first time all. Errors beside those of `LandingTable`:
    `sql-driver-missing`, `sql-failed`.
    """
    query = query.strip().rstrip(";")
    table.flush()
    with _connected(url) as database:
        if watermark is not None:
            return _publish_above(table, database, query, watermark)
        with database.rows(query) as rows:
            return publish_rows(table, rows, mode or ("snapshot" if table.keys else "insert"))


@contextmanager
def query_rows(url: str, query: str) -> Iterator[pa.RecordBatchReader]:
    """The rows of a query, read as they come. Errors: `input-invalid`, `sql-driver-missing`, `sql-failed`."""
    with _connected(url) as database, database.rows(query.strip().rstrip(";")) as reader:
        yield reader


@dataclass(frozen=True)
class Watermark:
    """The rows with the highest value that was published, as the query gave them; none before the first."""

    rows: pa.Table
    column: str

    @property
    def value(self) -> pa.Array:
        """The highest value, as an array of one."""
        return self.rows[self.column].combine_chunks().slice(0, 1)


def read_watermark(folder: Path, column: str, query: str) -> Watermark | None:
    """The last watermark of this query; None before the first, and where query or column are others now."""
    try:
        with pa.memory_map(str(folder / WATERMARK)) as source:
            rows = pa.ipc.open_stream(source).read_all()
    except (OSError, pa.ArrowException):
        return None
    kept = rows.schema.metadata or {}
    if kept.get(b"query") != _digest(query) or kept.get(b"column") != column.encode() or not rows.num_rows:
        return None
    return Watermark(rows.replace_schema_metadata(None), column)


def _publish_above(table: LandingTable, database: _Database, query: str, column: str) -> Published | None:
    numbers, keys = table.opened()
    if not keys:
        table.require_keys()
    last = read_watermark(table.folder, column, query)
    if last is None:
        with database.rows(query) as reader:
            rows = table.take(reader).read_all()
    else:
        quoted = '"' + column.replace('"', '""') + '"'
        bounded = f"select * from ({query}) as q where q.{quoted} >= {database.placeholder}"
        with database.rows(bounded, pa.record_batch([last.value], names=["0"])) as reader:
            rows = in_types_of(last.rows.schema, table.take(reader).read_all(), table.folder.name)
        rows = _unseen(rows, last.rows, keys)
    if column not in rows.column_names:
        raise LakemirrorError(
            "input-invalid", f"{table.name}: the query has no column {column}", hint="Name a column of the query."
        )
    if numbers.newest() == 0:
        published: Published | None = table.load(rows)
    else:
        published = table.publish(with_marker(rows.to_reader(), UPSERT))
    reach("watermark.before-state")
    if published is not None:
        _write_watermark(table.folder, _highest(rows, last, keys, column), column, query)
    return published


def _unseen(rows: pa.Table, seen: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    at = positions(rows, seen, keys)
    known = pc.and_(pc.is_valid(at), same_rows(rows, seen, at, keys))
    return rows.filter(pc.invert(known))


def _highest(rows: pa.Table, last: Watermark | None, keys: tuple[str, ...], column: str) -> pa.Table:
    """The rows with the highest value, among them those of before where it is still the same."""
    if last is not None:
        before = last.rows.filter(pc.is_null(positions(last.rows, rows, keys)))
        rows = pa.concat_tables([before, rows], promote_options="default")
    top = pc.max(rows[column])
    return rows.filter(pc.fill_null(pc.equal(rows[column], top), False))


def _write_watermark(folder: Path, rows: pa.Table, column: str, query: str) -> None:
    schema = rows.schema.with_metadata({"query": _digest(query), "column": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(rows.replace_schema_metadata(schema.metadata))
    write_whole(folder / WATERMARK, sink.getvalue().to_pybytes())


def _digest(query: str) -> bytes:
    return hashlib.sha256(query.encode()).hexdigest()[:16].encode()


@dataclass(frozen=True)
class _Database:
    """An open connection. Whatever the database says is `sql-failed`."""

    connection: Any
    driver: Any
    sqlite: bool

    @property
    def placeholder(self) -> str:
        return "?" if self.sqlite else "$1"

    @contextmanager
    def rows(self, query: str, parameters: pa.RecordBatch | None = None) -> Iterator[pa.RecordBatchReader]:
        cursor = self.connection.cursor()
        try:
            with _failing(self.driver):
                if self.sqlite:
                    cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": GUESS_ROWS})
                cursor.execute(query, parameters)
                reader = cursor.fetch_record_batch()
            yield pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))
        finally:
            cursor.close()

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with _failing(self.driver):
            yield from reader


@contextmanager
def _connected(url: str) -> Iterator[_Database]:
    scheme = urlsplit(url).scheme
    if scheme not in DRIVERS:
        raise LakemirrorError(
            "input-invalid", f"{scheme or url!r} is no known kind of database", hint="Use sqlite:// or postgresql://."
        )
    sqlite = scheme == "sqlite"
    target = _sqlite_file(url) if sqlite else url
    try:
        driver = importlib.import_module(f"{DRIVERS[scheme]}.dbapi")
    except ImportError as error:
        raise SetupError("sql-driver-missing", f"the driver {DRIVERS[scheme]} is not installed") from error
    with _failing(driver):
        connection = driver.connect(target)
    try:
        yield _Database(connection, driver, sqlite)
    finally:
        connection.close()


def _sqlite_file(url: str) -> str:
    """The path behind `sqlite:///…`. A file that is not there is an error, and is not made."""
    path = url.removeprefix("sqlite:").removeprefix("///").removeprefix("//")
    if not Path(path).is_file():
        raise LakemirrorError("input-invalid", f"{path}: no such file", file=path)
    return path


@contextmanager
def _failing(driver: Any) -> Iterator[None]:
    try:
        yield
    except (driver.Error, OSError, pa.ArrowException) as error:
        raise LakemirrorError("sql-failed", str(error).strip()) from error
