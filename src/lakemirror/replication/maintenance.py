"""Idle-time work on mirrored tables: small files and deleted rows are compacted, unused files removed (section 10).

One table at a time, in a thread of its own, and for at most a fifth of the time. It gives way to an apply of its table.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lakemirror.delta_log import Action, latest_commits, list_log, read_snapshot
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.replication.applied_record import parse_detection, sweep
from lakemirror.replication.delta_at_work import delta_at_work
from lakemirror.replication.table_log import read_table_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

COMPACT_AFTER = 100
"""Commits since the last compaction after which a table is due, once nothing has been applied to it for a while. Its
small files have become larger ones by then (`small_files.py`); what is left are rows that vectors delete."""

QUIET = 5.0
"""Seconds without a commit after which a table rests: compacting takes the cores that its next apply would want."""

_VACUUM_EVERY = 86_400.0
_FIRST_VACUUM = 3_600.0
_SHARE = 4.0  # pause after a piece of work, as a multiple of how long it took
_GROUP = "lakemirror-maintenance"
_SMALLEST_FILE, _LARGEST_FILE = 16 << 20, 1 << 30  # what compaction aims at, bytes


class Maintenance:
    """Looks after the tables of one database while `run` is idle."""

    def __init__(self, uri: Callable[[str], str], retention_days: float) -> None:
        """`uri` gives a table's place for Spark; `retention_days`: how long unused files are kept."""
        self._uri = uri
        self._retention_hours = retention_days * 24
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._work: Future[None] | None = None
        self._not_before = 0.0
        self._started = time.monotonic()
        self._vacuumed: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._spark: SparkSession | None = None
        self._impossible = False
        self._stopping = threading.Event()

    def step(self, session: Callable[[], SparkSession], targets: Iterable[str]) -> str | None:
        """Starts work on one table that is due, if its time has come; returns that table. Does not wait.

        `session` gives the Spark session; it may take its time to start.
        """
        now = time.monotonic()
        if self._impossible or now < self._not_before or (self._work is not None and not self._work.done()):
            return None
        for target in sorted(targets, key=lambda t: self._looked.get(t, 0.0)):
            statement = self._due(target, now)
            self._looked[target] = now
            if statement is not None:
                self._work = self._pool.submit(self._carry_out, session, target, statement)
                return target
        self._not_before = now + 5.0
        return None

    def retain(self, days: float) -> None:
        """How long unused files are kept from now on."""
        self._retention_hours = days * 24

    def stop(self) -> None:
        """Gives up the work at hand; nothing of it is half done."""
        self._stopping.set()
        if self._work is not None and not self._work.done():
            self._give_way()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _due(self, target: str, now: float) -> str | None:
        path = self._uri(target).replace("`", "``")
        try:
            if self._rests(target) and commits_since_compaction(self._uri(target)) >= COMPACT_AFTER:
                return f"OPTIMIZE delta.`{path}`"
        except (LakemirrorError, FileNotFoundError):
            return None
        if now - self._vacuumed.get(target, self._started + _FIRST_VACUUM - _VACUUM_EVERY) >= _VACUUM_EVERY:
            self._vacuumed[target] = now
            return f"VACUUM delta.`{path}` RETAIN {self._retention_hours:g} HOURS"
        return None

    def _rests(self, target: str) -> bool:
        """True where a table has had no commit for a while."""
        found = list_log(self._uri(target))
        if found is None or not found.commits:
            return True
        return time.time() - found.commits[max(found.commits)].stat().st_mtime >= QUIET

    def _give_way(self) -> None:
        """Ends the jobs of the statement at hand: an apply has come."""
        if self._spark is not None:
            self._spark.sparkContext.cancelJobGroup(_GROUP)

    def _carry_out(self, session_of: Callable[[], SparkSession], target: str, statement: str) -> None:
        begun = time.monotonic()
        try:
            self._spark = session_of()
            session = self._spark.newSession()
            session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
            session.sparkContext.setJobGroup(_GROUP, statement, interruptOnCancel=True)
            if self._stopping.is_set():
                return
            if statement.startswith("VACUUM"):
                session.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")  # then it commits nothing
                session.sql(statement).collect()
                self._sweep_record(target)
            else:
                for key, size in file_sizes(self._uri(target)).items():
                    session.conf.set(f"spark.databricks.delta.optimize.{key}", str(size))
                with delta_at_work(self._uri(target), self._give_way):
                    session.sql(statement).collect()
            log.info("%s: %s", target, statement.split()[0].lower())
        except SetupError as error:
            self._impossible = True
            log.warning("tables are not compacted: %s", error)
        except Exception as error:  # an apply was faster, or the engine stops: next time
            sentence = next(iter(str(error).splitlines()), type(error).__name__)
            log.info("%s: %s given up: %s", target, statement.split()[0].lower(), sentence)
        finally:
            self._leave_group()
            now = time.monotonic()
            self._not_before = now + _SHARE * (now - begun)

    def _leave_group(self) -> None:
        """The JVM's thread serves another one of ours later, whose jobs must not be cancelled with this group's."""
        with contextlib.suppress(Exception):  # the JVM may be gone
            if self._spark is not None:
                context: Any = self._spark.sparkContext
                context._jsc.clearJobGroup()

    def _sweep_record(self, target: str) -> None:
        """Parts of the record of applied paths that newer ones have taken in; kept as long as data files are."""
        table = self._uri(target)
        found = read_table_log(table)
        if found is not None:
            sweep(table, parse_detection(found.detection, target).segments, self._retention_hours * 3600)


def file_sizes(table: str) -> dict[str, int]:
    """Delta's settings for compaction, in bytes: an eighth of the table a file, so that several cores read it and what
    is large enough is not written again each time; at most Delta's own gibibyte.
    """
    snapshot = read_snapshot(table)
    total = sum(int(add["size"]) for add in snapshot.files.values()) if snapshot is not None else 0
    largest = min(max(total // 8, _SMALLEST_FILE), _LARGEST_FILE)
    return {"maxFileSize": largest, "minFileSize": largest // 2}


def commits_since_compaction(table: str) -> int:
    """How many commits the table has had since Delta's last OPTIMIZE, counted up to COMPACT_AFTER."""
    count = 0
    for _, actions in latest_commits(table):
        info: Action = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        ours = info.get("engineInfo") == "lakemirror"
        if (info.get("operation") == "OPTIMIZE" and not ours) or count >= COMPACT_AFTER:
            break
        count += 1
    return count
