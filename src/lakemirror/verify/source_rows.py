"""Rows of the source that a mirror is compared with: a query, Parquet files or a Delta table.

--against sqlite:///shop.db --query "select …"   ·   --against orders.parquet   ·   --against /lake/orders
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.passwords import without_passwords
from lakemirror.verify.check_data_files import living_rows
from lakemirror.verify.columns import table_columns
from lakemirror.verify.row_batches import all_batches, parquet_file


@dataclass(frozen=True)
class Source:
    """The source of the rows. `place`: a URL of a database, a Parquet file, a folder of them, or a Delta table.

    `query`: for a database. `zone`: of times that name none; empty: as the table's column reads them.
    """

    place: str
    query: str = ""
    zone: str = ""

    @contextmanager
    def rows(self, types: Mapping[str, pa.DataType]) -> Iterator[tuple[list[str], Iterator[pa.RecordBatch]]]:
        """Column names, and the rows as they come. `types`: what a database is asked for, by column.

        LakemirrorError `input-invalid`, `sql-failed`, `sql-driver-missing`, `table-unreadable`.
        """
        if "://" in self.place and not self.place.startswith("file:"):
            if not self.query:
                raise LakemirrorError("input-invalid", "a database is compared by a query", hint="Give --query SQL.")
            from lakemirror.publisher.sources.sql_databases import connected  # drivers: only for a query
            from lakemirror.publisher.sources.sql_types import INFINITE

            query = self.query.strip().rstrip(";")
            with connected(self.place) as database, database.rows(query, database.columns(query, types)) as reader:
                names = [name for name in reader.schema.names if name != INFINITE]
                yield names, (batch.select(names) for batch in reader)
            return
        path = Path(self.place.removeprefix("file://"))
        if (path / "_delta_log").is_dir():
            yield _delta(path)
            return
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []
        if not files:
            hint = "Give a database's URL with --query, a Parquet file, a folder of them, or a Delta table."
            raise LakemirrorError(
                "input-invalid",
                f"{without_passwords(self.place, self.place)}: no such file or folder with Parquet files",
                hint=hint,
            )
        try:
            names = pq.read_schema(files[0]).names
        except (pa.ArrowException, OSError, ValueError) as error:
            raise LakemirrorError("input-invalid", f"{files[0]} is not readable: {error}") from error
        yield list(names), _parquet(files)


def _parquet(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with parquet_file(path) as file:
            yield from all_batches(file)


def _delta(path: Path) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    snapshot = read_snapshot(path)
    if snapshot is None:
        raise LakemirrorError("input-invalid", f"{path} is no Delta table")
    columns = table_columns(snapshot.metadata.value)

    def rows() -> Iterator[pa.RecordBatch]:
        for add in snapshot.files.values():
            yield from living_rows(path, add, columns)

    return [column.name for column in columns if column.type is not None], rows()
