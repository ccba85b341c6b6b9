"""A SQL Server for tests that has no network: its catalog by the same queries, and Debezium's engine as it behaves.

Values of events are what Debezium's own converters wrote (`tests/unit/capture/recorded_sqlserver.json`); how the engine
behaves is as its source says: SqlServerStreamingChangeEventSource, SqlServerSnapshotChangeEventSource.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakemirror.publisher.capture.debezium import Group
from lakemirror.publisher.capture.sqlserver import sqlserver_catalog, sqlserver_check, sqlserver_source
from lakemirror.publisher.capture.sqlserver.log_positions import text_of

FIRST = 0x0000_9000_0000_0000_0001  # its text is 00009000:00000000:0001: more than 63 bits
CONNECT = {"int": "INT32", "nvarchar": "STRING", "decimal": "STRING", "datetime2": "STRING", "varbinary": "BYTES"}
PREFIX = "io.debezium.connector.common."


class FakeSchema:
    """A schema of Connect's, as far as capture looks at it."""

    def __init__(self, kind: str = "STRUCT", fields: dict[str, FakeSchema] | None = None) -> None:
        self.kind, self._fields = kind, fields or {}

    def equals(self, other: Any) -> bool:
        return isinstance(other, FakeSchema) and repr(self) == repr(other)

    def __repr__(self) -> str:
        return f"{self.kind}{self._fields}"

    def field(self, name: str) -> Any:
        return FakeField(name, self._fields[name]) if name in self._fields else None

    def fields(self) -> list[Any]:
        return [FakeField(name, schema) for name, schema in self._fields.items()]

    def parameters(self) -> None:
        return None

    def type(self) -> Any:
        return self

    def name(self) -> str:
        return self.kind


@dataclass(frozen=True)
class FakeField:
    said: str
    of: FakeSchema

    def name(self) -> str:
        return self.said

    def schema(self) -> FakeSchema:
        return self.of


@dataclass
class FakeTable:
    """`types`: of each column, as the catalog has them: name, length, precision, scale. `instances`: position and
    columns of each change table."""

    number: int
    types: dict[str, tuple[str, int, int, int]]
    key: tuple[str, ...] = ("id",)
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    instances: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    computed: tuple[str, ...] = ()

    def schema(self) -> FakeSchema:
        """Of the events: with the columns of the newest change table."""
        row = FakeSchema("STRUCT", {name: FakeSchema(CONNECT[self.types[name][0]]) for name in self.instances[-1][1]})
        return FakeSchema("STRUCT", {"before": row, "after": row, "op": FakeSchema("STRING")})


Change = tuple[str, str, "dict[str, Any] | None", "dict[str, Any] | None"]


class FakeServer:
    """One database, `shop`. `log`: each transaction with its position."""

    def __init__(self) -> None:
        self.tables: dict[tuple[str, str], FakeTable] = {}
        self.log: list[tuple[int, list[Change]]] = []
        self.position = FIRST
        self.settings = {"cdc": "1", "snapshot": "1", "agent": "4", "cdc_select": "1", "retention": "4320"}
        self.locks: set[str] = set()
        self.chance = random.Random(0)
        self.tag = 0

    def add(self, name: str, number: int, types: dict[str, tuple[str, int, int, int]], **more: Any) -> FakeTable:
        made = self.tables["dbo", name] = FakeTable(number, types, **more)
        made.instances.append((self.position, tuple(types)))
        return made

    def commit(self, *changes: tuple[str, str, dict[str, Any]]) -> int:
        """A transaction of (table, operation, row). An `u` finds the old row by the key."""
        self.position += 0x10_0000
        written: list[Change] = []
        for name, op, row in changes:
            table = self.tables["dbo", name]
            key = tuple(row[column] for column in table.key)
            before = table.rows.get(key)
            if op == "d":
                table.rows.pop(key)
                written.append((name, op, before, None))
            else:
                table.rows[key] = {**(before or {}), **row}
                written.append((name, op, before if op == "u" else None, row))
        self.log.append((self.position, written))
        return self.position

    @contextmanager
    def opened(self, options: Any) -> Iterator[FakeSession]:
        session = FakeSession(self)
        try:
            yield session
        finally:
            self.locks -= session.locks


class FakeSession:
    """Answers the queries of the catalog, of `check`, and of positions."""

    def __init__(self, server: FakeServer) -> None:
        self.server, self.locks = server, set[str]()

    def one(self, query: str, *values: str) -> tuple[str | None, ...] | None:
        return next(iter(self.all(query, *values)), None)

    def all(self, query: str, *values: str) -> list[tuple[str | None, ...]]:
        server, tables = self.server, self.server.tables
        if query == sqlserver_catalog._TABLES:
            return [(s, n, str(t.number), str(len(t.rows)), "1", "me") for (s, n), t in sorted(tables.items())]
        if query == sqlserver_catalog._COLUMNS:
            return [
                (str(t.number), name, str(at), *map(str, kind[1:]), "1" if name in t.computed else "0", kind[0])
                for t in tables.values() for at, (name, kind) in enumerate(t.types.items(), 1)
            ]  # fmt: skip
        if query == sqlserver_catalog._KEYS:
            return [(str(t.number), name) for t in tables.values() for name in t.key]
        if query == sqlserver_catalog._INSTANCES:
            return [
                (str(t.number), f"{start:020X}", name)
                for t in tables.values() for start, names in t.instances for name in names
            ]  # fmt: skip
        if query == sqlserver_source._NOW:
            return [(f"{self.server.position:020X}" if server.log else None,)]
        if query == sqlserver_source._LOCK:
            is_free = values[0] not in server.locks or values[0] in self.locks
            server.locks.add(values[0])
            self.locks |= {values[0]} if is_free else set()
            return [("0" if is_free else "-1",)]
        return self._setting(query, values)

    def _setting(self, query: str, values: Sequence[str]) -> list[tuple[str | None, ...]]:
        said = self.server.settings
        if query == sqlserver_check._AGENT:
            return [(said["agent"],)]
        if query == sqlserver_check._RETENTION:
            return [(said["retention"],)]
        if "is_cdc_enabled" in query:
            return [(said["cdc"],)]
        if "snapshot_isolation_state" in query:
            return [(said["snapshot"], "shop", "me")]
        if "HAS_PERMS_BY_NAME('cdc'" in query:
            return [(said["cdc_select"],)]
        if query.startswith("SELECT OBJECT_ID"):
            found = [t for (s, n), t in self.server.tables.items() if values[0] == f"[{s}].[{n}]"]
            return [(str(found[0].number) if found else None,)]
        if query.startswith("SELECT APPLOCK_TEST"):
            return [("0" if values[0] in self.server.locks else "1",)]
        raise AssertionError(query)


