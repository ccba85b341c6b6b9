"""A PostgreSQL database as a capture uses it: its tables, its log, its snapshots, and rows that are read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql.catalog import SourceTable, read_tables
from lakemirror.publisher.capture.postgresql.change_log import ChangeLog
from lakemirror.publisher.capture.postgresql.connections import connected, failing
from lakemirror.publisher.capture.postgresql.load import Loader, converted
from lakemirror.publisher.capture.postgresql.slot import exported_snapshot
from lakemirror.publisher.capture.postgresql.types import EVENT_PROPERTIES


@dataclass(frozen=True)
class SourceSnapshot:
    """Rows as they were at a position: everything that was committed before it, and nothing else."""

    position: int
    loader: Loader

    def load(self, table: SourceTable, publish: Callable[[pa.RecordBatchReader], int]) -> int:
        """Publishes all rows of the table, by threads; returns their number. Errors: as of `Loader.load`."""
        return self.loader.load(table, publish)


class PostgresSource:
    """One session for questions, others where they are needed. Used in a `with` block."""

    values: Mapping[str, str] = EVENT_PROPERTIES

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._open = ExitStack()

    def __enter__(self) -> PostgresSource:
        self.connection = self._open.enter_context(connected(self._options))
        self.log = ChangeLog(self.connection, self._options.slot)
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What the database says, as `capture-source-failed`."""
        with failing(self._options):
            yield

    def tables(self) -> Sequence[SourceTable]:
        """The tables that the options name."""
        with self.asking():
            return read_tables(self.connection, self._options)

    @contextmanager
    def snapshot(self, stopped: Callable[[], bool]) -> Iterator[SourceSnapshot]:
        """A snapshot of all tables, until the end of the block. `stopped`: True where loads shall end."""
        with exported_snapshot(self._options) as made, Loader(self._options, made.id, stopped) as loader:
            yield SourceSnapshot(made.position, loader)

    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        """The row of a key as it is now, in the values of a load; None where there is none."""
        with self.asking():
            row = self.log.row(table.qualified, key, [column.load_expression for column in table.columns])
        if row is None:
            return None
        names = [column.name for column in table.columns]
        try:
            batch = pa.RecordBatch.from_arrays([pa.array([value]) for value in row], names)
            return {name: values[0] for name, values in zip(names, converted(table, batch), strict=True)}
        except pa.ArrowException as error:
            raise LakemirrorError(
                "capture-source-failed", f"{table.qualified}: a row that was read again has other values: {error}"
            ) from error


__all__ = ["PostgresSource", "SourceSnapshot"]
