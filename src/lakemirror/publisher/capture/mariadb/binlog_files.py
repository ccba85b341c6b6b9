"""Positions in the binary log as whole numbers, and what the server still has of it.

A position is the number of the file and the byte in it: `binlog.000012`, 345 is 12 · 2³² + 345. A server that is set up
anew counts from 1 again, so a position is believed only in the file that it was read from.
"""

from __future__ import annotations

from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.mariadb.binlog_packets import begun
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession

LARGEST = 1 << 32


def position_of(file: str, byte: int) -> int:
    """The position of a byte in a file of the log."""
    return (int(file.rpartition(".")[2]) << 32) + byte


class BinlogFiles:
    """The files of the binary log that the server has."""

    def __init__(self, session: MariaSession) -> None:
        self._session = session
        self.known: dict[int, str] = {}
        """By its number which file of its name each one is, as far as it was asked or read."""

    def begun(self, position: int, options: CaptureOptions) -> str:
        """Which file of its name the position is in, as `begun_by` says; empty where the server has none."""
        number = position >> 32
        if number not in self.known and (found := self._asked(number, options)):
            self.known[number] = found
        return self.known.get(number, "")

    def is_begun_again(self, options: CaptureOptions) -> bool:
        """True if the newest file that is known is gone, or that or the one before is another one by now.

        A stream that reads when the log is reset waits at the old file for ever, or goes on with the second new one.
        """
        newest = sorted(self.known)[-2:]
        found = [(number, self._asked(number, options)) for number in newest]
        return any(now != self.known[number] and (now or number == newest[-1]) for number, now in found)

    def _asked(self, number: int, options: CaptureOptions) -> str:
        files = self.sizes()
        return begun(options, files[number][0]) if number in files else ""

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

    def view(self, position: int, *, is_read: bool) -> SlotView:
        """What the server still has of the log behind a position, and how much that is. `is_read`: by a capture."""
        now, lost, sizes = self.now(), self.lost(position), self.sizes()
        behind = sum(size for number, (_, size) in sizes.items() if number >= position >> 32) - position % LARGEST
        return SlotView("lost" if lost else "reserved", max(behind, 0), now, is_read)
