"""Cuts of a capture: now and then the files of all its tables end at one transaction, and a manifest says so.

    every table's newest file ends at or before the last commit ─▶ manifest ─▶ files of later transactions

It is called between the transactions that were published and the next ones, in the thread that publishes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.table_stream import Found, TableStream
from lakemirror.publisher.cut_writer import write_cut
from lakemirror.publisher.folders.table_folder import TableFolder

EVERY = 60.0  # seconds
_CLOCKS = 1.0  # seconds by which the source's clock may be ahead of ours


class SourceCuts:
    """The cuts of one capture. For the thread that publishes."""

    def __init__(self, folder: TableFolder, every: float, tell: Callable[[str], None]) -> None:
        """`folder`: of the manifests. `every`: seconds at least between two cuts; 0: no cut is made. `tell` gets
        sentences."""
        self._folder, self._every, self._tell = folder, every, tell
        self._due = time.monotonic() + every
        self._position = 0
        self._reread: deque[float] = deque()

    def counting(self, found: Callable[[Table], Found]) -> Callable[[Table], Found]:
        """The same look-up of rows at the source, counted: what it finds may be newer than the next cut."""

        def of_table(table: Table) -> Found:
            find = found(table)

            def counted(key: dict[str, Any]) -> dict[str, pa.Scalar] | None:
                self._reread.append(time.time())
                return find(key)

            return counted

        return of_table

    def step(
        self,
        streams: Mapping[Table, TableStream],
        committed: int,
        milliseconds: int,
        may: Callable[[], bool] = lambda: True,
        *,
        now: bool = False,
    ) -> int | None:
        """Makes a cut if one is due and possible; returns its number.

        `streams`: the tables that are followed; none of the others is loading. `committed`: the position behind the
        last transaction that is published, `milliseconds`: when it was committed (Unix). `may`: asked last, False where
        a table must be loaded again first. `now`: before its time.
        """
        if not self._every or (time.monotonic() < self._due and not now) or committed <= self._position:
            return None
        if not streams or not all(stream.is_at(committed) for stream in streams.values()):
            return None
        if not may():
            return None
        tables = {str(stream.table.name): stream.table.place for stream in streams.values()}
        moment = milliseconds / 1000
        while self._reread and self._reread[0] < moment - _CLOCKS:
            self._reread.popleft()
        said = datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="milliseconds")
        try:
            cut = write_cut(self._folder, tables, position=str(committed), time=said, reread=len(self._reread))
        except (LakemirrorError, OSError) as error:
            self._tell(f"no cut could be made: {error}; tried again")
            self._due = time.monotonic() + min(self._every, 5.0)
            return None
        self._due, self._position = time.monotonic() + self._every, committed
        return cut.number
