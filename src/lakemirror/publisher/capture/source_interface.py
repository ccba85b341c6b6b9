"""What a capture asks of a database, whichever it is: tables, a snapshot of rows, a log of changes from a position on.

    source: begin ─▶ snapshot, load ─▶ log: stream ─▶ batches of changes

Positions are whole numbers that grow with the log. `source_kinds.py` says which class serves which address.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.change_handler import ChangeHandler
from lakemirror.publisher.capture.loaded_rows import Publish, Tell
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_needs import Need
from lakemirror.publisher.capture.source_tables import SourceTable

_S = TypeVar("_S", bound="Source")
_WAIT = 10.0  # seconds: a source may take a moment to see that a capture was killed


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


class Stream(Protocol):
    """One run of the stream of changes."""

    def run(self) -> None:
        """Blocks until `stop`. Raises what the handler raised; `capture-source-failed`."""

    def stop(self) -> None:
        """Ends `run`, from another thread; may be called again."""


Step = Callable[[Callable[[ChangeHandler], bool]], bool]
"""Lets the handler handle one batch, which the given function does; True if the stream goes on."""


class Log(ABC):
    """The log of changes of a source, as one capture reads it."""

    @abstractmethod
    def published(self, said: Mapping[str, Any] | None) -> set[Table]:
        """The tables whose changes the log has from the position on where the stream begins."""

    def publish(self, tables: Sequence[Table]) -> None:  # noqa: B027  most logs have the changes of all tables
        """Lets the log have the changes of exactly these tables."""

    @abstractmethod
    def now(self) -> int:
        """The position behind everything that is in the log."""

    def mark(self) -> int:
        """Writes something into the log, if that is possible; a position that the stream reaches."""
        return self.now()

    @abstractmethod
    def types(self, schema: str, table: str) -> Mapping[str, tuple[str, bool, str]]:
        """For each column the name of its type as events have it, whether old rows may have got a default, and its
        type as `SourceColumn.type_name` has it; another one where that costs too much, as for a domain."""

    @abstractmethod
    def stream(self, start: int, tables: Mapping[Table, int], step: Step) -> Stream:
        """The changes of these tables behind this position. `tables`: with the number of each, as `SourceForm` says."""


class Source(ABC):
    """One database. Used in a `with` block. `kind`: its name in positions and reports. `log`: within the block."""

    kind: str
    log: Log
    has_cuts = True
    """A loaded table is exactly as at its position."""
    streams_by_java = asks_by_java = False
    """Its stream is Debezium's, which runs on Java; and so is any question to it."""

    def __init__(self, options: CaptureOptions, stopped: Callable[[], bool] = lambda: False) -> None:
        """`stopped`: True where a load shall end."""
        self._options, self._stopped = options, stopped
        self._open = ExitStack()

    def __enter__(self: _S) -> _S:
        self._connect()
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    @abstractmethod
    def _connect(self) -> None:
        """Opens what `__exit__` closes. `capture-source-failed` where the database does not answer."""

    @abstractmethod
    def asking(self) -> AbstractContextManager[None]:
        """What the database says, as `capture-source-failed`."""

    @abstractmethod
    def tables(self) -> tuple[SourceTable, ...]:
        """The tables that the options name, as they are now."""

    @abstractmethod
    def needs(self) -> list[Need]:
        """What is missing before it can be captured; nothing is changed."""

    @abstractmethod
    def view(self, slot: str, position: int) -> SlotView:
        """What it says of the log that a capture needs. `slot`: its name. `position`: that the capture has reached."""

    def give_back(self) -> list[str]:
        """Drops what it keeps for the capture; returns what was dropped. `capture-taken` while it is read."""
        return []

    def log_of(self, position: int) -> str:
        """Which log the position is in, as in `FilePosition`; empty, for positions that the source keeps apart."""
        return ""

    def is_begun_again(self) -> bool:
        """True if the log that is streamed is gone, and another one has begun, without an error of the stream."""
        return False

    def begin(self, reached: Reached, stop: threading.Event) -> int:
        """The position behind which the stream begins.

        `capture-taken` while another capture reads the log; `capture-not-ready` with a setting that must be another
        one; `capture-position-lost` where tables stream and the log has no longer what follows their position.
        """
        self._wait_until_free(stop)
        for need in self._settings_needed():
            if not need.is_advice:
                raise LakemirrorError("capture-not-ready", need.what, hint=f"Run in the source: {need.statement}")
        if reached.streaming and (why := self._lost(reached)):
            tables = f"the changes of {reached.streaming} tables"
            raise LakemirrorError("capture-position-lost", f"{tables} cannot be followed any more: {why}")
        return self._start(reached)

    def _wait_until_free(self, stop: threading.Event) -> None:
        """Waits a moment until no other capture reads the log. `capture-taken`, also where `stop` is set."""
        end = time.monotonic() + _WAIT
        while not self._is_free():
            if time.monotonic() > end or stop.wait(0.2):
                raise LakemirrorError("capture-taken", self._taken)

    @abstractmethod
    def _is_free(self) -> bool:
        """True if no other capture of this name reads the log, from now on or at this moment."""

    @property
    def _taken(self) -> str:
        return f"another capture {self._options.name!r} reads this database"

    def _settings_needed(self) -> Iterable[Need]:
        return ()

    @abstractmethod
    def _lost(self, reached: Reached) -> str:
        """Why the log has no longer what follows what was published; empty if it has."""

    def _start(self, reached: Reached) -> int:
        """Where the stream begins: behind what the landing zone has, or at the end of the log."""
        return reached.start if reached.streaming else self.log.now()

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[int]:
        """A snapshot for loads within this block: it holds every transaction before the position that this gives."""

    @abstractmethod
    def load(self, table: SourceTable, publish: Publish, tell: Tell = ...) -> int:
        """Publishes all rows of a table in the snapshot; returns their number. At least one file is published.

        `tell` gets numbers of rows that were read. `Stopped`; `capture-value` with the row's key;
        `capture-source-failed`.
        """

    @abstractmethod
    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        """The row of a key as it is now, in the values of a load; None where there is none."""
