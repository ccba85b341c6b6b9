"""PostgreSQL's log of changes: publication, main slot, and what Debezium must know to read them.

Positions are LSNs as numbers. The slot is confirmed only by Debezium's stream, and only when a handler says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.publisher.capture.change_folding import UNSENT
from lakemirror.publisher.capture.change_handler import Exchanged
from lakemirror.publisher.capture.debezium import HEAP, DebeziumStream, Group
from lakemirror.publisher.capture.java_lines import LEAN_SOURCE
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.postgresql.slot import SlotReport, read_slot
from lakemirror.publisher.capture.postgresql.types import EVENT_PROPERTIES
from lakemirror.publisher.capture.source_interface import Log, Step
from lakemirror.publisher.capture.source_pulse import HEARTBEAT
from lakemirror.publisher.sources.sql_types import quoted

_PREFIX = "lakemirror"  # of messages in the log
_NUMBER = "({} - '0/0')::bigint"
_SLOT_IS_FREE = 30.0  # seconds that a stream that failed has to give the slot back
_LEFT_OUT: dict[int, _TooLarge] = {}  # by the number of the table: what this process cannot hold
# names are of their time, as Debezium has them
_LARGEST = """
with message as (
    select lsn - '0/0' as place, xid, data, chr(get_byte(data, 0)) as kind, length(data) as size,
        case when chr(get_byte(data, 0)) in ('I', 'U', 'D', 'R') then get_byte(data, 1)::bigint << 24
        | get_byte(data, 2) << 16 | get_byte(data, 3) << 8 | get_byte(data, 4) end as relation
    from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', 'publication_names', %s))
select change.relation, change.size, ended.place::bigint,
    array(select described.data from message described where described.kind = 'R')
from message change join message ended on ended.xid = change.xid and ended.kind = 'C'
left join unnest(%s::bigint[], %s::bigint[]) as known(relation, until) on known.relation = change.relation
where change.kind in ('I', 'U', 'D') and ended.place > coalesce(known.until, 0)
order by change.size desc limit 1
"""


@dataclass(frozen=True)
class _TooLarge:
    """A change of a table that does not fit into the stream's memory. `names`: those that the table has in the log;
    `until`: the slot gives it until it is confirmed up to here."""

    names: frozenset[Table]
    size: int
    until: int

    def error(self, table: Table) -> TableError:
        """For the table under the name that it has now."""
        name = ".".join(table)
        return TableError(
            "capture-value",
            f"{name}: a change that takes {self.size >> 20:,} MiB in the log is too large for the stream's memory of "
            f"{HEAP}",
            hint=f"Make the value smaller or leave the table out, then load it again: --reload {name}.",
            table=name,
        )


class ChangeLog(Log):
    """The log as one capture reads it. `connection`: psycopg's, with autocommit."""

    def __init__(self, connection: Any, slot: str) -> None:
        self._connection = connection
        self._slot = slot

    def slot(self) -> SlotReport | None:
        """The main slot; None where there is none."""
        return read_slot(self._connection, self._slot)

    def drop_slot(self) -> None:
        """Gives the slot back."""
        self._one("select pg_drop_replication_slot(%s)", self._slot)

    def make(self) -> SlotReport:
        """Makes the publication, empty, and the slot behind it, so that every change in the slot can be decoded."""
        if not self.has_publication():
            self._run(f'create publication "{self._slot}" with (publish_via_partition_root = true)')
        found = self.slot()
        if found is None:
            if self._one("select 1 from pg_replication_slots where slot_name = %s", self._slot) is not None:
                raise LakemirrorError("capture-taken", f"the slot {self._slot!r} is of another database of this server")
            made = "pg_create_logical_replication_slot(%s, 'pgoutput'"
            failover = ", failover => true" if self._connection.info.server_version >= 170000 else ""
            self._run(f"select {made}{failover})", self._slot)
            found = self.slot()
        assert found is not None
        return found

    def has_publication(self) -> bool:
        """True if the publication is there: without it the slot cannot be read."""
        return self._one("select 1 from pg_publication where pubname = %s", self._slot) is not None

    def published(self, said: Mapping[str, Any] | None = None) -> set[tuple[str, str]]:
        """The tables of the publication: of others the slot has no changes."""
        return set(
            self._all(
                "select n.nspname, c.relname from pg_publication_rel r join pg_publication p on p.oid = r.prpubid "
                "join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace "
                "where p.pubname = %s",
                self._slot,
            )
        )

    def publish(self, tables: Sequence[tuple[str, str]]) -> None:
        """Makes the publication one of exactly these tables."""
        published = self.published()
        for change, names in (("add", set(tables) - published), ("drop", published - set(tables))):
            for schema, table in sorted(names):
                self._run(f'alter publication "{self._slot}" {change} table only {quoted(schema)}.{quoted(table)}')

    def now(self) -> int:
        """The position behind everything that is in the log."""
        row = self._one(f"select {_NUMBER.format('pg_current_wal_lsn()')}")
        return int(row[0])

    def mark(self) -> int:
        """Writes a message into the log as a transaction of its own, and returns a position before its commit."""
        row = self._one(f"select {_NUMBER.format('pg_logical_emit_message(true, %s, %s)')}", _PREFIX, "")
        return int(row[0])

    def types(self, schema: str, table: str) -> dict[str, tuple[str, bool, str]]:
        """For each column the name of its type as events have it, whether old rows may have got a default, its type.

        The name is empty for types that users made.
        """
        found = self._all(
            "select a.attname, "
            "case when t.typnamespace = 'pg_catalog'::regnamespace then upper(t.typname) else '' end, "
            "a.atthasmissing or a.atthasdef or a.attidentity <> '', format_type(a.atttypid, a.atttypmod) "
            "from pg_attribute a join pg_type t on t.oid = a.atttypid "
            "join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped",
            schema,
            table,
        )
        return {name: (kind, has_default, full) for name, kind, has_default, full in found}

    def stream(self, start: int, tables: Mapping[Table, int], step: Step) -> DebeziumStream:
        """Debezium's stream; the slot and the publication say where it begins, and of which tables.

        TableError for one of `tables` that streams of this process leave out: it may have been loaded meanwhile.
        """
        found = self.slot()
        for number in [each for each in _LEFT_OUT if found is not None and _LEFT_OUT[each].until <= found.confirmed]:
            del _LEFT_OUT[number]
        if (shared := self._taken_name()) is not None:
            raise _ambiguous(shared)
        for table, number in tables.items():
            if number in _LEFT_OUT:
                raise _LEFT_OUT[number].error(table)

        def handle(groups: list[Group]) -> bool:
            if (shared := self._taken_name()) is not None:
                raise LakemirrorError("capture-source-failed", f"another table is {'.'.join(shared)} now")
            renamed = self._renamed(tables)
            return step(lambda handler: handler.handle(groups, renamed))

        return DebeziumStream(self.properties(), handle, lambda: self._too_large(tables))

    def _taken_name(self) -> Table | None:
        """A name of a table that is left out, which another table has by now."""
        query = (
            "select c.oid::int8, n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "join unnest(%s::text[], %s::text[]) as wanted(schema, name) on (schema, name) = (n.nspname, c.relname)"
        )
        names = {name for large in _LEFT_OUT.values() for name in large.names}
        return _shared(self._all(query, *(list(each) for each in zip(*names, strict=True)))) if names else None

    def _renamed(self, tables: Mapping[Table, int]) -> list[Exchanged]:
        """The tables that have other names by now: Debezium gives later events of such a table its former name.

        A new name is in the catalog before a later event comes.
        """
        query = "select c.oid::int8, n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        named = {row[0]: row[1:] for row in self._all(f"{query} where c.oid = any(%s::oid[])", list(tables.values()))}
        changed = [(table, named[number]) for table, number in tables.items() if named.get(number, table) != table]
        at = self.now() if changed else 0
        return [Exchanged(table, at, f"it is {'.'.join(name)} now (log {at})") for table, name in changed]

    def _too_large(self, tables: Mapping[Table, int]) -> LakemirrorError | None:
        """The error of the table that has the largest change; None where it is known already. Later streams of this
        process leave the table out, for the slot holds the change until it is confirmed."""
        end = time.monotonic() + _SLOT_IS_FREE
        while (found := self.slot()) is not None and found.active and time.monotonic() < end:
            time.sleep(0.2)
        known = [each.until for each in _LEFT_OUT.values()]
        row = self._one(_LARGEST, self._slot, self._slot, list(_LEFT_OUT), known)
        if row is None:
            return None
        number, size, until, described = row
        named = [_described(each) for each in described]
        names = frozenset(name[1:] for name in named if name[0] == number)
        large = _LEFT_OUT[number] = _TooLarge(names, size, until)
        if (shared := _shared(named)) is not None:
            return _ambiguous(shared)
        return large.error(next((table for table in tables if tables[table] == number), min(names)))

    def properties(self) -> dict[str, str]:
        """Debezium's properties. No table is left out that may be, or may have been, one of the publication: it takes
        changes under a name that it leaves out for those of the table's former name."""
        info = self._connection.info
        if info.host.startswith("/"):
            raise LakemirrorError(
                "input-invalid",
                "changes are read over TCP, and the source is a Unix socket",
                hint="Name a host: postgresql://USER@127.0.0.1/DATABASE.",
            )
        given = info.get_parameters()
        found = {
            "name": self._slot,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": info.hostaddr or info.host,
            "database.port": str(info.port),
            "database.user": info.user,
            "database.password": info.password,
            "database.dbname": info.dbname,
            "topic.prefix": self._slot,
            "plugin.name": "pgoutput",
            "slot.name": self._slot,
            "slot.drop.on.stop": "false",
            "slot.max.retries": "3",
            "slot.retry.delay.ms": "1000",
            "publication.name": self._slot,
            "publication.autocreate.mode": "disabled",
            "skipped.operations": "none",
            "sourceinfo.struct.maker": LEAN_SOURCE,
            "unavailable.value.placeholder": UNSENT,
            "heartbeat.interval.ms": str(int(HEARTBEAT * 1000)),
            "message.prefix.include.list": _PREFIX,
        }
        for name in ("sslmode", "sslrootcert", "sslcert", "sslkey"):
            if given.get(name):
                found[f"database.{name}"] = given[name]
        if _LEFT_OUT:
            names = sorted({name for large in _LEFT_OUT.values() for name in large.names})
            found["table.exclude.list"] = ",".join(_pattern(".".join(name)) for name in names)
        return {**found, **EVENT_PROPERTIES}

    def row_query(self, select: str, key: Mapping[str, Any]) -> str:
        """The query for the row of a key. `select`: up to where its condition begins."""
        from psycopg.sql import Literal

        where = (f"{quoted(name)} = {Literal(value).as_string(self._connection)}" for name, value in key.items())
        return f"{select} where {' and '.join(where)}"

    def _run(self, statement: str, *values: Any) -> None:
        self._connection.execute(statement, values or None)

    def _one(self, query: str, *values: Any) -> Any:
        return self._connection.execute(query, values or None).fetchone()

    def _all(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(query, values or None).fetchall())


def _pattern(name: str) -> str:
    """A regular expression for the name, as an entry of a list with commas."""
    return re.escape(name).replace(",", r"\x2c").replace("\\ ", r"\x20")


def _described(message: bytes) -> tuple[int, str, str]:
    """The number, schema and name of a table in a message of the log that describes it."""
    schema, name, _ = message[5:].split(b"\0", 2)
    return int.from_bytes(message[1:5], "big"), schema.decode(), name.decode()


def _shared(named: Iterable[tuple[int, str, str]]) -> Table | None:
    """The first name, of numbered tables, that is one of a table that is left out, and not its own."""
    for number, *name in named:
        if any(tuple(name) in large.names for other, large in _LEFT_OUT.items() if other != number):
            return name[0], name[1]
    return None


def _ambiguous(name: Table) -> LakemirrorError:
    """Debezium gives changes of a table whose name is left out the name it had before, which may be a third one's."""
    return LakemirrorError(
        "capture-position-lost",
        f"a table with a change that is too large to be read, and another, were both {'.'.join(name)}",
        hint="Run `lakemirror capture drop DB --from URL`, then capture again with --reload all.",
    )
