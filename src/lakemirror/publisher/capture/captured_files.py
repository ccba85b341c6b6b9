"""The change files of one captured table: numbered without a gap, each with a footer that says how far the capture is.

newest footer ─▶ the next events, folded ─▶ rows with markers ─▶ the next number, unless another one has taken it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME
from lakemirror.publisher import change_writer
from lakemirror.publisher.capture.capture_position import newest_footer
from lakemirror.publisher.capture.change_folding import Folded, TableShape
from lakemirror.publisher.landing_table import LandingTable, Published
from lakemirror.publisher.unchanged import with_unchanged


class CapturedFiles:
    """The files of one table. `number`: of the newest one. `footer`: what it says, as `newest_footer`."""

    def __init__(self, table: LandingTable) -> None:
        self.table = table
        self.number, self.footer = newest_footer(table.place)

    def rows(self, folded: Folded, shape: TableShape) -> pa.RecordBatchReader:
        """The rows of a file, with the names of the columns that each leaves unchanged; with the time of each change
        only where the mirror keeps it: another reader would take it for a column of the source."""
        marker, name = change_writer.MARKER_COLUMN, str(self.table.name)
        rows = folded.rows if self.table.keeps_times else folded.rows.drop_columns([SOURCE_TIME])
        marked = change_writer.with_given_markers(self.table.take(rows, marker), marker, name)
        if folded.unchanged is None:
            return marked
        return with_unchanged(marked, folded.unchanged, [column.name for column in shape.columns], shape.key, name)

    def begin_again(self, columns: tuple[Any, ...]) -> pa.RecordBatchReader:
        """The rows of the first file of the folder, which is made again with it: none, in these columns."""
        self.table.recreate_first()
        self.number = 0
        return self.table.take(pa.table({column.name: pa.array([], column.arrow_type) for column in columns}))

    def publish(self, rows: pa.RecordBatchReader, footer: Mapping[str, str], taken: str) -> Published:
        """Publishes the next file, also without rows. `capture-taken` with this sentence where it is there already."""
        try:
            published = self.table.publish(rows, self.number + 1, empty=True, footer=footer)
        except LakemirrorError as error:
            if error.code == "publish-conflict" and self.table.place.is_there():
                raise self.taken(taken) from error
            raise
        assert published is not None
        self.number = published.number
        return published

    def taken(self, why: str) -> LakemirrorError:
        """`capture-taken`: somebody else publishes to this table."""
        return LakemirrorError("capture-taken", f"{self.table.name}: {why}", table=str(self.table.name))
