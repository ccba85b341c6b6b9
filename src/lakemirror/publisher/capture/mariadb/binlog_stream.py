"""The binary log as batches of changes: this process is to the server as a replica that stores nothing.

    server ─▶ packets ─▶ events ─▶ BinlogReader ─▶ a batch ─▶ handler

A batch is what has come while the last one was being published, at most some MiB. Nothing is confirmed to the server:
where the stream begins follows from the landing zone.
"""

from __future__ import annotations

import secrets
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.change_handler import ChangeHandler
from lakemirror.publisher.capture.envelope import Ended
from lakemirror.publisher.capture.mariadb.binlog_files import LARGEST, BinlogFiles
from lakemirror.publisher.capture.mariadb.binlog_reader import BinlogReader
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession, opened
from lakemirror.publisher.capture.mariadb.mariadb_types import CODECS
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_drivers import shown
from lakemirror.publisher.capture.source_interface import Step
from lakemirror.publisher.capture.source_pulse import HEARTBEAT

_DUMP = 0x12
_OK, _ERROR, _LAST = 0x00, 0xFF, 0xFE
_LONGEST = 0xFFFFFF  # bytes of a packet; a longer one goes on in the next
_BATCH = 8 << 20  # bytes
_SILENT = 12 * HEARTBEAT  # seconds without a sign of life
_COLLATIONS = ("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
               "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")  # fmt: skip


class BinlogStream:
    """One run of the stream."""

    def __init__(self, options: CaptureOptions, start: int, tables: Sequence[Table], step: Step) -> None:
        self._options, self._start, self._tables, self._step = options, start, tables, step
        self._stopped = threading.Event()
        self._socket: Any = None

    def run(self) -> None:
        """Blocks until `stop`. Raises what the handler raised; `capture-source-failed` with what the server says."""
        with opened(self._options) as session:
            ignore = self._options.after_ddl == "ignore"
            reader = BinlogReader(self._tables, _codecs(session), is_mariadb=session.is_mariadb, ignore=ignore)
            try:
                self._request(session)
                self._step(_taking(reader, [Ended("", self._start, 0)]))
                self._follow(reader)
            except (OSError, struct.error) as error:
                if not self._stopped.is_set():
                    said = shown(str(error), self._options)
                    raise LakemirrorError("capture-source-failed", f"the stream of changes ended: {said}") from None

    def stop(self) -> None:
        """Ends `run`, from another thread; what is not published comes again at the next start."""
        self._stopped.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _request(self, session: MariaSession) -> None:
        """Asks for the log from the start on, and for a sign of life now and then."""
        name, _ = BinlogFiles(session).sizes()[self._start >> 32]
        session.one(f"SET @master_heartbeat_period = {int(HEARTBEAT * 10**9)}")
        session.one("SET @master_binlog_checksum = @@global.binlog_checksum")
        session.one("SET @source_binlog_checksum = @@global.binlog_checksum")
        if session.is_mariadb:
            session.one("SET @mariadb_slave_capability = 4")
        replica = 1 + secrets.randbelow(2**31) | 1 << 30  # of no other replica, so that none is thrown out
        asked = struct.pack("<BIHI", _DUMP, self._start % LARGEST, 0, replica) + name.encode()
        self._socket = session.connection._sock
        self._socket.sendall(struct.pack("<I", len(asked)) + asked)
        self._socket.settimeout(_SILENT)

    def _follow(self, reader: BinlogReader) -> None:
        """Reads and hands over until `stop`."""
        packets = Packets(self._socket)
        while not self._stopped.is_set():
            size = 0
            for packet in packets.waiting():
                for _ in self._read(reader, packet):
                    if reader.rows.nbytes > 4 * _BATCH:
                        self._step(_taking(reader, []))
                size += len(packet)
                if size > _BATCH:
                    break
            self._step(_taking(reader, []))

    def _read(self, reader: BinlogReader, packet: memoryview) -> Iterator[None]:
        if packet[0] == _OK:
            yield from reader.read(packet[1:])
        elif packet[0] == _ERROR:
            said = shown(bytes(packet[3:]).decode("utf-8", "replace"), self._options)
            raise LakemirrorError("capture-source-failed", f"the stream of changes ended: {said}")
        elif packet[0] == _LAST:
            raise LakemirrorError("capture-source-failed", "the server ended the stream of changes")


class Packets:
    """The packets of a connection: each whole, in a buffer that is filled as the connection has something."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._data = bytearray()

    def waiting(self) -> Iterator[memoryview]:
        """The packets that are there; waits for the first one. OSError where the connection ends."""
        is_first = True
        while True:
            packet = self._next()
            if packet is not None:
                is_first = False
                yield packet
            elif is_first or self._has_more():
                found = self._connection.recv(1 << 20)
                if not found:
                    raise ConnectionError("the server closed the connection")
                self._data += found
            else:
                return

    def _has_more(self) -> bool:
        if isinstance(self._connection, ssl.SSLSocket) and self._connection.pending():
            return True
        return bool(select.select([self._connection], [], [], 0)[0])

    def _next(self) -> memoryview | None:
        """The next packet, taken out of the buffer; None where it is not complete."""
        at, parts = 0, []
        while True:
            if len(self._data) < at + 4:
                return None
            size = int.from_bytes(self._data[at : at + 3], "little")
            if len(self._data) < at + 4 + size:
                return None
            parts.append(bytes(self._data[at + 4 : at + 4 + size]))
            at += 4 + size
            if size < _LONGEST:
                del self._data[:at]
                return memoryview(b"".join(parts) if len(parts) > 1 else parts[0])


def _taking(reader: BinlogReader, first: list[Ended]) -> Callable[[ChangeHandler], bool]:
    events, ended, exchanged = reader.take()
    return lambda handler: handler.take(events, [*first, *ended], exchanged)


def _codecs(session: MariaSession) -> Callable[[int], str | None]:
    """Gives the codec of a collation; None for one whose texts cannot be read."""
    found: dict[int, str] = {}
    for query in _COLLATIONS:
        with suppress(LakemirrorError):
            found |= {
                int(row[0]): CODECS[str(row[1])] for row in session.all(query) if str(row[1]) in CODECS and row[0]
            }
    return found.get
