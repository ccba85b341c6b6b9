"""Replication slots: a snapshot with the position behind it, what a slot keeps back, and how it is given back.

Positions are LSNs as numbers: bytes from the beginning of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.postgresql.source_sessions import connected, failing

if TYPE_CHECKING:
    from psycopg import Connection

LOST = "lost"


@dataclass(frozen=True)
class Snapshot:
    """What the database held at a position: every transaction that was committed before it, no other.

    `id` is given to sessions that read; it is good until the block that exported it ends.
    """

    position: int
    id: str


@dataclass(frozen=True)
class SlotReport:
    """A slot as the source reports it. `kept_back`: bytes of log that it keeps from being deleted. `wal_status`:
    `reserved`, `extended`, `unreserved` or `lost`. `confirmed`: the stream starts there.
    """

    active: bool
    wal_status: str
    kept_back: int
    confirmed: int


@contextmanager
def exported_snapshot(options: CaptureOptions) -> Iterator[Snapshot]:
    """A snapshot of the database and its position, by a temporary slot, which ends with this block.

    The source waits until transactions that are open have ended.
    """
    name = f"{options.slot[:40]}_load_{os.getpid()}"
    with connected(options, replication=True) as connection:
        command = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
        with failing(options):
            result = connection.pgconn.exec_(command.encode())
        position, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        if position is None or snapshot is None:
            said = connection.pgconn.get_error_message().strip()
            raise LakemirrorError("capture-source-failed", f"no slot for the load could be made: {said}")
        yield Snapshot(position_of(position.decode()), snapshot.decode())


def read_slot(connection: Connection[Any], name: str) -> SlotReport | None:
    """The slot with this name in the connection's database; None where there is none."""
    row = connection.execute(
        "select active, coalesce(wal_status, ''), coalesce((case when pg_is_in_recovery() then "
        "pg_last_wal_receive_lsn() else pg_current_wal_lsn() end) - restart_lsn, 0)::bigint, "
        "coalesce(confirmed_flush_lsn - '0/0', 0)::bigint "
        "from pg_replication_slots where slot_name = %s and database = current_database()",
        (name,),
    ).fetchone()
    return None if row is None else SlotReport(*row)


def view_slot(connection: Connection[Any], name: str) -> SlotView:
    """The slot with this name, and the end of the log."""
    found = read_slot(connection, name)
    row = connection.execute("select (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
    now = int(row[0]) if row else 0
    if found is None:
        return SlotView("gone", 0, now, False)
    return SlotView(found.wal_status, found.kept_back, now, found.active)


def give_back(connection: Connection[Any], name: str) -> list[str]:
    """Drops the slot and the publication of a capture; returns what was dropped. `capture-taken` while it is read."""
    dropped = []
    found = read_slot(connection, name)
    if found is not None and found.active:
        raise LakemirrorError(
            "capture-taken", f"the slot {name} is read at this moment", hint="End that capture first."
        )
    if found is not None:
        connection.execute("select pg_drop_replication_slot(%s)", (name,))
        dropped.append(f"slot {name}")
    if connection.execute("select 1 from pg_publication where pubname = %s", (name,)).fetchone():
        connection.execute(f'drop publication "{name}"'.encode())
        dropped.append(f"publication {name}")
    return dropped


def position_of(text: str) -> int:
    """A position that PostgreSQL writes as `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
