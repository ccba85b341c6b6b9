"""SQL over the mirrored tables of a database, by DuckDB, which is an extra: `lakemirror[query]`.

    tables ─▶ one version of each ─▶ views in DuckDB ─▶ the statement

Every table has one version for the whole statement: the newest when it began, or that of a cut. Starts no JVM.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from lakemirror.api import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.protocol import MAPPING
from lakemirror.errors import LakemirrorError
from lakemirror.readers.table_readers import readable_tables
from lakemirror.storage.place import Place, local_path, place

if TYPE_CHECKING:
    import duckdb

Format: TypeAlias = Literal["table", "csv", "json", "parquet"]

_DECODED = re.compile(r"\\|%[0-9A-Fa-f]{2}")

_COPY = {"csv": "FORMAT csv, HEADER", "json": "FORMAT json, ARRAY true", "parquet": "FORMAT parquet"}


@dataclass(frozen=True)
class QueriedTable:
    """One table of a query. `reason`: why the query cannot read it; empty where it can."""

    name: str
    path: str
    version: int
    reason: str = ""


def tables_to_query(database: str | os.PathLike[str] | Place, cut: str = "") -> list[QueriedTable]:
    """The tables of a database as a query sees them. `cut`: `last` or a number; empty: each as it is now.

    LakemirrorError `database-missing`, `cut-unknown`.
    """
    found = {table.name: table for table in readable_tables(database)}
    if not cut:
        return [
            QueriedTable(table.name, table.path, table.version, table.error or _reason(table.path, table.version))
            for table in found.values()
        ]
    versions = MirroredDatabase(database).cut(cut).versions
    return [
        QueriedTable(name, found[name].path, version, _reason(found[name].path, version))
        for name, version in versions.items()
        if name in found
    ] + [
        QueriedTable(table.name, table.path, 0, f"cut {cut} has no version of it")
        for table in found.values()
        if table.name not in versions
    ]


class Query:
    """A connection of DuckDB that has the tables as views: `orders`, `sales.orders`. Use it as a context manager."""

    def __init__(self, tables: list[QueriedTable], storage_options: Mapping[str, str] | None = None) -> None:
        """LakemirrorError `query-extra-missing`, `query-failed`."""
        self.left_out: dict[str, str] = {table.name: table.reason for table in tables if table.reason}
        self._duckdb = _connected()
        remote = [table.path for table in tables if local_path(table.path) is None]
        if any(not path.startswith("s3://") for path in remote):
            self._duckdb.close()
            raise LakemirrorError("query-failed", "queries reach tables in folders and on S3, not in this store")
        if remote:
            self._reach_stores(storage_options or {})
        for table in tables:
            if not table.reason:
                self._add(table)

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self._duckdb.close()

    def text(self, statement: str) -> str:
        """The result as a table for people; at most some forty rows of it. LakemirrorError `query-failed`."""
        result = self._run(lambda: self._duckdb.sql(statement))
        return "" if result is None else str(self._run(lambda: str(result)))

    def copy(self, statement: str, target: str, form: Format) -> None:
        """Writes the complete result. `target`: a path, or `/dev/stdout`. LakemirrorError `query-failed`."""
        inner = statement.strip().rstrip(";")
        self._run(lambda: self._duckdb.execute(f"COPY (\n{inner}\n) TO {_literal(target)} ({_COPY[form]})"))

    def _add(self, table: QueriedTable) -> None:
        import duckdb

        schema, _, name = table.name.rpartition(".")
        full = f"{_name(schema)}.{_name(name)}" if schema else _name(name)
        try:
            if schema:
                self._duckdb.execute(f"CREATE SCHEMA IF NOT EXISTS {_name(schema)}")
            scan = f"delta_scan({_literal(_address(table.path))}, version = {table.version})"
            self._duckdb.execute(f"CREATE VIEW {full} AS SELECT * FROM {scan}")
        except duckdb.Error as error:
            self.left_out[table.name] = str(error).splitlines()[0]

    def _reach_stores(self, options: Mapping[str, str]) -> None:
        given = {name.upper(): value for name, value in options.items()}
        endpoint = given.get("AWS_ENDPOINT_URL", "")
        values = {
            "KEY_ID": given.get("AWS_ACCESS_KEY_ID"), "SECRET": given.get("AWS_SECRET_ACCESS_KEY"),
            "SESSION_TOKEN": given.get("AWS_SESSION_TOKEN"),
            "REGION": given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION"),
            "ENDPOINT": endpoint.partition("://")[2], "URL_STYLE": "path" if endpoint else None,
            "USE_SSL": "false" if endpoint.startswith("http://") else None,
        }  # fmt: skip
        secret = ", ".join(f"{name} {_literal(value)}" for name, value in values.items() if value)
        _load(self._duckdb, "httpfs")
        self._run(lambda: self._duckdb.execute(f"CREATE SECRET (TYPE s3{', ' if secret else ''}{secret})"))

    def _run(self, act: Any) -> Any:
        import duckdb

        try:
            return act()
        except duckdb.Error as error:
            message = " ".join(str(error).split())  # one line
            told = [f"{name} ({why})" for name, why in self.left_out.items() if name.rpartition(".")[2] in message]
            more = f". Not among the tables: {', '.join(told)}" if told else ""
            raise LakemirrorError("query-failed", f"{message}{more}") from None


def _connected() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise LakemirrorError("query-extra-missing", "queries need DuckDB") from error
    connection = duckdb.connect()
    _load(connection, "delta")
    return connection


def _load(connection: duckdb.DuckDBPyConnection, extension: str) -> None:
    """Loads an extension: that of its package, which needs no network, else as DuckDB does."""
    import importlib.util

    import duckdb

    found = importlib.util.find_spec(f"duckdb_extension_{extension}")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    files = [path for folder in folders for path in Path(folder).rglob("*.duckdb_extension")]
    try:
        connection.execute(f"LOAD {_literal(str(files[0]))}" if files else f"INSTALL {extension}; LOAD {extension}")
    except duckdb.Error as error:
        message = f"DuckDB's extension {extension} cannot be loaded: {str(error).splitlines()[0]}"
        raise LakemirrorError("query-extra-missing", message) from None


def _address(path: str) -> str:
    """How DuckDB is given a folder: as a URL, because it cuts some paths with letters outside ASCII too short."""
    return path if local_path(path) is None else f"file://{quote(path)}"


def _reason(path: str, version: int) -> str:
    """Why the query cannot read this version, or DuckDB would give wrong rows.

    DuckDB opens another folder for some paths, and reads NULL for partition columns of tables with column mapping.
    """
    if local_path(path) is not None and _DECODED.search(path):
        return "its path has a backslash, or a percent sign before two digits, which DuckDB reads as another path"
    where: Place = place(path)
    try:
        snapshot = read_snapshot(where, version)
    except (LakemirrorError, OSError) as error:
        return str(error)
    if snapshot is None or not snapshot.metadata.partition_columns:
        return ""
    if snapshot.metadata.configuration.get(MAPPING, "none") == "none":
        return ""
    return "it has partitions and column mapping, which DuckDB reads as NULL"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