class FakeEngine:
    """As `DebeziumStream`, over a `FakeServer`."""

    server: FakeServer

    def __init__(self, properties: dict[str, str], handler: Callable[[list[Group]], bool]) -> None:
        self._properties, self._handler = properties, handler
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        if self._properties["snapshot.mode"] == "initial_only":
            self._load()
        else:
            self._follow(Path(self._properties["offset.storage.file.filename"]))

    def _names(self) -> list[str]:
        return [each.rpartition("\\.")[2] for each in self._properties["table.include.list"].split(",")]

    def _load(self) -> None:
        (name,) = self._names()
        table = self.server.tables["dbo", name]
        rows = list(table.rows.values())
        for at in range(0, len(rows), 3):
            events = [self._event(name, "r", None, row, self.server.position, 0) for row in rows[at : at + 3]]
            if not self._hand([self._group(name, table, events)]):
                return
        said = {"id": "1", "aggregate_type": "Initial Snapshot", "type": "COMPLETED"}
        schema = FakeSchema("STRUCT", {"id": FakeSchema("STRING")})
        self._hand([Group(f"{PREFIX}Notification", schema, json.dumps(said).encode())])
        self._stopped.wait(20)

    def _follow(self, offsets: Path) -> None:
        done = int(json.loads(offsets.read_text())["commit_lsn"].replace(":", ""), 16)
        names = self._names()
        while not self._stopped.is_set():
            for position, changes in [each for each in self.server.log if each[0] > done]:
                followed = [each for each in changes if each[0] in names]
                if followed and not self._transaction(position, followed):
                    return
                done = position
            done = max(done, self.server.position)
            if not self._hand([self._heartbeat(done, self.server.chance.random() < 0.5)]):
                return
            self._stopped.wait(0.01)

    def _transaction(self, position: int, changes: list[Change]) -> bool:
        orders: dict[str, int] = {}
        for name, op, before, after in changes:
            orders[name] = orders.get(name, 0) + 1
            event = self._event(name, op, before, after, position, orders[name])
            groups = [self._group(name, self.server.tables["dbo", name], [event])]
            if self.server.chance.random() < 0.3:  # within a transaction, with its change's position
                groups.append(self._heartbeat(position, True, "00000001:00000001:0001"))
            if not self._hand(groups):
                return False
        if self.server.chance.random() < 0.5:
            return True  # its end comes late: with a heartbeat of a later position, or never
        end = {"status": "END", "id": text_of(position), "ts_ms": 1_700_000_000_000, "event_count": len(changes)}
        return self._hand([Group(f"{PREFIX}TransactionMetadataValue", FakeSchema(), json.dumps(end).encode())])

    def _heartbeat(self, position: int, is_last: bool, change: str = "NULL") -> Group:
        offset = {"commit_lsn": text_of(position), "change_lsn": change, "event_serial_no": "1"}
        return Group(f"{PREFIX}Heartbeat", FakeSchema(), b'{"ts_ms":1}', offset if is_last else None)

    def _hand(self, groups: list[Group]) -> bool:
        if self._stopped.is_set():
            return False
        self._handler(groups)
        return True

    def _group(self, name: str, table: FakeTable, events: list[str]) -> Group:
        return Group(f"lakemirror_shop.shop.dbo.{name}.Envelope", table.schema(), "\n".join(events).encode())

    def _event(
        self, name: str, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, at: int, order: int
    ) -> str:
        """As the connector's documentation shows an event."""
        source = {"version": "3.6.3.Final", "connector": "sqlserver", "name": "lakemirror_shop", "ts_ms": 1,
                  "db": "shop", "snapshot": "true" if op == "r" else "false", "schema": "dbo", "table": name,
                  "change_lsn": None if op == "r" else "00000027:00000758:0003", "commit_lsn": text_of(at),
                  "event_serial_no": None if op == "r" else 1}  # fmt: skip
        block = None if op == "r" else {"id": text_of(at), "total_order": 1, "data_collection_order": order}
        names = self.server.tables["dbo", name].instances[-1][1]
        sides = [None if side is None else {each: side.get(each) for each in names} for side in (before, after)]
        said = {"before": sides[0], "after": sides[1], "source": source, "op": op, "ts_ms": 1, "transaction": block}
        return json.dumps(said)
