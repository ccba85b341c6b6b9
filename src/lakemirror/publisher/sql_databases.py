"""Databases that a query can be published from: PostgreSQL and SQLite through ADBC, DuckDB by its own module.

URL ─▶ connected: one `SourceDatabase` ─▶ columns of a query, each with how it is read ─▶ rows as a stream
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited.values import BadValue, converted
from lakemirror.publisher.arrow_input import Types
from lakemirror.publisher.sql_types import (
    Digits,
    ReadAs,
    decided,
    duckdb_columns,
    postgres_columns,
    quoted,
    select,
    sqlite_columns,
)

GUESS_ROWS = "65536"  # SQLite columns have no types: the driver goes by so many rows
BATCH_ROWS = 65536
DRIVERS = {
    "sqlite": "adbc_driver_sqlite.dbapi",
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
    "duckdb": "duckdb",
}


@contextmanager
def connected(url: str) -> Iterator[SourceDatabase]:
    """The database behind a URL. `input-invalid`, `sql-driver-missing`, `sql-failed`."""
    scheme = urlsplit(url).scheme
    if scheme not in DRIVERS:
        raise LakemirrorError(
            "input-invalid",
            f"{scheme or url!r} is no known kind of database",
            hint="Use sqlite://, postgresql:// or duckdb://.",
        )
    target = _file_of(url, scheme) if scheme in ("sqlite", "duckdb") else url
    try:
        driver = importlib.import_module(DRIVERS[scheme])
    except ImportError as error:
        raise SetupError(
            "sql-driver-missing", f"the driver {DRIVERS[scheme].partition('.')[0]} is not installed"
        ) from error
    with _failing(driver):
        connection = driver.connect(target, read_only=True) if scheme == "duckdb" else driver.connect(target)
    try:
        kinds = {"sqlite": _Sqlite, "duckdb": _DuckDB}
        yield kinds.get(scheme, _Postgres)(connection, driver)
    finally:
        connection.close()


class SourceDatabase(ABC):
    """An open connection. Whatever the database says is `sql-failed`."""

    placeholder = "?"  # of a query's parameter

    def __init__(self, connection: Any, driver: Any) -> None:
        self.connection = connection
        self.driver = driver

    def columns(self, query: str, chosen: Types) -> list[ReadAs]:
        """How each column of a query is read. `chosen`: types that the user names or that were published before.

        Numbers without a declared precision are looked at once: all values of the query, in the database.
        """
        with _failing(self.driver):
            found = self._columns(query, chosen)
            return [decided(each, self._digits(query, each)) if each.undecided else each for each in found]

    @contextmanager
    def rows(
        self, query: str, columns: Sequence[ReadAs], parameters: pa.RecordBatch | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """The rows as a stream, in the decided types. `value-invalid` where a value does not fit its column's."""
        with self._stream(select(query, columns), parameters) as reader:
            kinds = {each.column: each.kind for each in columns if each.kind is not None}
            fields = [field.with_type(kinds.get(field.name, field.type)) for field in reader.schema]
            schema = pa.schema([field.remove_metadata() for field in fields])
            yield pa.RecordBatchReader.from_batches(schema, self._batches(reader, schema, kinds))

    @abstractmethod
    def _columns(self, query: str, chosen: Types) -> list[ReadAs]: ...

    @abstractmethod
    def _one(self, query: str) -> tuple[Any, ...]: ...

    @abstractmethod
    def _stream(self, query: str, parameters: pa.RecordBatch | None) -> Any: ...

    def _digits(self, query: str, column: ReadAs) -> Digits:
        raise NotImplementedError

    def _batches(
        self, reader: pa.RecordBatchReader, schema: pa.Schema, kinds: dict[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        with _failing(self.driver):
            for batch in reader:
                arrays = [
                    _typed(array, field.type, field.name) if field.name in kinds else array
                    for field, array in zip(schema, batch.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Adbc(SourceDatabase):
    def _one(self, query: str) -> tuple[Any, ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return tuple(cursor.fetchone() or ())

    @contextmanager
    def _stream(self, query: str, parameters: pa.RecordBatch | None) -> Iterator[pa.RecordBatchReader]:
        cursor = self.connection.cursor()
        try:
            with _failing(self.driver):
                self._prepare(cursor)
                cursor.execute(query, parameters)
                reader = cursor.fetch_record_batch()
            yield reader
        finally:
            cursor.close()

    def _prepare(self, cursor: Any) -> None:
        """What a statement needs before it is run."""


class _Postgres(_Adbc):
    placeholder = "$1"

    def _columns(self, query: str, chosen: Types) -> list[ReadAs]:
        with self.connection.cursor() as cursor:
            cursor.execute("set intervalstyle = 'iso_8601'")
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


class _Sqlite(_Adbc):
    def _columns(self, query: str, chosen: Types) -> list[ReadAs]:
        with self.connection.cursor() as cursor:
            cursor.execute(f"create temp view lakemirror_query as {query}")
            cursor.execute("select name, type from pragma_table_info('lakemirror_query')")
            found = [(name, declared or "") for name, declared in cursor.fetchall()]
            cursor.execute("drop view lakemirror_query")
        return sqlite_columns(found, chosen)

    def _prepare(self, cursor: Any) -> None:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": GUESS_ROWS})


class _DuckDB(SourceDatabase):
    def _columns(self, query: str, chosen: Types) -> list[ReadAs]:
        described = self.connection.execute(f"describe {query}").fetchall()
        return duckdb_columns([(name, kind) for name, kind, *_ in described], chosen)

    def _one(self, query: str) -> tuple[Any, ...]:
        return tuple(self.connection.execute(query).fetchone() or ())

    def _digits(self, query: str, column: ReadAs) -> Digits:
        name = quoted(column.column)
        return Digits(self._one(f"select max(length(ltrim({name}::varchar, '-'))) from ({query}) as q")[0], 0)

    @contextmanager
    def _stream(self, query: str, parameters: pa.RecordBatch | None) -> Iterator[pa.RecordBatchReader]:
        values = [column[0].as_py() for column in parameters.columns] if parameters is not None else []
        with _failing(self.driver):
            self.connection.execute("set timezone = 'UTC'")
            found = self.connection.execute(query, values)
            read = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch  # the name before 1.4
            reader = read(BATCH_ROWS)
        yield reader


def _typed(array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """The column's text as values of the type it was decided to have."""
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    named = table_type(kind)
    try:
        if array.type not in (pa.string(), pa.large_string()) or named is None:
            return array.cast(kind)
        return converted(array.cast(pa.string()), named).cast(kind)
    except BadValue as bad:
        raise LakemirrorError(
            "value-invalid",
            f"column {column}: {bad.text[:100]!r} is not {kind}",
            column=column,
            hint=f"Choose a type that holds all values: --column {column}=string, or double; then --recreate.",
        ) from bad


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
        raise LakemirrorError("input-invalid", f"{path}: no such file", file=path)
    return path


@contextmanager
def _failing(driver: Any) -> Iterator[None]:
    try:
        yield
    except LakemirrorError:
        raise
    except (driver.Error, OSError, pa.ArrowException) as error:
        raise LakemirrorError("sql-failed", str(error).strip()) from error


__all__ = ["SourceDatabase", "connected"]
