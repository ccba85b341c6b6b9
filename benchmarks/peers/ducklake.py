"""DuckLake: Parquet files, and a DuckDB file as its catalog. No JVM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import digest
from benchmarks.peers.peer import KEY, MARKER, Peer


class DuckLake(Peer):
    """Files folded to the last change per key; one transaction deletes those keys and inserts what is left."""

    folds = True

    def start(self, pending: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._duck = digest.duckdb_with("ducklake")
        self._duck.execute(
            f"attach 'ducklake:{self.folder / 'catalog.db'}' as lake (data_path '{self.folder / 'data'}')"
        )

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        self._duck.execute(f"create table lake.{table} as select * from read_parquet({_list(files)})")

    def append_one(self, table: str, files: Sequence[Path]) -> None:
        for number, file in enumerate(files):
            rows = f"select * exclude ({MARKER}) from read_parquet({_list([file])})"
            exists = number or table in self._tables()
            self._duck.execute(f"insert into lake.{table} {rows}" if exists else f"create table lake.{table} as {rows}")

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        self._duck.execute("begin")
        self._duck.execute(
            "create or replace temp table last as "
            f"select * from read_parquet({_list(files)}, filename = true, file_row_number = true) "
            f"qualify row_number() over (partition by {KEY} order by filename desc, file_row_number desc) = 1"
        )
        self._duck.execute(f"delete from lake.{table} where {KEY} in (select {KEY} from last)")
        columns = ", ".join(digest.COLUMNS)
        self._duck.execute(f"insert into lake.{table} ({columns}) select {columns} from last where {MARKER} <> 2")
        self._duck.execute("commit")

    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        row = self._duck.execute(digest.sql(f"lake.{table}", extra)).fetchone()
        assert row is not None
        return digest.numbers(row)

    def commits(self, table: str) -> int:
        row = self._duck.execute("select count(*) from ducklake_snapshots('lake')").fetchone()
        assert row is not None
        return int(row[0])

    def _tables(self) -> set[str]:
        return {str(row[0]) for row in self._duck.execute("select table_name from duckdb_tables()").fetchall()}


def _list(files: Sequence[Path]) -> str:
    return "[" + ", ".join(f"'{file}'" for file in files) + "]"
