"""The server asked for its binary log, and what it sends: packets, each with an event."""

from __future__ import annotations

import secrets
import select
import ssl
import struct
from collections.abc import Iterator
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession, failing, opened
from lakemirror.publisher.capture.source_drivers import shown
from lakemirror.publisher.capture.source_pulse import HEARTBEAT

FORMAT = 15
_DUMP, _ENDS = 0x12, 1
_OK, _ERROR, _LAST = 0x00, 0xFF, 0xFE
_LONGEST = 0xFFFFFF  # bytes of a packet; a longer one goes on in the next
_SILENT = 12 * HEARTBEAT  # seconds without a sign of life


def request(session: MariaSession, file: str, byte: int, flags: int = 0) -> Any:
    """Asks for the log from this byte of a file on, and for a sign of life now and then; the socket that it comes by.

    The server sends the file's format first, wherever it begins.
    """
    session.one(f"SET @master_heartbeat_period = {int(HEARTBEAT * 10**9)}")
    session.one("SET @master_binlog_checksum = @@global.binlog_checksum")
    session.one("SET @source_binlog_checksum = @@global.binlog_checksum")
    if session.is_mariadb:
        session.one("SET @mariadb_slave_capability = 4")
    replica = 1 + secrets.randbelow(2**31) | 1 << 30  # of no other replica, so that none is thrown out
    asked = struct.pack("<BIHI", _DUMP, byte, flags, replica) + file.encode()
    found = session.connection._sock
    found.sendall(struct.pack("<I", len(asked)) + asked)
    found.settimeout(_SILENT)
    return found


def begun(options: CaptureOptions, file: str) -> str:
    """Which file of this name the server has, as `begun_by` says. `capture-source-failed`."""
    with opened(options) as session, failing(options):
        packets = Packets(request(session, file, 4, _ENDS))
        while True:
            for packet in packets.waiting():
                event = content(packet, options)
                if event[4] == FORMAT:
                    return begun_by(event)


def begun_by(event: memoryview) -> str:
    """When a file was begun, in seconds, and by which server: by the event of its format, its first one.

    A log that is reset begins with the same names again, and that of another server has the same names, too.
    """
    seconds, _, server = struct.unpack_from("<IBI", event)
    return f"{seconds}-{server}"


def content(packet: memoryview, options: CaptureOptions) -> memoryview:
    """The event in a packet. `capture-source-failed` with what the server says where there is none."""
    if packet[0] == _OK:
        return packet[1:]
    said = "the server ended the stream of changes"
    if packet[0] == _ERROR:
        text = shown(bytes(packet[3:]).decode("utf-8", "replace"), options)
        said = f"the stream of changes ended: {text}"
    raise LakemirrorError("capture-source-failed", said)


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
