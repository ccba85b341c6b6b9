"""The log of what happens in one mirrored database: lines are spooled at once, and appended to the table now and then.

    record ─▶ a line of this process's spool ─▶ (every five minutes) carry ─▶ executions_table.append ─▶ lines cut off
    killed in between: the next process that carries finds the lines, and in the table how many of them it has

On a disk the spool is beside the status. A store has no file that lines can be added to: its spool is in the cache
folder of this machine. What is published through a service comes in the landing zone (`published_executions`). An apply
waits for no commit here, and no failure reaches it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.executions.execution import (
    REMOVE,
    Execution,
    of_apply,
    of_error,
    of_target,
    parse_line,
)
from lakemirror.executions.executions_table import EXECUTIONS, append, carried, read, rows_of
from lakemirror.executions.published_executions import published_executions
from lakemirror.executions.telemetry import configured
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import LANDING_ZONE, TableName
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.table_rules import allowed
from lakemirror.settings.settings import Settings, read_definition, resolve
from lakemirror.status.status import MONITORING
from lakemirror.storage import Storage
from lakemirror.storage.place import Place, local_path, storage_of
from lakemirror.storage.spool_file import SpoolFile, SpoolFolder

log = logging.getLogger("lakemirror")

EVERY = 300.0  # seconds a line stays in the spool
_MOST_LINES = 50_000  # in the spool, before they are appended sooner


class ExecutionLog:
    """Records what happens in one database. Safe to use from several threads."""

    def __init__(self, storage: Storage, settings: Settings) -> None:
        self._told = configured(storage.uri())
        self._days = settings.executions_days
        self._durability = settings.durability
        self._storage, self._folder = storage, spool_folder(storage, settings)
        self._table = storage.uri(EXECUTIONS)
        self._at_end = storage.capabilities.waits  # the spool is not where the database is
        self._spool: SpoolFile | None = None
        self._lines = 0
        self._oldest = 0.0  # when the first line was written, in seconds since the epoch
        self._is_first = True
        self._is_let_go = False
        self._lock = threading.Lock()
        self._carrying = threading.Lock()
        self._thread: threading.Thread | None = None
        self._said = ""
        self._carried_at = -EVERY

    def applied(self, name: TableName, applied: Applied) -> None:
        self.record(of_apply(name, applied, time.time()))

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        self.record(of_error(name, error, time.time()))

    def dropped(self, target: str) -> None:
        self.record(of_target(REMOVE, target, time.time()))

    def maintained(self, operation: str, target: str, seconds: float, rows: int, text: str = "") -> None:
        """Records work on the Delta table at `target` that changes no row."""
        self.record(of_target(operation, target, time.time(), seconds=round(seconds, 3), rows=rows, error_message=text))

    def record(self, execution: Execution) -> None:
        """Adds a line to the spool. Never raises."""
        for told in self._told:
            told(execution)
        if not self._days:
            return
        try:
            with self._lock:
                self._append(execution.line())
        except Exception as failure:
            self._say(failure)

    def _append(self, line: bytes) -> None:
        spool = self._held() or self._take()
        try:
            is_kept = spool.append(line)
        except FileNotFoundError:  # the folder was deleted: another one is made where its database still is
            self._spool = None
            is_kept = self._take().append(line)
        if not is_kept:
            raise LakemirrorError("storage-unavailable", "the spool of executions is full; newer ones are lost")
        if not self._lines:
            self._oldest = time.time()
        self._lines += 1

    def _held(self) -> SpoolFile | None:
        """The spool of this process, held; None if it has none, or another process has taken it since."""
        if self._is_let_go and self._spool is not None and not self._spool.hold():
            self._spool = None
        self._is_let_go = False
        return self._spool

    def _take(self) -> SpoolFile:
        """A spool for this process, perhaps with the lines of one that has ended."""
        self._spool = spool = self._folder.take()
        lines = spool.lines()
        first = parse_line(lines[0]) if lines else None
        self._lines, self._oldest = len(lines), first.ended if first is not None else time.time()
        return spool

    def carry_if_due(self) -> None:
        """Starts to append what is spooled, in a thread of its own, if that is due. Does not wait."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._is_due() or self._has_left():
            self._thread = threading.Thread(target=self.carry, name="executions", daemon=True)
            self._thread.start()

    def _is_due(self) -> bool:
        has_old = self._lines > 0 and abs(time.time() - self._oldest) >= EVERY
        return bool(self._days) and (has_old or self._lines >= _MOST_LINES)

    def _has_left(self) -> bool:
        """True the first time it is asked, if there are lines of earlier processes."""
        is_first, self._is_first = self._is_first, False
        return is_first and bool(self._days) and any(lines for _, _, lines in self._folder.read_all())

    def carry_at_end(self) -> None:
        """At the end of a pass: appends what is due; in a store also the first time in this process, because the next
        one may run on another machine. Other processes may then take the spool."""
        if self._is_due() or (self._at_end and self._lines and time.monotonic() - self._carried_at >= EVERY):
            self.carry()
        with self._lock:
            if self._spool is not None and not self._is_let_go:
                self._spool.let_go()
                self._is_let_go = True

    def carry(self) -> None:
        """Appends what is spooled, also what ended processes have left. Never raises."""
        with self._carrying:
            self._carried_at = time.monotonic()
            try:
                with self._lock:
                    own = self._held()
                if own is not None:
                    self._carry(own)
                for left in self._folder.left():
                    self._carry(left)
                for spool, first, found in published_executions(self._storage):
                    append(self._table, spool, first, found, days=self._days, durability=self._durability)
                self._said = ""
            except Exception as failure:
                self._oldest = time.time()  # tried again as late as others
                self._say(failure)

    def _carry(self, spool: SpoolFile) -> None:
        is_own = spool is self._spool
        with self._lock:
            lines, first = spool.lines(), spool.first
        if lines:
            found = [parse_line(line) for line in lines]
            append(self._table, spool.id, first, found, days=self._days, durability=self._durability)
        with self._lock:
            if is_own and spool is not self._spool:
                return  # it was deleted meanwhile
            spool.drop_first(len(lines))
            if is_own:
                self._lines = max(0, self._lines - len(lines))
                self._oldest = time.time()

    def close(self) -> None:
        """Ends the log of this process. What is spooled is appended by the next one; in a store now."""
        if self._at_end and self._lines:
            self.carry()
        if self._thread is not None:
            self._thread.join(5.0)
        with self._lock:
            self._spool = None

    def _say(self, failure: Exception) -> None:
        why = coded(failure)
        if why.code != self._said:
            log.warning("what happens is not logged in %s: %s; tables go on", EXECUTIONS, why)
        self._said = why.code


