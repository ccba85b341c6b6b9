"""Tables whose folder is gone (contract section 7): they are moved from `Tables/` to `Files/_DroppedTables/`.

    a look that misses a folder ─▶ note with its time ─▶ a look of a later pass, `drop_after` seconds later ─▶ gone

A look counts only if the landing zone could be listed. If the note is lost, the drop comes later.

Clocks are set, and engines on several machines share the note. So the time is measured by two clocks, and the one that
shows less counts: the storage's, which stamps the note, and that of the machine since its start, which nobody sets.
"""

from __future__ import annotations

import calendar
import json
import logging
import math
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import methodcaller
from pathlib import Path
from typing import Any

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.findings import Warned, capped
from lakemirror.landing_zone.table_options import LATE, HistoryOptions
from lakemirror.landing_zone.zone import TableName, Zone
from lakemirror.mirror.table_log import read_table_log
from lakemirror.mirror.table_places import BETWEEN, OWN, tables_in, was_filled_from
from lakemirror.mirror.table_states import TableStates
from lakemirror.storage import Storage, seconds_since

log = logging.getLogger("lakemirror")

DROPPED = "Files/_DroppedTables"
NOTE = "Files/Monitoring/missing.json"
MOST_BYTES = 16 * 1024**2  # of the note
MISSING = "folder-missing"
"""The code of the warning between the first miss of a folder and the drop."""

_RESTING = re.compile(r"-\d{8}T\d{15}$")
_FOREIGN_AGAIN = 60.0  # seconds until a table that is not ours is looked at again
_FAILED_AGAIN = 10.0  # seconds until a drop that failed is due again


@dataclass(frozen=True)
class Look:
    """The moment of a look, by the clock of its machine since it was started, and by the storage's clock.

    `stored`: seconds since the epoch; None if the storage's clock is not known.
    """

    machine: str
    clock: float
    stored: float | None = None

    def since(self, first: Look) -> float | None:
        """Seconds since an earlier look; None if no clock has seen both. Negative: a clock was set back."""
        found = []
        if self.machine == first.machine:
            found.append(self.clock - first.clock)
        if self.stored is not None and first.stored is not None:
            found.append(self.stored - first.stored)
        return min(found, default=None)


def now() -> Look:
    """This moment by the machine's clock."""
    return Look(_machine(), time.monotonic())


