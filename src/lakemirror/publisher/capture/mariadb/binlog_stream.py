"""The binary log as batches of changes: this process is to the server as a replica that stores nothing.

    server ─▶ packets ─▶ events ─▶ BinlogReader ─▶ a batch ─▶ handler

A batch is what has come while the last one was being published, at most some MiB. Nothing is confirmed to the server:
where the stream begins follows from the landing zone.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.change_handler import ChangeHandler
from lakemirror.publisher.capture.envelope import Ended
from lakemirror.publisher.capture.mariadb.binlog_files import LARGEST, BinlogFiles
from lakemirror.publisher.capture.mariadb.binlog_packets import Packets, content, request
from lakemirror.publisher.capture.mariadb.binlog_reader import BinlogReader
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession, opened
from lakemirror.publisher.capture.mariadb.mariadb_types import CODECS
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_drivers import shown
from lakemirror.publisher.capture.source_interface import Step

_BATCH = 8 << 20  # bytes
_COLLATIONS = ("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
               "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")  # fmt: skip


class BinlogStream:
    """One run of the stream."""

    def __init__(
        self, options: CaptureOptions, start: int, tables: Sequence[Table], step: Step, files: BinlogFiles
    ) -> None:
        """`files` gets to know which file of its name each one is that is read."""
        self._options, self._start, self._tables, self._step, self._files = options, start, tables, step, files
        self._stopped = threading.Event()
        self._socket: Any = None

    def run(self) -> None:
        """Blocks until `stop`. Raises what the handler raised; `capture-source-failed` with what the server says."""
        with opened(self._options) as session:
            ignore = self._options.after_ddl == "ignore"
            reader = BinlogReader(self._tables, _codecs(session), is_mariadb=session.is_mariadb, ignore=ignore)
            reader.begun = self._files.known
            try:
                name, _ = self._files.sizes()[self._start >> 32]
                self._socket = request(session, name, self._start % LARGEST)
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

    def _follow(self, reader: BinlogReader) -> None:
        """Reads and hands over until `stop`."""
        packets, known = Packets(self._socket), len(reader.begun)
        while not self._stopped.is_set():
            size = 0
            for packet in packets.waiting():
                for _ in reader.read(content(packet, self._options)):
                    if reader.rows.nbytes > 4 * _BATCH:
                        self._step(_taking(reader, []))
                if len(reader.begun) > known and self._files.is_begun_again(self._options):
                    raise LakemirrorError("capture-source-failed", "the binary log was begun again")
                size, known = size + len(packet), len(reader.begun)
                if size > _BATCH:
                    break
            self._step(_taking(reader, []))


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
