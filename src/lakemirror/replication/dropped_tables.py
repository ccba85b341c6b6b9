"""Tables whose folder is gone (contract section 7): they are moved from `Tables/` to `Files/_DroppedTables/`.

A folder counts as gone when it was missing in two passes in which the landing zone could be listed. The first miss is
noted in `Files/Monitoring`; if the note is lost, the drop comes one pass later.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.replication.moved_tables import BETWEEN
from lakemirror.replication.nested_tables import tables_in
from lakemirror.replication.table_log import read_table_log
from lakemirror.storage import Storage, seconds_since

NOTE = "Files/Monitoring/missing.json"
DROPPED = "Files/_DroppedTables"
_RESTING = re.compile(r"-\d{8}T\d{15}$")
_MOST_BYTES = 16 * 1024**2  # of the note
_FOREIGN_AGAIN = 60.0  # seconds until a table that is not ours is looked at again


@dataclass
class DroppedTables:
    """Finds mirrored tables without a folder and drops them.

    Remembers what saves time, and the missing folders where `Files/Monitoring` cannot be written.
    """

    storage: Storage
    failure: LakemirrorError | None = None  # why a table could not be moved in the last look
    _foreign: dict[str, float] = field(default_factory=dict)
    _missed: dict[str, float] = field(default_factory=dict)
    _settled: tuple[set[str], float] = field(
        default_factory=lambda: (set(), 0.0)
    )  # targets of which none was missing, and until when that holds
    _purge_again: float = 0.0

    def look(
        self, targets: set[str], busy: Callable[[str], bool], unfilled: Collection[str] = frozenset()
    ) -> list[str]:
        """Drops the tables that were missing for the second time; returns their targets.

        Call it only after the landing zone was listed without error. `targets`: the Delta folders that have a table
        folder. `busy(target)`: an apply is running there, or the listing does not show whether its folder is gone.
        `unfilled`: targets that may be no Delta table yet: one of a schema with the same name may still be in there.
        """
        if targets == self._settled[0] and time.monotonic() < self._settled[1]:
            return []
        missing = [t for t in self._tables_but(targets, unfilled) if not busy(t)]
        noted = {**self._missed, **self._noted()}
        if not missing:
            if noted:
                self._note({})
            self._settled = set(targets), time.monotonic() + self.storage.look_again
            return []
        gone = [t for t in missing if t in noted]
        self.failure = None
        for target in list(gone):
            failpoints.reach("drop.before-move")
            resting = _kept_at(target)
            try:
                inner = next(tables_in(self.storage, target), None)
                if inner is not None:
                    raise LakemirrorError("table-name-ambiguous", f"{target} is not dropped: {inner} is in it")
                self.storage.move(target, resting)
                self.storage.touch(resting)
            except FileNotFoundError:
                continue  # another engine was faster
            except LakemirrorError as error:  # the others are moved all the same
                self.failure = error
                gone.remove(target)
                continue
            failpoints.reach("drop.after-move")
        rest = [t for t in missing if t not in gone]
        if rest or noted:
            self._note({t: noted.get(t, time.time()) for t in rest})
        return gone

    def purge(self, days: float) -> None:
        """Deletes dropped tables older than `days`."""
        if time.monotonic() < self._purge_again:
            return
        self._purge_again = time.monotonic() + self.storage.look_again
        for path in list(_folders(self.storage, DROPPED)):
            names = [path] if _RESTING.search(path) else _folders(self.storage, path)
            for name in names:
                if self._age(name) > days * 86400:
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
            if path == BETWEEN or (path in targets and path not in unfilled):
                continue
            inner = [path] if self.storage.exists(f"{path}/_delta_log") else _folders(self.storage, path)
            for table in inner:
                if table not in targets and self._ours(table):
                    yield table

    def _ours(self, target: str) -> bool:
        if time.monotonic() < self._foreign.get(target, 0.0):
            return False
        try:
            log = read_table_log(self.storage.uri(target))
        except LakemirrorError as error:
            if error.code == "concurrent-commit" and self.storage.finish_move(target):
                return False
            log = None  # nothing is concluded from a file that cannot be read
        if log is not None and log.position is not None:
            return True
        self._foreign[target] = time.monotonic() + _FOREIGN_AGAIN
        return False

    def _noted(self) -> dict[str, float]:
        try:
            noted = json.loads(self.storage.read(NOTE, _MOST_BYTES))
        except (FileNotFoundError, LakemirrorError, ValueError, RecursionError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def _note(self, missed: dict[str, float]) -> None:
        """Notes what is missing; only in this process where the note cannot be written or its folder is missing:
        somebody
        may be deleting the database, and no folder of it must be made again."""
        self._missed = {}
        try:
            if missed and not self.storage.exists(NOTE.rpartition("/")[0]):
                self._missed = missed
            elif missed:
                self.storage.write(NOTE, json.dumps(missed).encode())
            else:
                self.storage.delete(NOTE)
        except (LakemirrorError, FileNotFoundError):
            self._missed = missed


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