@dataclass
class DroppedTables:
    """Finds mirrored tables without a folder and drops them, `after` seconds after the first miss.

    Remembers what saves time, and the missing folders where `Files/Monitoring` cannot be written.
    """

    storage: Storage
    after: float
    clock: Callable[[], Look] = now
    failure: LakemirrorError | None = None  # why a table could not be moved in the last look
    missing: tuple[str, ...] = ()  # the tables that wait for their drop
    due: float = 0.0  # when the next drop may be due, by `clock`
    kept_days: float = 7.0  # how long dropped tables are kept
    _foreign: dict[str, float] = field(default_factory=dict)
    _missed: dict[str, Look] = field(default_factory=dict)  # what could not be noted
    _settled: tuple[set[str], float] = field(
        default_factory=lambda: (set(), 0.0)
    )  # targets of which none was missing, and until when that holds
    _purge_again: float = 0.0

    def step(self, zone: Zone, tables: TableStates, at_work: Collection[TableName], schema: str) -> None:
        """Drops the tables whose folder is gone, and deletes what was dropped more than `kept_days` ago.

        `zone`: as it was just listed. `at_work`: the tables in a step. `schema`: the default schema. Never raises: a
        failure is a warning, and the next pass tries again.
        """
        targets = {name: name.target(schema) for name in zone.tables}
        busy = {name.target(schema) for name in at_work}

        def is_no_miss(target: str) -> bool:
            return target in busy or zone.is_unknown(target, schema) or self._is_to_move(target, zone, schema)

        try:
            unfilled = {target for name, target in targets.items() if not tables.had_rows(name)}
            for target in self.look(set(targets.values()), is_no_miss, unfilled):
                log.info("%s was dropped: its folder is gone", target)
                tables.tell(methodcaller("dropped", target))
            self.purge(self.kept_days)
            if self.failure is not None:
                raise self.failure
        except Exception as failure:
            tables.warn("drop-postponed", f"folders that are gone are looked for again: {coded(failure)}")
        else:
            tables.warnings.pop("drop-postponed", None)

    def _is_to_move(self, target: str, zone: Zone, schema: str) -> bool:
        """True for a table that has a folder, and is not yet where the default schema puts it."""
        name = TableName("", target.rpartition("/")[2])
        moves = name in zone.tables and name.target(schema) != target
        return moves and was_filled_from(self.storage, name, target)

    def look(
        self, targets: set[str], busy: Callable[[str], bool], unfilled: Collection[str] = frozenset()
    ) -> list[str]:
        """Drops the tables whose folders are gone; returns their targets.

        Call it only after the landing zone was listed without error. `targets`: the Delta folders that have a table
        folder. `busy(target)`: an apply is running there, or the listing does not show whether its folder is gone.
        `unfilled`: targets that may be no Delta table yet: one of a schema with the same name may still be in there.
        """
        if targets == self._settled[0] and time.monotonic() < self._settled[1]:
            return []
        missing = [t for t in self._tables_but(targets, unfilled) if not busy(t)]
        noted = {**self._noted(), **self._missed}
        self.failure = None
        if not missing:
            self._settled = set(targets), time.monotonic() + self.storage.capabilities.looks_last
            if not noted:
                self.missing, self.due = (), math.inf
                return []
        due, self.due = self.due, self.clock().clock + _FAILED_AGAIN
        gone, left = self._judge(missing, noted, due)
        failed = [t for t in gone if not self._move(t)]
        left |= {t: noted[t] for t in failed}
        if left != noted:
            self._note(left)
        self.missing = tuple(sorted(left))
        if failed:
            self.due = self.clock().clock + _FAILED_AGAIN
        return [t for t in gone if t not in failed]

    @property
    def warnings(self) -> list[Warned]:
        """A warning for each table that waits for its drop."""
        if not self.missing:
            return []
        later = f"a pass {self.after:g} s later or more drops the table if it is still missing"
        return capped(Warned(MISSING, f"{t}: its table folder is missing; {later}", t) for t in self.missing)

    def _judge(self, missing: list[str], noted: dict[str, Look], due: float) -> tuple[list[str], dict[str, Look]]:
        """The missing targets to drop now; the others with the look that missed each first.

        The storage's clock is asked, by a write of the note, only if the machine's clock does not say "too early".
        """
        now, after = self.clock(), self._after
        first = {t: noted[t] for t in missing if t in noted}
        by_machine = [now.since(look) for look in first.values()]
        is_sure = after == 0.0
        if not is_sure and now.clock >= due and any(each is None or each >= after for each in by_machine):
            now = replace(now, stored=self._note(first))
            is_sure = True
        waited = {t: now.since(look) or 0.0 for t, look in first.items()}
        first = {t: look for t, look in first.items() if waited[t] >= 0.0}  # else a clock was set back: it begins again
        new = {t: replace(now, stored=None) for t in missing if t not in first}
        gone = [t for t in first if is_sure and waited[t] >= after]
        left = {t: look for t, look in {**first, **new}.items() if t not in gone}
        self.due = now.clock + min((after - waited[t] if t in first else after for t in left), default=math.inf)
        return gone, left

    @property
    def _after(self) -> float:
        """Seconds between two looks. The storage's times may be coarse."""
        return self.after + self.storage.capabilities.time_step if self.after else self.after

    def _move(self, target: str) -> bool:
        """Moves a table away; False, with `failure`, if that is not possible. True if another engine was faster."""
        failpoints.reach("drop.before-move")
        try:
            inner = next(tables_in(self.storage, target), None)
            if inner is not None:
                raise LakemirrorError("table-name-ambiguous", f"{target} is not dropped: {inner} is in it")
            from lakemirror.mirror.history.open_versions import end_dropped  # drops are rare

            end_dropped(self.storage, target, time.time_ns() // 1000)
            self._move_remembered(target)
            move_to_dropped(self.storage, target)
        except FileNotFoundError:
            return True
        except LakemirrorError as error:  # the others are moved all the same
            self.failure = error
            return False
        failpoints.reach("drop.after-move")
        return True

    def _move_remembered(self, target: str) -> None:
        """Moves away what was remembered for late changes of a table."""
        above, _, name = target.rpartition("/")
        path = f"{above}/{HistoryOptions(LATE).table(name)}"
        is_there = path in _folders(self.storage, above)  # the name may be longer than a name can be
        log = read_table_log(self.storage.uri(path)) if is_there else None
        if log is not None and log.history in (f"{LATE}:{name}", f"{LATE}:{above.rpartition('/')[2]}.{name}"):
            move_to_dropped(self.storage, path)

    def purge(self, days: float) -> None:
        """Deletes dropped tables older than `days`: folders of the name and with the table that a drop leaves."""
        if time.monotonic() < self._purge_again:
            return
        self._purge_again = time.monotonic() + self.storage.capabilities.looks_last
        for path in list(_folders(self.storage, DROPPED)):
            names = [path] if _RESTING.search(path) else _folders(self.storage, path)
            for name in names:
                if _RESTING.search(name) and self._age(name) > days * 86400 and self._ours(name, history=True):
                    self.storage.delete(name)

    def _age(self, place: str) -> float:
        """Seconds since a table was dropped: by the folder's time, or by its name where a folder has no time."""
        entry = self.storage.stat(place)
        if entry is not None:
            return seconds_since(entry.modified)
        stamp = place.rpartition("-")[2]
        return (
            time.time() - calendar.timegm(time.strptime(stamp[:15], "%Y%m%dT%H%M%S")) if _RESTING.search(place) else 0.0
        )

    def _tables_but(self, targets: set[str], unfilled: Collection[str]) -> Iterator[str]:
        for path in _folders(self.storage, "Tables"):
            if path in (BETWEEN, OWN) or (path in targets and path not in unfilled):
                continue
            inner = [path] if self.storage.exists(f"{path}/_delta_log") else _folders(self.storage, path)
            for table in inner:
                if table not in targets and self._ours(table):
                    yield table

    def _ours(self, target: str, *, history: bool = False) -> bool:
        """True for a mirrored table; with `history` for a history table, too, which stays when its folder goes."""
        if time.monotonic() < self._foreign.get(target, 0.0):
            return False
        try:
            log = read_table_log(self.storage.uri(target))
        except LakemirrorError as error:
            if error.code == "concurrent-commit" and self.storage.finish_move(target):
                return False
            log = None  # nothing is concluded from a file that cannot be read
        if log is not None and log.position is not None and (history or not log.history):
            return True
        self._foreign[target] = time.monotonic() + _FOREIGN_AGAIN
        return False

    def _noted(self) -> dict[str, Look]:
        try:
            data = self.storage.read(NOTE, MOST_BYTES)
            entry = self.storage.stat(NOTE)  # after the content: a newer note makes the look later, never earlier
        except (FileNotFoundError, LakemirrorError):
            return {}
        return read_note(data, entry.modified / 1e9) if entry is not None else {}

    def _note(self, missed: dict[str, Look]) -> float | None:
        """Notes what is missing; returns the storage's time of the note.

        The note stays in this process where it cannot be written or its folder is missing: somebody may be deleting
        the database, and no folder of it must be made again.
        """
        self._missed = {}
        try:
            if not missed:
                self.storage.delete(NOTE)
            elif not self.storage.exists(NOTE.rpartition("/")[0]):
                self._missed = missed
            else:
                self.storage.write(NOTE, note_of(missed))
                entry = self.storage.stat(NOTE)
                return entry.modified / 1e9 if entry is not None else None
        except (LakemirrorError, FileNotFoundError):
            self._missed = missed
        return None


def move_to_dropped(storage: Storage, target: str) -> None:
    """Moves a table to where dropped tables are kept. Errors: FileNotFoundError, LakemirrorError."""
    resting = _kept_at(target)
    storage.move(target, resting)
    storage.touch(resting)


def _kept_at(target: str) -> str:
    """Where a dropped table is kept: its name with the time, cut to the length that a file system allows."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f"{time.time_ns() % 10**9:09d}"
    above, slash, name = target.removeprefix("Tables/").rpartition("/")
    short = name.encode("utf-8", "surrogateescape")[: 255 - len(stamp) - 1].decode("utf-8", "ignore")
    return f"{DROPPED}/{above}{slash}{short}-{stamp}"


def dropped(storage: Storage) -> Iterator[tuple[str, str]]:
    """Every dropped table: where it was, and where it is now."""
    for path in _folders(storage, DROPPED):
        for place in [path] if _RESTING.search(path) else _folders(storage, path):
            if _RESTING.search(place):
                yield "Tables/" + _RESTING.sub("", place.removeprefix(f"{DROPPED}/")), place


def _folders(storage: Storage, path: str) -> list[str]:
    try:
        return storage.list(path, lambda _: False).folders
    except FileNotFoundError:
        return []


def note_of(missed: Mapping[str, Look]) -> bytes:
    """The note: the first look that missed each target. A look without `stored` was made when the note was written."""
    rows = {target: {"since": each.stored, "machine": each.machine, "clock": each.clock}
            for target, each in sorted(missed.items())}  # fmt: skip
    return json.dumps(rows).encode()


def read_note(data: bytes, written: float) -> dict[str, Look]:
    """What a note says. `written`: when it was written, by the storage's clock. What makes no sense is left out."""
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(rows, dict):
        return {}
    found = {target: _look(row, written) for target, row in rows.items()}
    return {target: look for target, look in found.items() if look is not None}


def _look(row: Any, written: float) -> Look | None:
    if not isinstance(row, dict) or not isinstance(row.get("machine"), str) or not _is_time(row.get("clock")):
        return None
    since = row.get("since")
    if since is not None and not _is_time(since):
        return None
    return Look(row["machine"], row["clock"], written if since is None else since)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@lru_cache(1)
def _machine() -> str:
    """The name of this machine's start; without one, of this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return uuid.uuid4().hex
