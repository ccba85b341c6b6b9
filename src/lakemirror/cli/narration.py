"""The log of a command on stderr."""

from __future__ import annotations

import logging
import sys
import time

from lakemirror.cli.printable import printable


def log_to_stderr(verbose: bool, quiet: int = logging.ERROR) -> None:
    """Sends the log to stderr, one line for each message. `quiet`: the lowest level unless `verbose`."""
    logging.basicConfig(level=logging.INFO if verbose else quiet, stream=sys.stderr, force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_OneLine("%(message)s"))


class _OneLine(logging.Formatter):
    """A message as one line, whatever a publisher has put into a name."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(record.getMessage())


def utc_time(record: logging.LogRecord) -> str:
    """When a message was logged: `2026-11-22T10:00:00.000Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
