"""Floors: what the bytes cost without a table format, so without atomic commits and without a reader's peace."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb

from benchmarks import digest
from benchmarks.peers.peer import KEY, MARKER, Peer


class DuckDB(Peer):
    """One Parquet file, written again with the changes in it."""

    folds = True

    def start(self, pending: int) -> None:
        self._duck = duckdb.connect()
        self._duck.execute("set TimeZone = 'UTC'")
        self.folder.mkdir(parents=True, exist_ok=True)

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        self._replace(table, f"select * from {_source(files)}")

    def append_one(self, table: str, files: Sequence[Path]) -> None:
        rows = f"select * exclude ({MARKER}) from {_source(files)}"
        old = f"select * from '{self._path(table)}' union all by name " if self._path(table).exists() else ""
        self._replace(table, old + rows)

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        self._duck.execute(
            f"create or replace temp table last as select * from {_source(files)} "
            f"qualify row_number() over (partition by {KEY} order by filename desc, file_row_number desc) = 1"
        )
        self._replace(
            table,
            f"select * from '{self._path(table)}' where {KEY} not in (select {KEY} from last) union all by name "
            f"select * exclude ({MARKER}, filename, file_row_number) from last where {MARKER} <> 2",
        )

    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        row = self._duck.execute(digest.sql(f"'{self._path(table)}'", extra)).fetchone()
        assert row is not None
        return digest.numbers(row)

    def _replace(self, table: str, query: str) -> None:
        fresh = self._path(table).with_suffix(".new")
        self._duck.execute(f"copy ({query}) to '{fresh}' (format parquet)")
        fresh.replace(self._path(table))

    def _path(self, table: str) -> Path:
        return self.folder / f"{table}.parquet"


class Copy(Peer):
    """The files as they are, in another folder."""

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        (self.folder / table).mkdir(parents=True)
        for file in files:
            shutil.copyfile(file, self.folder / table / file.name)

    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        connection = duckdb.connect()
        connection.execute("set TimeZone = 'UTC'")
        files = sorted((self.folder / table).iterdir())
        row = connection.execute(digest.sql(_source(files, rows=False), extra)).fetchone()
        assert row is not None
        return digest.numbers(row)


def _source(files: Sequence[Path], *, rows: bool = True) -> str:
    names = "[" + ", ".join(f"'{file}'" for file in files) + "]"
    if files[0].suffix == ".csv":
        return f"read_csv({names})"
    with_rows = ", filename = true, file_row_number = true" if rows and "changes" in files[0].parts else ""
    return f"read_parquet({names}, union_by_name = true{with_rows})"
