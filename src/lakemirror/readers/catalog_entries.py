"""A database's tables as entries of a catalog of the user's: Hive's metastore, Unity Catalog, any that Spark knows.

the Delta tables there are + the catalog's entries ─▶ what is missing, elsewhere or too many ─▶ make, drop

An entry is ours if its comment names this database and its location is below this database's `Tables/`. No other entry
is ever changed or dropped: decision 056 says why this is the mark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakemirror.errors import LakemirrorError
from lakemirror.readers.table_readers import ReadableTable

Name = tuple[str, str]  # namespace and table


@dataclass
class Registered:
    """What one registration did.

    `names`: the catalog's name of each table that has an entry now, by the table's name. `created`, `changed`,
    `dropped`: names in the catalog. `failed`: the error of each table that has no right entry, by the table's name; of
    an entry that could not be dropped, by its name in the catalog. `unread`: namespaces that may not be listed, with
    the reason; an old entry in one stays.
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
class Entry:
    """One entry of a catalog. `name`: as the catalog spells it. `kind`: in lower case, such as `view`.

    `columns`: as `Catalog.columns` has them.
    """

    name: Name
    kind: str
    comment: str
    location: str
    columns: str = ""


class Catalog(Protocol):
    """A catalog of the user's. Each call may raise LakemirrorError `catalog-refused`."""

    name: str

    def namespaces(self) -> set[str]: ...

    def entries(self, namespace: str) -> list[Entry]:
        """Every entry of a namespace, also of a table whose folder is gone."""

    def columns(self, path: str) -> str:
        """What the entry of the table at `path` must say of its columns; empty where a catalog does not keep them."""

    def make_namespace(self, namespace: str) -> None: ...

    def make(self, name: Name, path: str, comment: str) -> None:
        """Makes an external table of the Delta table at `path`."""

    def set_columns(self, name: Name, path: str) -> bool:
        """Gives an entry the columns of the table at `path`; False where the catalog cannot: it is made again."""

    def drop(self, name: Name) -> None:
        """Drops an external table: its files stay."""


def register(catalog: Catalog, database: str, tables: Iterable[ReadableTable], schema: str) -> Registered:
    """Makes the catalog's entries of a database those of its tables.

    `database`: its absolute place. A table of a named schema, such as `sales.customers`, is in the namespace `sales`, a
    table without one in `schema`. Run again, it does nothing. An error of one table is in the result. LakemirrorError
    `catalog-refused` if the catalog cannot be listed.
    """
    return _Registration(catalog, database.rstrip("/")).make(list(tables), schema)


class _Registration:
    def __init__(self, catalog: Catalog, database: str) -> None:
        self._catalog, self._database = catalog, database
        self._mark = f"Mirrored by lakemirror from {' '.join(database.split())}"
        self._done = Registered()

    def make(self, tables: list[ReadableTable], schema: str) -> Registered:
        names = {table.name: _name_of(table.name, schema) for table in tables}
        times = Counter(map(_folded, names.values()))
        namespaces = self._catalog.namespaces()
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
                    self._catalog.make_namespace(name[0])
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

    def _entries(self, namespaces: Iterable[str], needed: set[str]) -> dict[Name, Entry]:
        found = {}
        for namespace in sorted(namespaces):
            try:
                found.update({_folded(each.name): each for each in self._catalog.entries(namespace)})
            except LakemirrorError as error:
                self._done.unread[namespace.lower() if namespace.lower() in needed else namespace] = error.message
        return found

    def _bring(self, path: str, name: Name, entry: Entry | None) -> None:
        """Makes the entry one of this place and these columns."""
        if entry is not None and not self._is_ours(entry):
            is_table = entry.location and entry.kind != "view"
            what = f"a table at {comparable(entry.location)}" if is_table else f"a {entry.kind}"
            raise LakemirrorError("catalog-name-taken", f"{self._full(name)} is {what} that lakemirror did not make")
        moved = entry is None or comparable(entry.location) != comparable(path)
        if entry is not None and not moved and entry.columns == self._catalog.columns(path):
            return
        if entry is None or moved or not self._catalog.set_columns(entry.name, path):
            if entry is not None:
                self._catalog.drop(entry.name)
            self._catalog.make(name, path, self._mark)
        (self._done.created if entry is None else self._done.changed).append(self._full(name))

    def _drop(self, entry: Entry) -> None:
        name = self._full(entry.name)
        try:
            self._catalog.drop(entry.name)
            self._done.dropped.append(name)
        except LakemirrorError as error:
            self._done.failed[name] = error

    def _is_ours(self, entry: Entry) -> bool:
        below = f"{comparable(self._database)}/Tables/"
        return entry.comment == self._mark and comparable(entry.location).startswith(below)

    def _full(self, name: Name) -> str:
        return ".".join((self._catalog.name, *name))


def comparable(place: str) -> str:
    """A place as it compares with another spelling of it: Spark writes `file:/shop` for `/shop`."""
    return re.sub("^file:/+", "/", re.sub("^s3[an]:", "s3:", place)).rstrip("/")


def _name_of(table: str, schema: str) -> Name:
    namespace, _, name = table.rpartition(".")
    return namespace or schema, name


def _folded(name: Name) -> Name:
    """In lower case: catalogs do not tell `Orders` from `orders`."""
    return name[0].lower(), name[1].lower()
