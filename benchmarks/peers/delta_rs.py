"""delta-rs (the deltalake wheel): no JVM. One MERGE or append per file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks import digest
from benchmarks.peers.peer import KEY, MARKER, Peer


class DeltaRs(Peer):
    """Memory holds one file at a time; a first load goes file by file into one table, one commit each."""

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        self.append_one(table, files)

    def append_one(self, table: str, files: Sequence[Path]) -> None:
        for file in files:
            rows = pyarrow.csv.read_csv(file) if file.suffix == ".csv" else pq.read_table(file)
            if MARKER in rows.column_names:
                rows = rows.drop_columns([MARKER])
            write_deltalake(self._path(table), rows, mode="append", schema_mode="merge")
            self.committed(table)

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        delta = DeltaTable(self._path(table))
        columns = {c: f"s.{c}" for c in digest.COLUMNS}
        for file in files:
            (
                delta.merge(
                    _last_of_each(pq.read_table(file)), f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t"
                )
                .when_matched_delete(f"s.{MARKER} = 2")
                .when_matched_update(columns)
                .when_not_matched_insert(columns, f"s.{MARKER} != 2")
                .execute()
            )
            self.committed(table)

    def committed(self, table: str) -> None:
        """What is done after each commit: nothing, delta-rs leaves it to the system when files reach the disk."""

    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        query = QueryBuilder().register("t", DeltaTable(self._path(table)))
        rows = pa.table(query.execute(digest.sql("t", extra)).read_all())
        return digest.numbers([column[0].as_py() for column in rows.columns])

    def commits(self, table: str) -> int:
        return DeltaTable(self._path(table)).version() + 1

    def delta_table(self, table: str) -> Path:
        return self.folder / table

    def _path(self, table: str) -> str:
        return str(self.folder / table)


class Durable(DeltaRs):
    """The same, and after each commit its files are synced: then the commit survives a power cut, as ours does.

    The log entry names the data files. Data files come first, then their folders, the entry, and the folder of the log:
    four syncs for a commit of one file. A table's first commit syncs the folder of all tables too. delta-rs makes the
    entry before anybody can sync: a power cut in between leaves an entry whose data files are not complete. Ours does
    not.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._versions: dict[str, int] = {}

    def committed(self, table: str) -> None:
        place = self.folder / table
        version = self._versions.get(table, -1) + 1
        while (place / "_delta_log" / f"{version + 1:020}.json").exists():
            version += 1
        entry = place / "_delta_log" / f"{version:020}.json"
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        files = [place / action["add"]["path"] for action in actions if "add" in action]
        folders = {file.parent for file in files}
        _sync([*files, *folders, entry, entry.parent])
        if table not in self._versions:
            _sync([place, self.folder])
        self._versions[table] = version


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _last_of_each(rows: pa.Table) -> pa.Table:
    """The last row of every key: a MERGE refuses more than one."""
    ids = rows[KEY].to_numpy()
    _, first_from_behind = np.unique(ids[::-1], return_index=True)
    if len(first_from_behind) == len(ids):
        return rows
    return rows.take(np.sort(len(ids) - 1 - first_from_behind))
