"""What commands say on stderr while they work."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from lakemirror.cli.printable import printable, say
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.landing_zone.zone import TableName
    from lakemirror.replication.apply_plan import Applied


class Narrator:
    """Says on stderr what happens, one line an event."""

    def applied(self, name: TableName, applied: Applied) -> None:
        batch = applied.batch
        files, rows = counted(len(batch.files), "file"), counted(batch.rows, "change")
        say(f"{printable(str(name))}: {files}, {rows}, now at {applied.position.number}")

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        say(f"{printable(str(name))}: {printable(str(error))}\n  {error.hint}")

    def dropped(self, target: str) -> None:
        say(f"{printable(target)}: dropped, its folder is gone (kept under Files/_DroppedTables)")


def log_to_stderr(verbose: bool, quiet: int = logging.ERROR) -> None:
    """What the log holds goes to stderr, one line each; `quiet`: from which level on unless `verbose`."""
    logging.basicConfig(level=logging.INFO if verbose else quiet, stream=sys.stderr, force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_OneLine("%(message)s"))
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


class _OneLine(logging.Formatter):
    """A message as one line, whatever a publisher has put into a name."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(record.getMessage())


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")
