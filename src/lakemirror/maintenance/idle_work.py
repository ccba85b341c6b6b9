"""Idle-time work on mirrored tables: files are compacted, unused files removed (contract section 10). No JVM.

    an idle table ─▶ compaction.py, one piece a step
    once a day    ─▶ late_days.py, vacuum.py

One table at a time, in a separate thread, for at most a fifth of the time. An apply waits for a small piece, about a
second; it cancels a heavy piece.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lakemirror.delta.checksum import counted
from lakemirror.delta.log import latest_commits, read_snapshot
from lakemirror.delta.log_folder import list_log
from lakemirror.engines.kernels.compact import Cancelled, compact
from lakemirror.engines.row_work import Action, RewriteWork, Target
from lakemirror.errors import LakemirrorError
from lakemirror.maintenance import compaction
from lakemirror.maintenance.late_days import forget_old
from lakemirror.maintenance.policy import when_idle
from lakemirror.maintenance.vacuum import vacuum
from lakemirror.mirror.position import parse_detection, sweep_segments
from lakemirror.mirror.table_log import read_table_log
from lakemirror.storage.durable import POWER

log = logging.getLogger("lakemirror")

_VACUUM_EVERY = 86_400.0
_FIRST_VACUUM = 3_600.0
_FRESH = 2.0  # seconds
_SHARE = 4.0  # pause after a piece of work, as a multiple of how long it took


@dataclass(frozen=True)
class Pace:
    """When a table is due for compaction.

    `compact_after`: commits since the last compaction after which it is due, once nothing has been applied to it for
    `quiet` seconds: compaction takes the cores that its next apply would want. `rested`: seconds without a commit
    after which a table with deletion vectors is due in any case: one small change a day must not make every read of
    the day slower. `all_vectors_every`: seconds until all vectors are removed again: replaced files are kept for days,
    and a table must not be rewritten all the time.
    """

    compact_after: int = 100
    quiet: float = 5.0
    rested: float = 60.0
    all_vectors_every: float = 86_400.0


PACE = Pace()

Newest = tuple[int, int]
"""The newest version of a table and when it was committed, in nanoseconds: tells a table from one made again."""

_NOTHING: tuple[Newest | None, bool] = (None, False)

Hold = Callable[[str], AbstractContextManager[bool]]


class Maintenance:
    """Maintains the tables of one database while `run` is idle."""

    def __init__(
        self,
        uri: Callable[[str], str],
        retention_days: float,
        *,
        durability: str = POWER,
        on_written: Callable[[Target, Sequence[Action]], None] = lambda _target, _adds: None,
        look_every: float = 5.0,
        pace: Pace = PACE,
    ) -> None:
        """`uri` gives a table's folder; `retention_days`: how long unused files are kept; `on_written` gets the files
        that it has written. `look_every`: seconds from one look at all tables to the next, where nothing is due.
        `pace` can be changed later."""
        self.pace = pace
        self.kept: Callable[[str], Collection[int]] = lambda _: ()  # versions of a table that a vacuum leaves readable
        self.done: Callable[[str, str, float, int], None] = lambda *_: None  # gets operation, table, seconds, files
        self._uri = uri
        self._retention = retention_days * 86_400
        self._durability = durability
        self._look_every = look_every
        self._on_written = on_written
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
        # the time of a table's log that was read and gave nothing to do, and whether the table had rested then
        self._not_due: dict[str, tuple[int, bool]] = {}
        self._begun: tuple[str, Newest | None] | None = None  # the table at hand, as it was when a heavy piece began
        self._stopping = threading.Event()

    def step(self, targets: Iterable[str], hold: Hold = lambda _: nullcontext(True)) -> str | None:
        """Starts work on one table that is due, if its time has come; returns that table. Does not wait.

        `hold(target)` keeps applies of a table waiting, and says whether there is none.
        """
        now = time.monotonic()
        if now < self._not_before or (self._work is not None and not self._work.done()):
            return None
        for target in sorted(targets, key=lambda t: self._looked.get(t, 0.0)):
            work = self._due(target, now)
            self._looked[target] = now
            if work is not None:
                self._work = self._pool.submit(self._carry_out, partial(work, target, hold), target)
                return target
        self._not_before = now + self._look_every
        return None

    def retain(self, days: float) -> None:
        """How long unused files are kept from now on."""
        self._retention = days * 86_400

    def stop(self) -> None:
        """Cancels the current work. The table is unchanged."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _due(self, target: str, now: float) -> Callable[[str, Hold], None] | None:
        """What there is to do for a table."""
        try:
            if self._is_to_be_compacted(target):
                return self._compact
        except (LakemirrorError, OSError):
            return None
        vacuumed = self._vacuumed.get(target, self._started + _FIRST_VACUUM - _VACUUM_EVERY)
        if now - vacuumed >= _VACUUM_EVERY:
            self._vacuumed[target] = now
            return self._vacuum
        return None

    def _is_to_be_compacted(self, target: str) -> bool:
        """True if a table had enough commits since its last compaction, and for a while only our own; or if it has
        deletion vectors and had no commit for longer.

        A log that gave nothing to do is read again once its folder has changed.
        """
        table = self._uri(target)
        changed = _log_changed(table)
        known = changed, bool(changed) and time.time() - changed / 1e9 >= self.pace.rested
        if changed and self._not_due.get(target) == known:
            return False
        newest = _newest(table)
        is_ours = newest == self._merged.get(target, _NOTHING)[0]
        if newest is None or (not is_ours and _age(newest) < self.pace.quiet):
            return False
        rested = is_ours or _age(newest) >= self.pace.rested
        if self._has_enough_commits(target, table, newest) or (rested and self._has_vectors(target, table, newest)):
            return True
        self._not_due[target] = known
        return False

    def _has_enough_commits(self, target: str, table: str, newest: Newest) -> bool:
        if newest in (self._done.get(target), self._failed.get(target)):
            return False
        is_ours = newest == self._merged.get(target, _NOTHING)[0]
        if not is_ours and target in self._done and 0 < newest[0] - self._done[target][0] < self.pace.compact_after:
            return False
        return commits_since_compaction(table, self.pace.compact_after) >= self.pace.compact_after

    def _has_vectors(self, target: str, table: str, newest: Newest) -> bool:
        """True if the table has deletion vectors, and it is time to remove them all."""
        if newest in (self._done.get(target), self._failed.get(target)) or not self._may_free(target):
            return False
        found = counted(table, newest[0])
        return found is not None and bool(found.vectors)

    def _may_free(self, target: str) -> bool:
        """True if the vectors of the table were not all removed within the last day."""
        freed = self._freed.get(target)
        return freed is None or time.monotonic() - freed >= self.pace.all_vectors_every

    def _is_cancelled(self) -> bool:
        """True once the engine stops, or the table at hand has a commit that was not there before."""
        if self._stopping.is_set():
            return True
        return self._begun is not None and _newest(self._begun[0]) != self._begun[1]

    def _carry_out(self, work: Callable[[], object], target: str) -> None:
        """Runs the work, then sets the pause before the next one. Never raises: failed work is repeated later."""
        begun = time.monotonic()
        try:
            work()
        except Exception as error:
            sentence = next(iter(str(error).splitlines()), type(error).__name__)
            log.info("%s: maintenance given up: %s", target, sentence)
        finally:
            now = time.monotonic()
            self._not_before = now + _SHARE * (now - begun)

    def _rewrite(self, work: RewriteWork) -> Sequence[Action]:
        adds = compact(work, is_cancelled=self._is_cancelled)
        self._on_written(work.target, adds)
        return adds

    def _compact(self, target: str, hold: Hold) -> None:
        """One piece; the table is due again until nothing is left of it."""
        table, now = self._uri(target), time.monotonic()
        newest = _newest(table)
        before = self._merged.get(target, _NOTHING)
        goes_on = newest is not None and newest == before[0]
        all_vectors = before[1] if goes_on else self._may_free(target)
        self._begun = table, newest
        try:
            merged = compaction.merge_when_idle(
                table,
                all_vectors=all_vectors,
                durability=self._durability,
                rewrite=self._rewrite,
                hold=lambda: hold(target),
            )
        except Cancelled:
            return  # it is due again
        finally:
            self._begun = None
        found = _newest(table)
        if merged is None:
            if found == newest:
                self._failed[target] = newest  # it is tried again after the next commit
            return
        snapshot = read_snapshot(table)
        if snapshot is None or found is None:
            return
        if merged:
            self.done("Compact", target, time.monotonic() - now, merged)
            self._merged[target] = found, all_vectors
        if all_vectors and not when_idle(snapshot.files.values(), all_vectors=True):
            self._freed[target] = now
        if not merged:
            self._done[target] = found
            log.info("%s: compacted", target)

    def _vacuum(self, target: str, _: Hold) -> None:
        table, begun = self._uri(target), time.monotonic()
        forget_old(table, durability=self._durability)  # of a table that remembers deletes
        kept = self.kept(target)
        removed = vacuum(table, self._retention, kept=kept, is_cancelled=self._stopping.is_set)
        found = read_table_log(table)
        if found is not None:
            # parts of the record of applied paths that newer ones have taken in; kept as long as data files are
            sweep_segments(table, parse_detection(found.detection, target).segments, self._retention)
        self.done("Vacuum", target, time.monotonic() - begun, removed)
        log.info("%s: vacuumed, %d files removed", target, removed)


def commits_since_compaction(table: str, most: int = PACE.compact_after) -> int:
    """How many commits the table has had since it was last compacted while idle, counted up to `most`."""
    count = 0
    for _, actions in latest_commits(table):
        infos = (action["commitInfo"] for action in actions if isinstance(action.get("commitInfo"), dict))
        if compaction.is_complete(next(infos, {})) or count >= most:
            break
        count += 1
    return count


def _log_changed(table: str) -> int:
    """When the folder of a table's log was changed last, in nanoseconds; 0 where that is not known, or so short ago
    that the next change may leave the same time."""
    try:
        changed = Path(table, "_delta_log").stat().st_mtime_ns
    except OSError:  # in an object store, for one
        return 0
    return changed if time.time() - changed / 1e9 > _FRESH else 0


def _age(newest: Newest) -> float:
    return time.time() - newest[1] / 1e9


def _newest(table: str) -> Newest | None:
    found = list_log(table)
    if found is None or not found.commits:
        return None
    version = max(found.commits)
    return version, found.commits[version].stat().st_mtime_ns
