"""A database's tables as entries of the catalog of a Spark session: Hive's metastore, or any catalog that Spark knows.

the Delta tables there are + the catalog's entries ─▶ what is missing, elsewhere or too many ─▶ CREATE TABLE, DROP TABLE

An entry is ours if its comment names this database and its location is below this database's `Tables/`. No other entry
is ever changed or dropped: decision 056 says why this is the mark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError
from lakemirror.readers.table_readers import ReadableTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Name = tuple[str, str]  # namespace and table, in lower case: catalogs do not tell `Orders` from `orders`


@dataclass
class Registered:
    """What one registration did.

    `names`: the catalog's name of each table that has an entry now, by the table's name. `created`, `changed`,
    `dropped`: names in the catalog. `failed`: the error of each table that has no right entry, by the table's name; of
    an entry that could not be dropped, by its name in the catalog. `unread`: namespaces that this session may not list,
    with the reason; an old entry in one stays.
    """

    names: dict[str, str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    failed: dict[str, LakemirrorError] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As `lakemirror register --json` prints it."""
        failed = {name: {"code": each.code, "message": each.message} for name, each in self.failed.items()}
        return vars(self) | {"failed": failed}


@dataclass(frozen=True)
class _Entry:
    """One entry of the catalog. `name`: its namespace and table, as the catalog spells them."""

    name: _Name
    comment: str
    location: str
    what: str


def register(
    spark: SparkSession, database: str, tables: Iterable[ReadableTable], *, schema: str, catalog: str = ""
) -> Registered:
    """Makes the catalog's entries of a database those of its tables.

    `database`: its absolute place. A table of a named schema, such as `sales.customers`, is in the namespace `sales`, a
    table without one in `schema`. `catalog`: empty: the session's current one. Run again, it does nothing. An error of
    one table is in the result. LakemirrorError `catalog-refused` if the catalog cannot be listed.
    """
    return _Registration(spark, database.rstrip("/"), catalog).make(list(tables), schema)


class _Registration:
    def __init__(self, spark: SparkSession, database: str, catalog: str) -> None:
        self._spark, self._database = spark, database
        self._mark = f"Mirrored by lakemirror from {' '.join(database.split())}"
        self._done = Registered()
        self._catalog = catalog or str(self._sql("SELECT current_catalog()")[0][0])

    def make(self, tables: list[ReadableTable], schema: str) -> Registered:
        names = {table.name: _name_of(table.name, schema) for table in tables}
        times = Counter(map(_folded, names.values()))
        namespaces = {str(row[0]) for row in self._sql(f"SHOW NAMESPACES IN {_quoted(self._catalog)}")}
        entries = self._entries(namespaces, {_folded(name)[0] for name in names.values()})
        present = {each.lower() for each in namespaces}
        for table in tables:
            name = names[table.name]
            try:
                if table.error:
                    raise LakemirrorError("table-unreadable", f"{table.name}: {table.error}", table=table.name)
                if times[_folded(name)] > 1:
                    same = [other for other, its in names.items() if _folded(its) == _folded(name)]
                    raise LakemirrorError(
                        "catalog-name-taken", f"{' and '.join(same)} have one name in the catalog, {self._full(name)}"
                    )
                if name[0].lower() in map(str.lower, self._done.unread):
                    raise LakemirrorError("catalog-refused", self._done.unread[name[0].lower()], table=table.name)
                if name[0].lower() not in present:
                    self._sql(f"CREATE SCHEMA IF NOT EXISTS {_quoted(self._catalog, name[0])}")
                    present.add(name[0].lower())
                self._bring(table.path, name, entries.get(_folded(name)))
                self._done.names[table.name] = self._full(name)
            except LakemirrorError as error:
                self._done.failed[table.name] = error
        wanted = {_folded(name) for name in names.values()}
        for key, entry in entries.items():
            if key not in wanted and self._is_ours(entry):
                self._drop(entry)
        return self._done

    def _entries(self, namespaces: Iterable[str], needed: set[str]) -> dict[_Name, _Entry]:
        """Every entry of the catalog, by its name; of a table whose folder is gone, too: Spark opens none of them."""
        found = {}
        for namespace in sorted(namespaces):
            try:
                rows = self._sql(f"SHOW TABLE EXTENDED IN {_quoted(self._catalog, namespace)} LIKE '*'")
            except LakemirrorError as error:
                key = namespace.lower() if namespace.lower() in needed else namespace
                self._done.unread[key] = error.message
                continue
            for row in rows:
                if not row["isTemporary"]:
                    entry = _entry(namespace, row["tableName"], row["information"])
                    found[_folded(entry.name)] = entry
        return found

    def _bring(self, path: str, name: _Name, entry: _Entry | None) -> None:
        """Makes the entry one of this place."""
        if entry is not None and not self._is_ours(entry):
            raise LakemirrorError(
                "catalog-name-taken", f"{self._full(name)} is {entry.what} that lakemirror did not make"
            )
        if entry is not None and entry.location == _comparable(path):
            return
        if entry is not None:
            self._sql(f"DROP TABLE {_quoted(self._catalog, *entry.name)}")
        title = _quoted(self._catalog, *name)
        self._sql(f"CREATE TABLE {title} USING delta COMMENT {_text(self._mark)} LOCATION {_text(path)}")
        (self._done.created if entry is None else self._done.changed).append(self._full(name))

    def _drop(self, entry: _Entry) -> None:
        name = self._full(entry.name)
        try:
            self._sql(f"DROP TABLE {_quoted(self._catalog, *entry.name)}")
            self._done.dropped.append(name)
        except LakemirrorError as error:
            self._done.failed[name] = error

    def _is_ours(self, entry: _Entry) -> bool:
        return entry.comment == self._mark and entry.location.startswith(f"{_comparable(self._database)}/Tables/")

    def _full(self, name: _Name) -> str:
        return ".".join((self._catalog, *name))

    def _sql(self, statement: str) -> list[Any]:
        try:
            return self._spark.sql(statement).collect()
        except Exception as error:  # Spark has no class for what its catalogs refuse
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise LakemirrorError("catalog-refused", f"the catalog refused `{statement}`: {first}") from error


def _name_of(table: str, schema: str) -> _Name:
    namespace, _, name = table.rpartition(".")
    return namespace or schema, name


def _folded(name: _Name) -> _Name:
    return name[0].lower(), name[1].lower()


def _entry(namespace: str, table: str, information: str) -> _Entry:
    """An entry from the text of `SHOW TABLE EXTENDED`: a line for each fact, such as `Comment: …`."""
    told: dict[str, str] = {}
    for line in information.splitlines():
        key, _, value = line.partition(": ")
        told.setdefault(key, value)
    location = told.get("Location", "")
    kind = told.get("Type", "entry").lower()
    what = f"a {kind}" if kind == "view" or not location else f"a table at {location}"
    return _Entry((namespace, table), told.get("Comment", ""), _comparable(location), what)


def _comparable(place: str) -> str:
    """A place as it compares with another spelling of it: Spark writes `file:/shop` for `/shop`."""
    return re.sub("^file:/+", "/", re.sub("^s3[an]:", "s3:", place)).rstrip("/")


def _quoted(*parts: str) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
