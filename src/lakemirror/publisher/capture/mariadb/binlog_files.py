"""Positions in the binary log as whole numbers, and what the server still has of it.

A position is the number of the file and the byte in it: `binlog.000012`, 345 is 12 · 2³² + 345. A server that is set up
anew counts from 1 again, so a position is believed only with the transaction that ended there.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession, opened

LARGEST = 1 << 32


def position_of(file: str, byte: int) -> int:
    """The position of a byte in a file of the log."""
    return (int(file.rpartition(".")[2]) << 32) + byte


class BinlogFiles:
    """The files of the binary log that the server has."""

    def __init__(self, session: MariaSession) -> None:
        self._session = session

    def now(self) -> int:
        """The position behind everything that is in the log. `capture-not-ready` where there is no log."""
        row = self.status()
        if row is None:
            raise LakemirrorError("capture-not-ready", "the server writes no binary log: log_bin is off")
        return position_of(str(row[0]), int(row[1]))

    def status(self) -> tuple[Any, ...] | None:
        """The newest file and its length; None where there is no log."""
        is_new = not self._session.is_mariadb and self._session.version >= (8, 4)
        return self._session.one("SHOW BINARY LOG STATUS" if is_new else "SHOW MASTER STATUS")

    def sizes(self) -> dict[int, tuple[str, int]]:
        """By its number the name and the length of each file."""
        rows = self._session.all("SHOW BINARY LOGS")
        return {int(str(row[0]).rpartition(".")[2]): (str(row[0]), int(row[1])) for row in rows}

    def lost(self, position: int) -> str:
        """Why what follows this position cannot be read any more; empty if it can."""
        files = self.sizes()
        if position >> 32 not in files:
            newest = max(files, default=0)
            return (
                "it is older than what was published" if position >> 32 > newest else "the source has deleted its log"
            )
        if position % LARGEST > files[position >> 32][1]:
            return "it is older than what was published, as after a restore"
        return ""

    def has(self, position: int, transaction: str) -> bool:
        """True if this transaction is the last one of its kind before the position; also where that is not known."""
        if not self._session.is_mariadb:
            source, _, number = transaction.partition(":")
            if len(source) != 32:
                return True
            row = self._session.one("SELECT GTID_SUBSET(%s, @@global.gtid_executed)", f"{UUID(source)}:{number}")
            return row is None or row[0] != "0"
        name = self.sizes().get(position >> 32, ("", 0))[0]
        row = self._session.one("SELECT BINLOG_GTID_POS(%s, %s)", name, position % LARGEST)
        return row is not None and transaction in str(row[0] or "").split(",")


def view_binlog(options: CaptureOptions, position: int) -> SlotView:
    """What the source still has of the log behind a position, and how much that is."""
    with opened(options) as session:
        files = BinlogFiles(session)
        now, lost, sizes = files.now(), files.lost(position), files.sizes()
        row = session.one("SELECT IS_USED_LOCK(%s) IS NOT NULL", lock_name(options))
    behind = sum(size for number, (_, size) in sizes.items() if number >= position >> 32) - position % LARGEST
    return SlotView("lost" if lost else "reserved", max(behind, 0), now, bool(row and row[0]))


def lock_name(options: CaptureOptions) -> str:
    """The name of the lock that one capture of this name holds at the server."""
    return f"lakemirror/{options.slot}"[:64]
