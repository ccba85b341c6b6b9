"""delta-rs (the deltalake wheel): no JVM. One MERGE or append per file."""

from __future__ import annotations

from collections.abc import Sequence
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


def _last_of_each(rows: pa.Table) -> pa.Table:
    """The last row of every key: a MERGE refuses more than one."""
    ids = rows[KEY].to_numpy()
    _, first_from_behind = np.unique(ids[::-1], return_index=True)
    if len(first_from_behind) == len(ids):
        return rows
    return rows.take(np.sort(len(ids) - 1 - first_from_behind))
