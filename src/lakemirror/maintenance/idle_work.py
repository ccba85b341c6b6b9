"""Idle-time work on mirrored tables: small files and deleted rows are compacted, unused files removed (section 10).

    a table rests ─▶ pieces of it without Spark (`small_files.py`) ─▶ OPTIMIZE, if something is left for it

One table at a time, in a thread of its own, and for at most a fifth of the time. OPTIMIZE gives way to an apply of its
table; a piece, of a second or so, is waited for.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from lakemirror.delta.delta_at_work import delta_at_work
from lakemirror.delta.log import latest_commits, list_log, read_snapshot
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.maintenance import compaction as small_files
from lakemirror.maintenance.policy import at_rest, file_sizes, optimize_helps
from lakemirror.replication.applied_record import parse_detection, sweep
from lakemirror.replication.table_log import read_table_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

COMPACT_AFTER = 100
"""Commits since the last compaction after which a table is due, once nothing has been applied to it for a while."""

QUIET = 5.0
"""Seconds without a commit after which a table rests: compacting takes the cores that its next apply would want."""

_ALL_VECTORS_EVERY = 86_400.0  # what is replaced rests for days: a table must not be written anew all the time
_VACUUM_EVERY = 86_400.0
_FIRST_VACUUM = 3_600.0
_SHARE = 4.0  # pause after a piece of work, as a multiple of how long it took
_GROUP = "lakemirror-maintenance"

Newest = tuple[int, int]
"""The newest version of a table, and when it was committed in nanoseconds: another one in a table made anew."""

_NOTHING: tuple[Newest | None, bool] = (None, False)

Hold = Callable[[str], AbstractContextManager[bool]]


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
        self._merged: dict[str, tuple[Newest | None, bool]] = {}  # our last piece, and whether all vectors are to go
        self._freed: dict[str, float] = {}
        self._failed: dict[str, Newest | None] = {}
        self._done: dict[str, Newest] = {}
        self._spark: SparkSession | None = None
        self._impossible = False  # to start Spark
        self._stopping = threading.Event()

    def step(
        self, session: Callable[[], SparkSession], targets: Iterable[str], hold: Hold = lambda _: nullcontext(True)
    ) -> str | None:
        """Starts work on one table that is due, if its time has come; returns that table. Does not wait.

        `session` gives the Spark session; it may take its time to start. `hold(target)` keeps applies of a table back,
        and says whether there is none.
        """
        now = time.monotonic()
        if now < self._not_before or (self._work is not None and not self._work.done()):
            return None
        for target in sorted(targets, key=lambda t: self._looked.get(t, 0.0)):
            work = self._due(target, now)
            self._looked[target] = now
            if work is not None:
                self._work = self._pool.submit(self._carry_out, partial(work, session, target, hold), target)
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

    def _due(self, target: str, now: float) -> Callable[[Callable[[], SparkSession], str, Hold], None] | None:
        """What there is to do for a table."""
        try:
            if self._is_to_be_compacted(target):
                return self._compact
        except (LakemirrorError, OSError):
            return None
        vacuumed = self._vacuumed.get(target, self._started + _FIRST_VACUUM - _VACUUM_EVERY)
        if now - vacuumed >= _VACUUM_EVERY and not self._impossible:
            self._vacuumed[target] = now
            return self._vacuum
        return None

    def _is_to_be_compacted(self, target: str) -> bool:
        """True where a table has had commits enough since the last time, and none for a while but our own."""
        newest = _newest(self._uri(target))
        if newest is None or newest in (self._done.get(target), self._failed.get(target)):
            return False
        if newest != self._merged.get(target, _NOTHING)[0]:
            if time.time() - newest[1] / 1e9 < QUIET:
                return False
            if target in self._done and 0 < newest[0] - self._done[target][0] < COMPACT_AFTER:
                return False
        return commits_since_compaction(self._uri(target)) >= COMPACT_AFTER

    def _give_way(self) -> None:
        """Ends the jobs of the statement at hand: an apply has come."""
        if self._spark is not None:
            self._spark.sparkContext.cancelJobGroup(_GROUP)

    def _carry_out(self, work: Callable[[], object], target: str) -> None:
        """Does it, and sees to the pause after it. Never raises: it is only put off."""
        begun = time.monotonic()
        try:
            work()
        except SetupError as error:
            self._impossible = True
            log.warning("tables are not compacted by Spark: %s", error)
        except Exception as error:  # an apply was faster, or the engine stops: next time
            sentence = next(iter(str(error).splitlines()), type(error).__name__)
            log.info("%s: maintenance given up: %s", target, sentence)
        finally:
            now = time.monotonic()
            self._not_before = now + _SHARE * (now - begun)

    def _compact(self, session: Callable[[], SparkSession], target: str, hold: Hold) -> None:
        """The next piece of a table, or what is left for Spark."""
        table, now = self._uri(target), time.monotonic()
        newest = _newest(table)
        ours, all_vectors = self._merged.get(target, _NOTHING)
        if newest is None or newest != ours:
            all_vectors = now - self._freed.get(target, -math.inf) >= _ALL_VECTORS_EVERY
        with hold(target) as is_free:
            if not is_free:
                return
            merged = small_files.merge_at_rest(table, all_vectors=all_vectors)
            found = _newest(table)
        if merged is None:
            self._failed[target] = newest  # it is tried again after the next commit
            return
        snapshot = read_snapshot(table)
        if snapshot is None or found is None:
            return
        if merged:
            self._merged[target] = found, all_vectors
        elif optimize_helps(snapshot.files.values()) and not self._impossible:
            sizes = file_sizes(snapshot.files.values())
            settings = {f"spark.databricks.delta.optimize.{key}": size for key, size in sizes.items()}
            self._run(session, table, "OPTIMIZE delta.`{}`", settings, commits=True)
        if all_vectors and not at_rest(snapshot.files.values(), all_vectors=True):
            self._freed[target] = now
        if not merged:
            self._done[target] = found
            log.info("%s: compacted", target)

    def _vacuum(self, session: Callable[[], SparkSession], target: str, hold: Hold) -> None:
        table = self._uri(target)
        settings = {"spark.databricks.delta.vacuum.logging.enabled": "false"}  # then it commits nothing
        statement = f"VACUUM delta.`{{}}` RETAIN {self._retention_hours:g} HOURS"
        self._run(session, table, statement, settings, commits=False)
        found = read_table_log(table)
        if found is not None:
            # parts of the record of applied paths that newer ones have taken in; kept as long as data files are
            sweep(table, parse_detection(found.detection, target).segments, self._retention_hours * 3600)
        log.info("%s: vacuumed", target)

    def _run(
        self,
        session_of: Callable[[], SparkSession],
        table: str,
        statement: str,
        settings: Mapping[str, object],
        *,
        commits: bool,
    ) -> None:
        """Runs a statement about a table; its jobs are cancelled by an apply if it `commits`, and by a stop."""
        if self._stopping.is_set():
            return
        self._spark = session_of()
        session = self._spark.newSession()
        session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        for key, value in settings.items():
            session.conf.set(key, str(value))
        with delta_at_work(table, self._give_way) if commits else nullcontext():
            session.sparkContext.setJobGroup(_GROUP, statement, interruptOnCancel=True)
            try:
                if not self._stopping.is_set():
                    session.sql(statement.format(table.replace("`", "``"))).collect()
            finally:
                self._leave_group()

    def _leave_group(self) -> None:
        """The JVM's thread serves another one of ours later, whose jobs must not be cancelled with this group's."""
        with contextlib.suppress(Exception):  # the JVM may be gone
            if self._spark is not None:
                context: Any = self._spark.sparkContext
                context._jsc.clearJobGroup()


def commits_since_compaction(table: str) -> int:
    """How many commits the table has had since it was last compacted at rest, counted up to COMPACT_AFTER."""
    count = 0
    for _, actions in latest_commits(table):
        infos = (action["commitInfo"] for action in actions if isinstance(action.get("commitInfo"), dict))
        if small_files.is_complete(next(infos, {})) or count >= COMPACT_AFTER:
            break
        count += 1
    return count


def _newest(table: str) -> Newest | None:
    found = list_log(table)
    if found is None or not found.commits:
        return None
    version = max(found.commits)
    return version, found.commits[version].stat().st_mtime_ns
