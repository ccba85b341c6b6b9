"""Databases that a query can be published from: PostgreSQL through ADBC, SQLite and DuckDB by their own modules.

URL ─▶ connected: one `SourceDatabase` ─▶ columns of a query, each with how it is read ─▶ rows as a stream
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited.values import BadValue, converted
from lakemirror.landing_zone.zoneless import UTC, zone_of
from lakemirror.passwords import without_passwords
from lakemirror.publisher.arrow_input import Types, value_refused
from lakemirror.publisher.exact_values import Refused, cast_exactly, column, declared_column
from lakemirror.publisher.row_readers import converted_rows
from lakemirror.publisher.sources.sql_types import (
    Digits,
    ReadAs,
    decided,
    duckdb_columns,
    postgres_columns,
    quoted,
    select,
    sqlite_columns,
    sqlite_type,
)
from lakemirror.publisher.sources.text_types import hint_for_another_type

BATCH_ROWS = 65536
_PASSWORD_HINT = (
    "Percent-encode special characters of the password (/ is %2F, @ is %40), or leave it out and set PGPASSWORD."
)
DRIVERS = {
    "sqlite": "sqlite3",
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
    "duckdb": "duckdb",
}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {"isolation_level": None, "check_same_thread": False},
    "duckdb": {"read_only": True},
}


@contextmanager
def connected(url: str, zoneless: str = "") -> Iterator[SourceDatabase]:
    """The database behind a URL. `input-invalid`, `sql-driver-missing`, `sql-failed`.

    No message has a part of the URL's password, nor has the cause of an error. `zoneless`: what text without a zone
    is, where a column of text is read as instants.
    """
    scheme = url.partition(":")[0]
    if scheme not in DRIVERS:
        raise LakemirrorError(
            "input-invalid",
            "the URL names no known kind of database",
            hint="Use sqlite://FILE, postgresql://USER@HOST/DATABASE or duckdb://FILE.",
        )
    target = _file_of(url, scheme) if scheme in ("sqlite", "duckdb") else url
    try:
        driver = importlib.import_module(DRIVERS[scheme])
    except ImportError as error:
        raise SetupError(
            "sql-driver-missing", f"the driver {DRIVERS[scheme].partition('.')[0]} is not installed"
        ) from error
    connection = _connection(driver, target, OPTIONS.get(scheme, {}))
    try:
        kinds = {"sqlite": _Sqlite, "duckdb": _DuckDB}
        yield kinds.get(scheme, _Postgres)(connection, driver, zone_of(zoneless or UTC))
    finally:
        connection.close()


def _connection(driver: Any, target: str, options: Mapping[str, Any]) -> Any:
    """An open connection. What the driver says is raised outside its handler, so that it is no error's context."""
    try:
        return driver.connect(target, **options)
    except (driver.Error, OSError, pa.ArrowException, ValueError) as error:
        said = str(error).strip()
    shown = without_passwords(said, target)
    raise LakemirrorError("sql-failed", shown, hint=None if shown == said else _PASSWORD_HINT)


