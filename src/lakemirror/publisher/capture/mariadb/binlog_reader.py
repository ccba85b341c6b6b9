"""Events of the binary log, one after another, as rows, ends of transactions, and tables that are changed unlogged.

A transaction begins with its GTID and ends with its commit. Transactions come one by one, in the order of commits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.change_handler import Exchanged
from lakemirror.publisher.capture.envelope import Ended, TableEvents
from lakemirror.publisher.capture.mariadb.binlog_files import LARGEST, position_of
from lakemirror.publisher.capture.mariadb.binlog_packets import FORMAT, begun_by
from lakemirror.publisher.capture.mariadb.binlog_rows import ROW_EVENTS, CollectedRows
from lakemirror.publisher.capture.mariadb.compressed_transactions import unpacked
from lakemirror.publisher.capture.mariadb.logged_statements import effects
from lakemirror.publisher.capture.mariadb.table_maps import MappedTable, read_table_map
from lakemirror.publisher.capture.pending_changes import Table

QUERY, ROTATE, XID, TABLE_MAP, HEARTBEAT, XA_PREPARE, GTID, ANONYMOUS = 2, 4, 16, 19, 27, 38, 33, 34
PARTIAL_ROWS, PAYLOAD, TAGGED_GTID, MARIA_GTID = 39, 40, 42, 162
_INCIDENT, _ARTIFICIAL = 26, 0x20
_STANDALONE, _PREPARED = 1, 64
_UNREADABLE = dict.fromkeys(range(165, 172), "log_bin_compress is ON")


class BinlogReader:
    """Turns events into rows, ends of transactions, and statements that change rows without logging them."""

    def __init__(
        self,
        followed: Sequence[Table],
        codec_of: Callable[[int], str | None],
        *,
        is_mariadb: bool,
        ignore: bool = False,
    ) -> None:
        """`ignore`: rows that are others by a definition of columns or partitions are left as they are."""
        self._followed, self._codec_of, self._is_mariadb = set(followed), codec_of, is_mariadb
        self._ignore = ignore
        self._file = self._at = 0
        self._tables: dict[int, MappedTable | None] = {}
        self._known: dict[bytes, tuple[int, MappedTable]] = {}
        self._transaction, self._begin, self._is_open, self._is_held = "", 0, False, False
        self._in_statements, self._touched = False, set[Table]()
        self._seconds = self._server = 0
        self._is_summed: bool | None = None
        self.rows = CollectedRows()
        self.ended: list[Ended] = []
        self.exchanged: list[Exchanged] = []
        self.begun: dict[int, str] = {}
        """By its number which file of its name each one is that was read, as `begun_by` says."""

    def read(self, event: memoryview) -> Iterator[None]:
        """Takes in one event, or those of a compressed transaction, one at each step. `capture-source-failed`,
        `capture-not-ready` for one that cannot be read."""
        seconds, kind, self._server, length, behind, flags = struct.unpack_from("<IBIIIH", event)
        body = self._checked(kind, event)
        if kind == ROTATE:
            self._rotate(body)
            return
        if kind == FORMAT and self.begun.setdefault(self._file, begun_by(event)) != begun_by(event):
            raise LakemirrorError("capture-source-failed", "the binary log was begun again")
        # MariaDB 11.4 does not write where the events within a transaction end
        if flags & _ARTIFICIAL or kind == HEARTBEAT or not (behind or self._is_open):
            return
        if 0 < behind < length:
            raise LakemirrorError("capture-source-failed", "a file of the binary log is longer than 4 GiB")
        self._seconds = seconds or self._seconds
        at = self._at = (self._file << 32) + behind if behind else self._at + length
        if kind != PAYLOAD:
            self._act(kind, body, at, length)
            yield
            return
        for inner, content in unpacked(body):
            self._act(inner, content, at, length)
            yield

    def _act(self, kind: int, body: bytes, at: int, length: int) -> None:
        """Takes in an event that ends at this position."""
        if kind in ROW_EVENTS or kind == PARTIAL_ROWS:
            self._rows(kind, body)
        elif kind == TABLE_MAP:
            self._map(body)
        elif kind in (GTID, ANONYMOUS, TAGGED_GTID, MARIA_GTID):
            self._start(kind, body, at - length)
        elif kind == QUERY:
            self._statement(body, at)
        elif kind in (XID, XA_PREPARE):
            self._end(at)
        elif kind in _UNREADABLE or kind == _INCIDENT:
            raise LakemirrorError(
                "capture-not-ready", f"the binary log cannot be read: {_UNREADABLE.get(kind, 'the server lost events')}"
            )
        elif not self._is_open:
            self._pass(at)

    def _checked(self, kind: int, event: memoryview) -> bytes:
        """The event without its header and its checksum. `capture-source-failed` where that is wrong."""
        if kind == FORMAT:
            self._is_summed = event[-5] == 1
            return bytes(event[19:-5])
        is_right = len(event) >= 23 and zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little")
        if self._is_summed is None:  # before the first format: what comes is a rotation, made up by the server
            return bytes(event[19:-4] if is_right else event[19:])
        if self._is_summed and not is_right:
            raise LakemirrorError("capture-source-failed", "an event of the binary log has a wrong checksum")
        return bytes(event[19:-4] if self._is_summed else event[19:])

    def take(self) -> tuple[list[TableEvents], list[Ended], list[Exchanged]]:
        """Everything that was read since the last time."""
        found = self.rows.take(), self.ended, self.exchanged
        self.ended, self.exchanged = [], []
        return found

    def _pass(self, at: int) -> None:
        """Nothing is open at this position."""
        if self.ended and not self.ended[-1].transaction:
            self.ended.pop()
        self.ended.append(Ended("", at, self._seconds * 1000))

    def _rotate(self, body: bytes) -> None:
        self._file = position_of(body[8:].decode("utf-8").rstrip("\0"), 0) >> 32
        self._tables.clear()

    def _start(self, kind: int, body: bytes, begin: int) -> None:
        """A transaction, or a statement that is one, begins."""
        self._begin, self._is_open, self._is_held = begin, True, False
        self.rows.begin(self._seconds * 1000)
        self._touched.clear()
        if kind == MARIA_GTID:
            sequence, domain, flags = struct.unpack_from("<QIB", body)
            self._transaction = f"{domain}-{self._server}-{sequence}"
            self._is_held, self._in_statements = bool(flags & _PREPARED), not flags & _STANDALONE
        elif kind == GTID:
            source, number = body[1:17].hex(), struct.unpack_from("<Q", body, 17)[0]
            self._transaction = f"{source}:{number}"
        else:
            self._transaction = f"{begin >> 32}:{begin % LARGEST}"

    def _map(self, body: bytes) -> None:
        known = self._known.get(body)
        if known is None:
            if len(self._known) > 1000:
                self._known.clear()
            number, table = read_table_map(body, self._codec_of, is_mariadb=self._is_mariadb)
            known = self._known[body] = (number, table)
        number, table = known
        self._tables[number] = table if (table.schema, table.name) in self._followed else None

    def _rows(self, kind: int, body: bytes) -> None:
        number = int.from_bytes(body[:6], "little")
        table = self._tables.get(number)
        if table is None or self._is_held:
            return
        missing = "binlog_row_value_options is PARTIAL_JSON" if kind == PARTIAL_ROWS else table.missing
        if missing:
            self._exchange((table.schema, table.name), f"{missing} in the binary log")
            return
        start = 8 + (struct.unpack_from("<H", body, 8)[0] if kind >= 30 else 0)
        self._touched.add((table.schema, table.name))
        self.rows.add(table, ROW_EVENTS[kind], self._transaction, self._begin + 1, body[start:])

    def _statement(self, body: bytes, at: int) -> None:
        """A statement: the begin or end of a transaction, or one that is not logged as rows."""
        _, _, database_size, _, status_size = struct.unpack_from("<IIBHH", body)
        start = 13 + status_size
        database = body[start : start + database_size].decode("utf-8")
        sql = body[start + database_size + 1 :].decode("utf-8", "replace")
        word = sql[:40].upper().split(";")[0].strip()
        if word == "BEGIN" or word.startswith("XA START"):
            if not self._is_open:
                self._start(ANONYMOUS, b"", at - 1)
            self._is_held = self._is_held or word.startswith("XA")
            self._in_statements = True
            return
        if word == "COMMIT":
            self._end(at)
            return
        if word.startswith(("XA COMMIT", "ROLLBACK")):
            for table in sorted(self._touched if word.startswith("ROLLBACK") else self._followed):
                self._exchange(table, f"{word} of rows that are logged elsewhere", at)
        elif not word.startswith(("XA ", "SAVEPOINT")):
            self._affect(sql, database, at)
        if not self._in_statements:
            self._end(at)

    def _affect(self, sql: str, database: str, at: int) -> None:
        for effect in effects(sql, database, self._followed):
            if effect.is_emptied:
                self.rows.add_truncate(effect.table, self._transaction, self._begin + 1)
            elif not (self._ignore and effect.is_definition):
                said = " ".join(sql.split())[:100]
                self._exchange(effect.table, f"its rows may be others behind the statement: {said}", at, effect.columns)

    def _exchange(self, table: Table, why: str, at: int = 0, columns: frozenset[str] | None = None) -> None:
        position = at or self._begin + 1
        place = f"{position >> 32}:{position % LARGEST}"
        self.exchanged.append(Exchanged(table, position, f"{why} (binary log {place})", columns))

    def _end(self, at: int) -> None:
        """The transaction has ended; the next one begins behind it."""
        self.ended.append(Ended(self._transaction, at, self._seconds * 1000))
        self._is_open = self._in_statements = self._is_held = False
        self._transaction = ""
