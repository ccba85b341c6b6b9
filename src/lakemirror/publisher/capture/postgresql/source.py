"""One PostgreSQL database as a capture uses it: its tables, a snapshot, the rows of a table in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql.catalog import SourceTable, read_tables
from lakemirror.publisher.capture.postgresql.load import Loader, Publish, Tell
from lakemirror.publisher.capture.postgresql.slot import Snapshot, exported_snapshot
from lakemirror.publisher.capture.postgresql.source_sessions import connected, failing
from lakemirror.publisher.capture.postgresql.types import EVENT_PROPERTIES

if TYPE_CHECKING:
    from psycopg import Connection


class PostgresSource:
    """Used in a `with` block. `capture-source-failed` where the database does not answer."""

    values = EVENT_PROPERTIES

    def __init__(self, options: CaptureOptions, stopped: Callable[[], bool] = lambda: False) -> None:
        """`stopped`: True where a load shall end."""
        self._options, self._stopped = options, stopped
        self._open = ExitStack()
        self._loader: Loader | None = None
        self.connection: Connection[Any]

    def __enter__(self) -> PostgresSource:
        self.connection = self._open.enter_context(connected(self._options))
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def tables(self) -> tuple[SourceTable, ...]:
        """The tables that the options name, as they are now."""
        with failing(self._options):
            return read_tables(self.connection, self._options)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """A snapshot and its position, for loads within this block."""
        with (
            exported_snapshot(self._options) as snapshot,
            Loader(self._options, snapshot.id, self._stopped) as self._loader,
        ):
            yield snapshot

    def load(self, table: SourceTable, publish: Publish, tell: Tell = lambda _: None) -> int:
        """Publishes all rows of a table in the snapshot; returns their number. Errors: as of `Loader.load`."""
        assert self._loader is not None
        return self._loader.load(table, publish, tell)


__all__ = ["PostgresSource"]
