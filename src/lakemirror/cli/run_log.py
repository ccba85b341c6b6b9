"""What `run` says: start, each apply, each warning once, errors, stop; with times, as text or as JSON lines.

    events and the log ─▶ one line each ─▶ stderr and <cache>/logs/run-<database>-<hash>.log, rotated

A closed terminal or a cache that cannot be written does not stop the engine.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lakemirror.cli.narration import utc_time
from lakemirror.cli.printable import printable
from lakemirror.errors import LakemirrorError, counted

if TYPE_CHECKING:
    from lakemirror.landing_zone.zone import TableName
    from lakemirror.mirror.apply import Applied
    from lakemirror.readers.catalog_entries import Registered
    from lakemirror.settings.settings import Settings

MOST_BYTES = 10 * 1024**2  # of one log file
KEPT = 4  # older log files beside it
LogFormat = Literal["text", "json"]


class RunLog:
    """Logs the events of one database's engine. Observes its tables."""

    def __init__(self, database: Path, log_format: LogFormat, *, verbose: bool = False) -> None:
        self._database = database
        self._unregistered: dict[str, str] = {}  # the last error of each table that has no entry
        self._log = logging.getLogger("lakemirror.run")
        self._log.setLevel(logging.INFO)
        self._formatter: logging.Formatter = _JsonLines() if log_format == "json" else _TextLines()
        logging.raiseExceptions = False  # a terminal that is gone is no error
        logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr, force=True)
        logging.getLogger().handlers[0].setFormatter(self._formatter)

    def started(self, settings: Settings) -> None:
        """Also writes every event to the log file in the cache, from now on."""
        from lakemirror import __version__

        path = self._keep_in(settings)
        where = f"; log: {path}" if path else ""
        database = str(self._database.absolute())
        text = f"lakemirror {__version__} runs {database} with engine {settings.engine}{where}"
        self._say("started", text, version=__version__, database=database, engine=settings.engine, pid=os.getpid())

    def listening(self, address: str) -> None:
        self._say("listening", f"metrics at http://{address}/metrics", address=address)

    def applied(self, name: TableName, applied: Applied) -> None:
        batch = applied.batch
        files, rows = counted(len(batch.files), "file"), counted(batch.rows, "change")
        by = f", by {applied.engine}" if applied.engine else ""
        self._say(
            "applied",
            f"{name}: {files}, {rows}, now at {applied.position.number}{by}",
            table=str(name),
            files=len(batch.files),
            rows=batch.rows,
            bytes=batch.bytes,
            position=applied.position.number,
            version=applied.version,
            engine=applied.engine,
            engineReason=applied.engine_reason,
        )

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        self._fail(f"{name}: ", error, table=str(name))

    def dropped(self, target: str) -> None:
        text = f"{target}: dropped, its folder is gone (kept under Files/_DroppedTables)"
        self._say("dropped", text, target=target)

    def warned(self, text: str) -> None:
        self._say("warning", text, logging.WARNING)

    def registered(self, done: Registered | LakemirrorError) -> None:
        """Says which entries of a catalog are new, changed or dropped, and each error once, until there is another."""
        if isinstance(done, LakemirrorError):
            failed = {"": done}
        else:
            failed = done.failed
            for what in ("created", "changed", "dropped"):
                for name in getattr(done, what):
                    self._say("registered", f"{name}: {what} in the catalog", entry=name, what=what)
        for name, error in failed.items():
            if self._unregistered.get(name) != error.message:
                self._fail(f"{name or 'the catalog'}: ", error, table=name)
        self._unregistered = {name: error.message for name, error in failed.items()}

    def stopping(self, text: str) -> None:
        self._say("stopping", text)

    def stopped(self, text: str = "stopped") -> None:
        self._say("stopped", text)

    def ended_by(self, error: LakemirrorError) -> None:
        """The engine cannot go on."""
        self._fail("", error)

    def _fail(self, what: str, error: LakemirrorError, **fields: Any) -> None:
        given = {"code": error.code, "message": error.message, "hint": error.hint, "file": error.file, **fields}
        self._say("failed", f"{what}{error} ({error.hint})", logging.ERROR, **given)

    def _say(self, event: str, text: str, level: int = logging.INFO, **fields: Any) -> None:
        self._log.log(level, "%s", text, extra={"event": event, "fields": fields})

    def _keep_in(self, settings: Settings) -> Path | None:
        """The log file; None where none can be written."""
        path = log_file(self._database, settings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handler = RotatingFileHandler(
                path, maxBytes=MOST_BYTES, backupCount=KEPT, encoding="utf-8", errors="backslashreplace"
            )
        except (OSError, RuntimeError):
            return None
        handler.setFormatter(self._formatter)
        logging.getLogger().addHandler(handler)
        return path


def log_file(database: Path, settings: Settings) -> Path:
    """The path of the log of a database's engine: one file for each database folder."""
    from lakemirror.spark_session.jars import cache_folder

    folder = str(database.absolute())
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", database.absolute().name)[:60]
    key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return cache_folder(settings) / "logs" / f"run-{name}-{key}.log"


class _TextLines(logging.Formatter):
    """`2026-11-22T10:00:00Z shop.orders: 1 file, …`, always one line: line breaks in names are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        kind = {logging.WARNING: "warning: ", logging.ERROR: "error: "}.get(record.levelno, "")
        message = record.getMessage()
        kind = "" if ": warning " in message or message.startswith("warning ") else kind
        return printable(f"{utc_time(record)} {kind}{message}")


class _JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `event` (`log` for what is no event), `text`, and the event's own."""

    def format(self, record: logging.LogRecord) -> str:
        shown = {"time": utc_time(record), "level": record.levelname.lower(), "event": getattr(record, "event", "log")}
        return json.dumps({**shown, "text": record.getMessage(), **getattr(record, "fields", {})}, default=str)
