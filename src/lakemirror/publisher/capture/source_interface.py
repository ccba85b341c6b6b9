"""What a capture asks of a database, whichever it is: tables, a snapshot of rows, a log of changes from a position on.

    source: begin ─▶ snapshot, load ─▶ log: stream ─▶ batches of changes

Positions are whole numbers that grow with the log. `source_kinds.py` says which class serves which address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.change_handler import ChangeHandler
from lakemirror.publisher.capture.loaded_rows import Publish, Tell
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_tables import SourceTable


@dataclass(frozen=True)
class Reached:
    """What the landing zone says before a stream begins. `streaming`: how many tables are loaded. `newest`: the
    furthest position of any table. `start`: where the stream must begin for the tables that are loaded, and `log`:
    which log that is in, as in `FilePosition`. `said`: `_capture.json` of the landing zone.
    """

    streaming: int
    newest: int
    start: int
    log: str
    said: Mapping[str, Any] | None


class Snapshot(Protocol):
    """What the database held at a position: every transaction before it, no other."""

    @property
    def position(self) -> int: ...


class Stream(Protocol):
    """One run of the stream of changes."""

    def run(self) -> None:
        """Blocks until `stop`. Raises what the handler raised; `capture-source-failed`."""

    def stop(self) -> None:
        """Ends `run`, from another thread; may be called again."""


Step = Callable[[Callable[[ChangeHandler], bool]], bool]
"""Lets the handler handle one batch, which the given function does; True if the stream goes on."""


class Log(Protocol):
    """The log of changes of a source."""

    def published(self, said: Mapping[str, Any] | None) -> set[Table]:
        """The tables whose changes the log has from the position on where the stream begins."""

    def publish(self, tables: Sequence[Table]) -> None:
        """Lets the log have the changes of exactly these tables."""

    def now(self) -> int:
        """The position behind everything that is in the log."""

    def mark(self) -> int:
        """Writes something into the log, if that is possible; a position that the stream reaches."""

    def types(self, schema: str, table: str) -> Mapping[str, tuple[str, bool, str]]:
        """For each column the name of its type as events have it, whether old rows may have got a default, and its
        type as `SourceColumn.type_name` has it; another one where that costs too much, as for a domain."""

    def stream(self, start: int, tables: Mapping[Table, int], step: Step) -> Stream:
        """The changes of these tables behind this position. `tables`: with the number of each, as `SourceForm` says."""


class Source(Protocol):
    """One database. Used in a `with` block. `kind`: its name in positions and reports."""

    kind: str

    @property
    def log(self) -> Log: ...

    def __enter__(self) -> Source: ...

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def asking(self) -> AbstractContextManager[None]:
        """What the database says, as `capture-source-failed`."""

    def tables(self) -> tuple[SourceTable, ...]:
        """The tables that the options name, as they are now."""

    def log_of(self, position: int) -> str:
        """Which log the position is in, as in `FilePosition`."""

    def is_begun_again(self) -> bool:
        """True if the log that is streamed is gone, and another one has begun, without an error of the stream."""

    def begin(self, reached: Reached, stop: threading.Event) -> int:
        """The position behind which the stream begins. `capture-taken`, `capture-position-lost`."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """A snapshot and its position, for loads within this block."""

    def load(self, table: SourceTable, publish: Publish, tell: Tell = ...) -> int:
        """Publishes all rows of a table in the snapshot; returns their number. At least one file is published."""

    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        """The row of a key as it is now, in the values of a load; None where there is none."""


def position_lost(why: str, tables: int) -> LakemirrorError:
    """`capture-position-lost` for this many tables."""
    return LakemirrorError(
        "capture-position-lost", f"the changes of {tables} tables cannot be followed any more: {why}"
    )