class SourceDatabase(ABC):
    """An open connection. Whatever the database says is `sql-failed`."""

    placeholder = "?"  # of a query's parameter

    def __init__(self, connection: Any, driver: Any, zone: str) -> None:
        self.connection, self.driver, self.zone = connection, driver, zone

    def columns(self, query: str, before: Types, declared: Types | None = None) -> list[ReadAs]:
        """How each column of a query is read. `before`: types that were published; `declared`: that the user names.

        Columns whose declaration leaves the type open are looked at once: all values of the query, in the database.
        """
        declared = declared or {}
        with _failing(self.driver):
            found = self._columns(query, {**before, **declared}, declared)
            return [self._decided(query, each) if each.undecided else each for each in found]

    @abstractmethod
    def rows(
        self, query: str, columns: Sequence[ReadAs], parameters: pa.RecordBatch | None = None
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """The rows as a stream, in the decided types. `value-invalid` where a value does not fit its column's."""

    @abstractmethod
    def _columns(self, query: str, chosen: Types, declared: Collection[str]) -> list[ReadAs]: ...

    @abstractmethod
    def _decided(self, query: str, column: ReadAs) -> ReadAs: ...


class _ArrowDatabase(SourceDatabase):
    """A database whose driver hands over Arrow batches."""

    @contextmanager
    def rows(
        self, query: str, columns: Sequence[ReadAs], parameters: pa.RecordBatch | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        with self._stream(select(query, columns), parameters) as reader:
            kinds = {each.column: each.kind for each in columns if each.kind is not None}
            fields = [field.with_type(kinds.get(field.name, field.type)) for field in reader.schema]
            schema = pa.schema([field.remove_metadata() for field in fields])
            yield pa.RecordBatchReader.from_batches(schema, self._batches(reader, schema, kinds))

    def _decided(self, query: str, column: ReadAs) -> ReadAs:
        return decided(column, self._digits(query, column))

    @abstractmethod
    def _stream(self, query: str, parameters: pa.RecordBatch | None) -> AbstractContextManager[Any]: ...

    @abstractmethod
    def _digits(self, query: str, column: ReadAs) -> Digits: ...

    def _batches(
        self, reader: pa.RecordBatchReader, schema: pa.Schema, kinds: dict[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        def convert(batch: pa.RecordBatch, rows: int) -> list[pa.Array]:
            return [
                _typed(array, field.type, field.name, rows) if field.name in kinds else array
                for field, array in zip(schema, batch.columns, strict=True)
            ]

        with _failing(self.driver):
            yield from converted_rows(reader, schema, convert)


class _Postgres(_ArrowDatabase):
    placeholder = "$1"

    def _one(self, query: str) -> tuple[Any, ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return tuple(cursor.fetchone() or ())

    @contextmanager
    def _stream(self, query: str, parameters: pa.RecordBatch | None) -> Iterator[pa.RecordBatchReader]:
        cursor = self.connection.cursor()
        try:
            with _failing(self.driver):
                cursor.execute(query, parameters)
                reader = cursor.fetch_record_batch()
            yield reader
        finally:
            cursor.close()

    def _columns(self, query: str, chosen: Types, declared: Collection[str]) -> list[ReadAs]:
        with self.connection.cursor() as cursor:
            for setting in ("intervalstyle = 'iso_8601'", "datestyle = 'ISO'", "timezone = 'UTC'"):
                cursor.execute(f"set {setting}")
            schema = cursor.adbc_execute_schema(query)
        return postgres_columns([(field.name, *self._type_of(field)) for field in schema], chosen)

    def _type_of(self, field: pa.Field) -> tuple[str, int]:
        """The type's name, `enum` and `struct` for what they are, `_name` for an array of name; its modifier."""
        kept = {name.decode(): value.decode() for name, value in (field.metadata or {}).items()}
        named = kept.get("POSTGRESQL:type") or kept.get("ADBC:postgresql:typname") or _name_of(field.type)
        if named == "numeric" or named.startswith("_") or isinstance(field.type, pa.ListType):
            return named if named == "numeric" else f"_{named.lstrip('_')}", int(kept.get("POSTGRESQL:typmod", -1))
        oid = named.removeprefix("unnamed<oid:").removesuffix(">")
        where = f"oid = {int(oid)}" if oid.isdigit() else "typname = '" + named.replace("'", "''") + "'"
        query = f"select typname::text, typtype::text, typcategory::text from pg_type where {where} limit 1"
        found = self._one(query)
        if not found:
            return named, -1
        name, kind, category = found
        return {"e": "enum", "c": "struct"}.get(kind, f"_{name.lstrip('_')}" if category == "A" else name), -1

    def _digits(self, query: str, column: ReadAs) -> Digits:
        name = quoted(column.column)
        odd = f"{name}::text in ('NaN', 'Infinity', '-Infinity')"
        before, behind, is_odd = self._one(
            f"select max(length(trunc(abs({name}))::text)) filter (where not ({odd})), max(scale({name})), "
            f"bool_or({odd}) from ({query}) as q"
        )
        return Digits(before, behind, bool(is_odd))


class _Sqlite(SourceDatabase):
    """Each value has a type of its own in SQLite: it must be one of the column's, or its row is refused."""

    def _columns(self, query: str, chosen: Types, declared: Collection[str]) -> list[ReadAs]:
        self.connection.execute(f"create temp view lakemirror_query as {query}")
        found = self.connection.execute("select name, type from pragma_table_info('lakemirror_query')").fetchall()
        self.connection.execute("drop view lakemirror_query")
        names = [name for name, _ in found]
        if any(re.search(r":\d+$", name) for name in names):  # a view calls a second id `id:1`
            names = [name for name, *_ in self.connection.execute(query).description]
        return sqlite_columns(
            [(name, kind or "") for name, (_, kind) in zip(names, found, strict=True)], chosen, declared
        )

    def _decided(self, query: str, column: ReadAs) -> ReadAs:
        kinds = self.connection.execute(f"select distinct typeof({quoted(column.column)}) from ({query}) as q")
        return replace(column, kind=sqlite_type({kind for (kind,) in kinds}), undecided=False)

    @contextmanager
    def rows(
        self, query: str, columns: Sequence[ReadAs], parameters: pa.RecordBatch | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        values = [column[0].as_py() for column in parameters.columns] if parameters is not None else []
        bound = [value if isinstance(value, int | float | bytes) else str(value) for value in values]
        schema = pa.schema([(each.column, each.kind) for each in columns])
        with _failing(self.driver):
            cursor = self.connection.execute(query, bound)
        try:
            yield pa.RecordBatchReader.from_batches(schema, self._read(cursor, columns, schema))
        finally:
            cursor.close()

    def _read(self, cursor: Any, columns: Sequence[ReadAs], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        before = 0
        with _failing(self.driver):
            while rows := cursor.fetchmany(BATCH_ROWS):
                values = zip(*rows, strict=True)
                arrays = [
                    _of_sqlite(each, found, before, self.zone) for each, found in zip(columns, values, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                before += len(rows)


class _DuckDB(_ArrowDatabase):
    def _columns(self, query: str, chosen: Types, declared: Collection[str]) -> list[ReadAs]:
        described = self.connection.execute(f"describe {query}").fetchall()
        return duckdb_columns([(name, kind) for name, kind, *_ in described], chosen)

    def _digits(self, query: str, column: ReadAs) -> Digits:
        longest = f"max(length(ltrim({quoted(column.column)}::varchar, '-')))"
        return Digits(self.connection.execute(f"select {longest} from ({query}) as q").fetchone()[0], 0)

    @contextmanager
    def _stream(self, query: str, parameters: pa.RecordBatch | None) -> Iterator[pa.RecordBatchReader]:
        values = [column[0].as_py() for column in parameters.columns] if parameters is not None else []
        with _failing(self.driver):
            self.connection.execute("set timezone = 'UTC'")
            found = self.connection.execute(query, values)
            read = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch  # the name before 1.4
            reader = read(BATCH_ROWS)
        yield reader


def _of_sqlite(read: ReadAs, values: Sequence[Any], rows_before: int, zone: str) -> pa.Array:
    """The values of one column, which SQLite has as integers, floats, text or bytes."""
    if read.any_as_text:
        values = [str(value) if isinstance(value, int | float) else value for value in values]
    is_text = read.kind in (pa.string(), pa.large_string())
    try:
        return column(values, read.kind) if is_text else declared_column(values, read.kind, zone=zone)
    except Refused as refused:
        hint = (
            f"Correct the value; or convert it in the query; or publish the column as text: "
            f"--column {read.column}=string --recreate."
        )
        raise value_refused(refused, read.column, rows_before, hint=hint) from refused


def _typed(array: pa.Array, kind: pa.DataType, column: str, rows_before: int) -> pa.Array:
    """The column's text as values of the type it was decided to have."""
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    named = table_type(kind)
    hint = hint_for_another_type(column)
    try:
        if array.type not in (pa.string(), pa.large_string()) or named is None:
            return cast_exactly(array, kind)
        return converted(array.cast(pa.string()), named).cast(kind)
    except Refused as refused:
        raise value_refused(refused, column, rows_before, hint=hint) from refused
    except BadValue as bad:
        reason = f"{bad.text[:100]!r} is not {kind}"
        raise value_refused(Refused(bad.place, reason), column, rows_before, hint=hint) from bad


def _name_of(kind: pa.DataType) -> str:
    """PostgreSQL's name of a type, where an older driver does not tell it."""
    t = pa.types
    if t.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if isinstance(kind, pa.BaseExtensionType):
        return "uuid" if kind.extension_name == "arrow.uuid" else "json"
    named = ((t.is_date, "date"), (t.is_interval, "interval"), (t.is_nested, "struct"))
    return next((name for is_kind, name in named if is_kind(kind)), "text")


def _file_of(url: str, scheme: str) -> str:
    """The path behind `sqlite:///…`. A file that is not there is an error, and is not made."""
    path = url.removeprefix(f"{scheme}:").removeprefix("///").removeprefix("//")
    if not Path(path).is_file():
        shown = without_passwords(path, url)
        raise LakemirrorError("input-invalid", f"{shown}: no such file", file=shown)
    return path


@contextmanager
def _failing(driver: Any) -> Iterator[None]:
    try:
        yield
    except LakemirrorError:
        raise
    except (driver.Error, getattr(driver, "Warning", driver.Error), OSError, pa.ArrowException) as error:
        raise LakemirrorError("sql-failed", str(error).strip()) from error
