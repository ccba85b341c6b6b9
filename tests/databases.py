"""A mirrored database wherever it is, for tests: what a publisher puts there, and what readers find."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.api import MirroredDatabase, SyncResult
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.storage import Storage
from lakemirror.storage.place import storage_of
from tests.model import canonical


@dataclass
class Database:
    """`address`: a folder or an address in a store, `options`: of the store."""

    address: str
    options: dict[str, str]

    @property
    def storage(self) -> Storage:
        return storage_of(self.address, self.options)

    def opened(self, **settings: Any) -> MirroredDatabase:
        """For passes that may drop a table however soon they follow one another."""
        given = {"engine": "local", "drop_after": 0, **settings}
        return MirroredDatabase(self.address, storage_options=self.options, **given)

    def sync(self, **settings: Any) -> SyncResult:
        """One pass; every error of a table is raised."""
        result = self.opened(**settings).sync()
        for error in result.failed.values():
            raise error
        return result

    def write(self, path: str, data: bytes) -> None:
        """Puts a file below the landing zone."""
        self.storage.write(f"{LANDING_ZONE}/{path}", data)

    def declare(self, table: str, keys: list[str], **more: Any) -> None:
        self.write(f"{place(table)}/_metadata.json", json.dumps({"keyColumns": keys, **more}).encode())

    def put(self, table: str, number: int, rows: dict[str, Any] | pa.Table, **options: Any) -> None:
        self.write(f"{place(table)}/{number:020}.parquet", parquet(rows, **options))

    def files(self, below: str = "") -> list[str]:
        """Every file of the database, in order."""
        try:
            return sorted(entry.path for entry in self.storage.list(below).files)
        except FileNotFoundError:
            return []

    def table(self, table: str) -> str:
        return self.storage.uri(f"Tables/{table.replace('.', '/')}")

    def bag(self, table: str, columns: Sequence[str] = ()) -> Counter[tuple[Any, ...]]:
        """The rows of a Delta table, order-free, read by the kernels. `columns`: all by default."""
        snapshot = read_snapshot(self.table(table))
        assert snapshot is not None
        target = target_of(self.table(table), snapshot.metadata.value, [])
        found = Counter[tuple[Any, ...]]()
        for add in snapshot.files.values():
            for part in live_rows(add, target):
                wanted = columns or part.column_names
                found.update(tuple(canonical(row[name]) for name in wanted) for row in part.to_pylist())
        return found

    def until_rows(self, table: str, columns: Sequence[str], wanted: set[tuple[Any, ...]]) -> None:
        """Waits, at most a minute, until a table that a service fills has these rows, and no others."""
        end = time.monotonic() + 60
        found: set[tuple[Any, ...]] = set()
        while found != wanted:
            assert time.monotonic() < end, (found, wanted)
            time.sleep(0.2)
            try:
                found = set(self.bag(table, columns))
            except (FileNotFoundError, AssertionError):  # it is not there yet
                found = set()

    def version(self, table: str) -> int:
        snapshot = read_snapshot(self.table(table))
        return -1 if snapshot is None else snapshot.version


def place(table: str) -> str:
    """The table folder below the landing zone."""
    schema, _, name = table.rpartition(".")
    return f"{schema}.schema/{name}" if schema else name


def parquet(rows: dict[str, Any] | pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), sink, **options)
    return sink.getvalue()
