"""The data source `lakemirror-arrivals`: the change files that came into a landing zone, a row each.

    latestOffset: list the landing zone ─▶ is a pass due? ─▶ a new offset, and the files that came since the last one

An offset is one look at the landing zone. Nothing rests on it but when the next pass is: so the first look of a process
is always a new offset, and what only time changes (a table that waits or failed, a folder that is gone, a day's
retention) is looked at again by time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import datasource as ds

from lakemirror.landing_zone.database_folder import missing_database
from lakemirror.landing_zone.zone import Zone, scan
from lakemirror.mirror.dropped_tables import MISSING
from lakemirror.publisher.spark_batches import store_options
from lakemirror.settings.followed_settings import definition_etag
from lakemirror.settings.settings import DEFINITION
from lakemirror.status.status import DatabaseStatus
from lakemirror.status.status_reader import last_status
from lakemirror.storage import Entry, Storage
from lakemirror.storage.place import storage_of

SCHEMA = "table string, file string, bytes bigint"

WAITS = 2.0
"""Seconds after which there is another pass while a table waits, has failed, or its folder is gone."""

_SHARE = 4.0  # the same as a multiple of how long the last pass took

IDLE = 60.0
"""Seconds after which there is another pass in any case: applied files are deleted by their age."""


class Arrivals(ds.DataSource):
    """The format `lakemirror-arrivals`, for streams. Options: `path`, and `credential` as `mirror` has it."""

    @classmethod
    def name(cls) -> str:
        return "lakemirror-arrivals"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> ArrivalsReader:
        given = self.options.get("credential")
        return ArrivalsReader(self.options["path"], store_options(given) if given else None)


@dataclass
class Arrived(ds.InputPartition):
    """Change files: table, path below the landing zone, and bytes of each."""

    files: tuple[tuple[str, str, int], ...]


class ArrivalsReader(ds.DataSourceStreamReader):
    """Looks at one landing zone. An error ends the query: `database-missing`, `storage-unavailable`."""

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._options = options
        self._storage: Storage | None = None
        self._seen: dict[str, str] | None = None  # etags by path
        self._looked = 0.0
        self._took: float | None = None  # seconds from the last offset to the next question: its pass is done
        self._waits = False
        self._last: dict[str, Any] = {}
        self._arrived: tuple[tuple[str, str, int], ...] = ()

    def initialOffset(self) -> dict[str, Any]:
        return {"looked": "", "files": 0, "bytes": 0}

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        """Another offset than before where a pass is due. PySpark 4.2 gives arguments, 4.0 gives none."""
        if self._storage is None:
            self._storage = storage_of(self._path, self._options)
        now = time.monotonic()
        try:
            zone = scan(self._storage)
        except FileNotFoundError as error:
            raise missing_database(self._path) from error
        if self._took is None and self._last:
            self._took, self._waits = now - self._looked, _waits(last_status(self._storage))
        before, self._seen = self._seen, _etags(self._storage, zone)
        arrived = _arrived(zone, before or {})
        if not arrived and not self._is_due(before, self._seen, now - self._looked):
            return self._last
        self._looked, self._took, self._arrived = now, None, arrived
        self._last = {
            "looked": datetime.now(timezone.utc).isoformat(),
            "files": len(arrived),
            "bytes": sum(size for *_, size in arrived),
        }
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Arrived]:
        """The files of the last look. A batch of an earlier process, which Spark repeats, has no rows."""
        return [Arrived(self._arrived if end == self._last else ())]

    def read(self, partition: Any) -> Iterator[tuple[str, str, int]]:
        return iter(partition.files)

    def _is_due(self, before: dict[str, str] | None, seen: dict[str, str], passed: float) -> bool:
        """True if a pass may find something although no change file came, `passed` seconds after the last offset."""
        if before is None or passed >= IDLE:
            return True
        gone = any(path.endswith(("/", ".json")) for path in before.keys() - seen.keys())
        if gone or any(before.get(path) != tag for path, tag in seen.items()):
            return True
        return self._waits and passed >= max(WAITS, _SHARE * (self._took or 0.0))


def _etags(storage: Storage, zone: Zone) -> dict[str, str]:
    """What a pass reacts to, and whether it changed: folders (with a slash), change files, declarations, settings."""
    found = {f"{name.folder}/": "" for name in zone.tables}
    for folder in zone.tables.values():
        for entry in (*folder.files, folder.metadata, folder.paused):
            if entry is not None:
                found[entry.path] = entry.etag
        if folder.marker is not None:  # its content changes nothing; without it the folder was made again
            found[folder.marker.path] = ""
    found[DEFINITION] = definition_etag(storage)
    return found


def _arrived(zone: Zone, before: Mapping[str, str]) -> tuple[tuple[str, str, int], ...]:
    files: list[tuple[str, Entry]] = [
        (str(name), entry) for name, folder in sorted(zone.tables.items()) for entry in folder.files
    ]
    return tuple((name, each.path, each.size) for name, each in files if before.get(each.path) != each.etag)


def _waits(status: DatabaseStatus) -> bool:
    """True if time alone may give a pass something to do."""
    if any(warned.code == MISSING for warned in status.warnings):
        return True
    return any(table.error_code or table.waiting_for or table.pending_files for table in status.tables)