def spool_folder(storage: Storage, settings: Settings) -> SpoolFolder:
    """Where lines of this database are spooled on this machine."""
    root = local_path(storage.uri())
    if root is not None:
        return SpoolFolder(root, f"{MONITORING}/executions", "Files")
    cache: Path = settings.cache_folder
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return SpoolFolder(cache, f"executions/{hashlib.sha256(storage.uri().encode()).hexdigest()[:32]}", "")


def record_once(database: str | Place, execution: Execution) -> None:
    """Records one execution of a command that is no engine. Does nothing where `database` is none of ours."""
    storage = storage_of(database)
    try:
        if storage.exists(LANDING_ZONE) or storage.capabilities.waits:
            executions = ExecutionLog(storage, allowed(resolve(read_definition(storage))))
            executions.record(execution)
            executions.carry_at_end()
    except LakemirrorError as error:
        log.debug("not logged: %s", error)


def read_both(
    storage: Storage, settings: Settings, since: float, columns: Sequence[str] = ()
) -> tuple[pa.Table, list[Execution]]:
    """What happened since a time (seconds since the epoch): rows of the table, and what is spooled and not in it.

    `columns`: as of `executions_table.read`. LakemirrorError where the table cannot be read.
    """
    spooled = [  # before the table: a line is in one of them at least
        *((spool, first, list(map(parse_line, lines)))
          for spool, first, lines in spool_folder(storage, settings).read_all()),
        *published_executions(storage),
    ]  # fmt: skip
    rows, snapshot = read(storage.uri(EXECUTIONS), since, columns)
    found = []
    for spool, first, lines in spooled:
        new = lines[max(0, carried(snapshot, spool) - first + 1) :] if snapshot is not None else lines
        found += [each for each in new if each is not None and each.ended >= since]
    return rows, found


def read_executions(storage: Storage, settings: Settings, table: str = "", since: float = 0.0) -> list[Execution]:
    """What happened since a time (seconds since the epoch), oldest first: the table's rows and what is spooled.

    `table`: of one table alone, such as `sales.orders`. LakemirrorError where the table cannot be read.
    """
    rows, spooled = read_both(storage, settings, since)
    found = rows_of(rows) + spooled
    return sorted((each for each in found if not table or each.name == table), key=lambda each: each.ended)
