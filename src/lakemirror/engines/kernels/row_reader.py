"""Reads the rows of one change file: a pass over its row groups, within the memory budget.

footer ─▶ columns to read ─▶ page headers, checked ─▶ batches within the budget ─▶ converted ─▶ Changes … or Bad

Every value that goes into a table is decoded, checked and converted here (contract sections 3, 4 and 6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.engines.kernels.convert_types import InvalidValue, read_markers
from lakemirror.engines.kernels.decode import (
    MOST_ROWS,
    ColumnPages,
    Portion,
    TooLarge,
    any_expands,
    bytes_at_most,
    has_few_values,
    longest,
    longest_stored,
    portion,
    share_of,
    slices,
    suspects,
)
from lakemirror.engines.kernels.ordered_rows import Decoded, needs_time, with_options
from lakemirror.engines.kernels.partial_rows import may_name, without_named
from lakemirror.engines.kernels.wanted_columns import wanted_columns
from lakemirror.engines.row_work import ChangeUnit, TargetColumn
from lakemirror.engines.units import Shared
from lakemirror.errors import Bad, Rejected, first_line
from lakemirror.landing_zone.column_types import FileColumn, arrow_type
from lakemirror.landing_zone.row_markers import INSERT, ROW_MARKER, UNCHANGED
from lakemirror.landing_zone.unchanged_columns import read_unchanged
from lakemirror.parquet.footer import read_footer
from lakemirror.parquet.pages import DICTIONARY, PLAIN, PLAIN_DICTIONARY, checked_pages

_BUFFERED = 32 << 20  # a row group with more bytes is read in pieces
_PIECE = 1 << 20
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD")  # compressed dictionaries that can be measured here
_COPIES = 4  # of a huge value, beside its page: decoded, encoded, compressed
_IN_MEMORY = 1 << 20  # a file of at most so many bytes is read at once


class Changes(NamedTuple):
    """Rows of a change file, in the file's order.

    `rows`: the requested columns of the target, in the target's order, as `arrow_type` or, with `encoded`, a dictionary
    of it. `marker`: int8, one per row. `first_row`: the number of the first row in the file, from 0. `unchanged`: the
    columns that keep their values, as from `read_unchanged`; None if all rows are complete.
    """

    rows: pa.RecordBatch
    marker: npt.NDArray[np.int8]
    first_row: int
    unchanged: pa.Array | None = None


class Reading:
    """One pass over a unit. For `read_changes` and `read_together` only."""

    def __init__(
        self,
        unit: ChangeUnit,
        shared: Shared,
        source: pa.NativeFile,
        columns: Collection[str] | None = None,
        *,
        encoded: bool = False,
        waits: bool = False,
    ) -> None:
        """For the parameters see `read_changes`. `source`: the unit's file, open."""
        self._unit = unit
        self._shared, self._target, self._budget = shared, shared.target, shared.budget
        asked = None if columns is None else {name.lower() for name in columns}
        self._asked = [each for each in self._target.columns if asked is None or each.name.lower() in asked]
        data = source.read_buffer() if source.size() <= _IN_MEMORY else None  # memory that Arrow uses again
        self._source = source if data is None else pa.BufferReader(data)
        self._data: memoryview | None = None if data is None else memoryview(data)
        self._keeps_dictionaries, self._waits = encoded, waits
        self._encoded: frozenset[str] = frozenset()
        self._constants = {name.lower(): value for name, value in unit.constants}
        self._names = [each.name for each in self._asked]

    def changes(self) -> Iterator[Changes]:
        unit = self._unit
        self.prepare()
        footer = self._footer
        groups = range(footer.num_row_groups) if unit.row_groups is None else unit.row_groups
        row = unit.first_row
        for group in groups:
            yield from self._group(group, row)
            row += footer.row_group(group).num_rows
        if row - unit.first_row != unit.rows:
            raise unreadable(unit, f"{row - unit.first_row} rows, but its footer says {unit.rows}")

    def prepare(self) -> None:
        """Reads the footer and decides how each column is converted."""
        self._footer = read_footer(self._source)
        ordering = self._shared.ordering
        with_time = ordering is not None and needs_time(ordering, self._names)
        keys = self._target.key_columns
        self._wanted = wanted_columns(self._footer, self._unit, self._asked, keys, with_time=with_time)

    def prepare_as(self, other: Reading) -> bool:
        """Reads the footer and takes the decisions of another unit's `prepare`. False if they may not be the same."""
        self._footer = read_footer(self._source)
        ours, others = self._unit, other._unit
        if ours.columns != others.columns or ours.constants != others.constants:
            return False
        if not self._footer.schema.equals(other._footer.schema) or self._footer.metadata != other._footer.metadata:
            return False
        self._wanted = other._wanted
        return True

    def at_once(self, most_bytes: int) -> tuple[pa.RecordBatch, int] | None:
        """All rows of a small unit of flat columns, before their conversion, and a bound of the bytes that they take.

        None if the unit is not small, or they could take more than `most_bytes`. ValueError if the counts of the pages
        contradict the footer. After `prepare` or `prepare_as`.
        """
        footer = self._footer
        if self._data is None or footer.num_row_groups != 1 or self._unit.row_groups is not None:
            return None
        rows = footer.row_group(0).num_rows
        if not 0 < rows <= MOST_ROWS or rows != self._unit.rows or any(each.leaves != 1 for each in self._wanted.read):
            return None
        size = 0
        for leaf in self._wanted.leaves:
            size += bytes_at_most(checked_pages(self._read_at, footer, 0, leaf), rows)
            if size > most_bytes:
                return None
        batches = list(self._batches(0, Portion(rows)))
        if len(batches) != 1 or batches[0].num_rows != rows or any_expands(batches[0].schema.types):
            return None
        return batches[0], size

    def _group(self, group: int, row: int) -> Iterator[Changes]:
        footer = self._footer.row_group(group)
        rows = footer.num_rows
        chunks = self._measured(group, self._pages(group))
        plan = portion(chunks, rows, self._budget.size)
        self._encoded = self._of_few_values(chunks) if self._keeps_dictionaries else frozenset()
        if self._encoded:
            plan = plan._replace(dictionaries=tuple({*plan.dictionaries, *self._encoded}))
        size = sum([chunk.largest_page for chunk in chunks])
        share = share_of(self._budget.size)
        largest = max([chunk.largest_page for chunk in chunks], default=0)
        is_huge = largest > share
        taken = min(self._budget.size, size + share + (_COPIES * largest if is_huge else 0))
        taken = taken if self._budget.take(taken, waits=self._waits and is_huge) else 0
        try:
            decoded = 0
            for batch in self._batches(group, plan):
                for part in slices(batch, share, self._budget.size):
                    if part.num_rows:
                        yield self.converted(part, row + decoded)
                    decoded += part.num_rows
                    del part  # before the next rows are decoded
                del batch
            if decoded != rows:
                raise unreadable(self._unit, f"{decoded} rows in row group {group}, but its footer says {rows}")
        finally:
            if is_huge:
                pa.default_memory_pool().release_unused()
            if taken:
                self._budget.give(taken)

    def _of_few_values(self, chunks: Sequence[ColumnPages]) -> frozenset[str]:
        """The text columns of a row group that stay dictionary-encoded."""
        text = {
            each.column.name
            for name, (each, convert) in self._wanted.conversions.items()
            if pa.types.is_string(each.column.arrow_type) and name not in self._target.partition_columns
            and not each.column.encoding and convert.type == "string"
        }  # fmt: skip
        return frozenset(chunk.path for chunk in chunks if chunk.path in text and has_few_values(chunk))

    def _pages(self, group: int) -> list[ColumnPages]:
        """The pages of the columns to be read. ValueError if their counts contradict the footer."""
        found = []
        for leaf in self._wanted.leaves:
            schema = self._footer.schema.column(leaf)
            its = checked_pages(self._read_at, self._footer, group, leaf)
            nested = schema.max_repetition_level > 0
            found.append(ColumnPages(schema.path, schema.physical_type, schema.length or 0, nested, tuple(its)))
        return found

    def _read_at(self, at: int, size: int) -> bytes:
        if self._data is not None:
            return bytes(self._data[at : at + size])
        return bytes(self._source.read_at(size, at))

    def _measured(self, group: int, chunks: Sequence[ColumnPages]) -> list[ColumnPages]:
        """The columns, with the length of the longest value if a dictionary could expand to too many bytes."""
        held = {column.path for column in suspects(chunks, self._footer.row_group(group).num_rows, self._budget.size)}
        result = []
        for leaf, column in zip(self._wanted.leaves, chunks, strict=True):
            if column.path in held and not column.nested:
                if column.dictionary > self._budget.size:
                    raise TooLarge("the dictionary", column.dictionary)
                column = replace(column, longest=self._longest(group, leaf, column))
            result.append(column)
        return result

    def _longest(self, group: int, leaf: int, column: ColumnPages) -> int:
        """The bytes of the longest value in a column's dictionary."""
        page = next((page for page in column.pages if page.kind == DICTIONARY), None)
        codec = self._footer.row_group(group).column(leaf).compression
        if page is not None and page.encoding in (PLAIN, PLAIN_DICTIONARY) and codec in _CODECS:
            stored = self._read_at(page.begin, page.stored)
            if codec != "UNCOMPRESSED":
                stored = pa.decompress(stored, page.size, codec.lower())
            found = longest_stored(stored, page.values)
            if found is not None:
                return found
        (values,) = next(self._batches(group, Portion(1, (column.path,)), [leaf])).columns
        return longest(values)

    def _batches(self, group: int, plan: Portion, only: list[int] | None = None) -> Iterator[pa.RecordBatch]:
        indices = self._wanted.leaves if only is None else only
        size = 0
        if self._data is None:
            told = self._footer.row_group(group)
            size = sum(told.column(leaf).total_compressed_size for leaf in indices)
        file = pq.ParquetFile(
            self._source,
            metadata=self._footer,
            coerce_int96_timestamp_unit="us",
            read_dictionary=list(plan.dictionaries),
            pre_buffer=isinstance(self._source, pa.PythonFile) and size <= _BUFFERED,
            buffer_size=_PIECE if size > _BUFFERED else 0,
        )
        batches = file.reader.iter_batches(
            plan.rows, row_groups=[group], column_indices=indices,
            use_threads=plan.rows == MOST_ROWS,  # one thread decodes fewer rows as fast
        )  # fmt: skip
        if plan.rows >= self._footer.row_group(group).num_rows:
            batches = iter(list(batches))  # the reader gives its pages and dictionaries back
        yield from batches

    def converted(self, batch: pa.RecordBatch, first_row: int) -> Changes:
        """The changes of a decoded batch. Bad: its first bad row. Rows of `at_once` may be those of several units."""
        if batch.num_columns != len(self._wanted.read):
            raise unreadable(self._unit, f"{batch.num_columns} columns, but {len(self._wanted.read)} were requested")
        marker, bad = self._markers(batch, first_row)
        unchanged = None
        if self._wanted.unchanged is not None:
            named = batch.column(self._wanted.at[self._wanted.unchanged.place])
            unchanged, bad = self._unchanged(named, marker, first_row, bad)
        rows = batch.num_rows if bad is None or bad.row is None else bad.row - 1 - first_row
        values = []
        for column in self._asked:
            held = self._wanted.conversions.get(column.name)
            if held is None:
                values.append(self._constant(column, batch.num_rows))
                continue
            each, convert = held
            found = batch.column(self._wanted.at[each.place])
            if unchanged is not None:
                found = without_named(found, column.name, unchanged)
            if each.column.name in self._encoded:
                if _is_valid(found):
                    values.append(found)
                    continue
                found = found.dictionary_decode()
            try:
                converted = convert(found)
                if column.name in self._target.partition_columns and pa.types.is_string(converted.type):
                    # the table stores an empty string in a partition column as NULL, also in a key
                    converted = pc.if_else(pc.equal(converted, ""), pa.scalar(None, converted.type), converted)
                values.append(converted)
            except InvalidValue as error:
                if error.row is None or error.row < rows:
                    bad = self._invalid(each.column, error, first_row)
                    rows = error.row or 0
        if bad is not None:
            raise Bad(bad)
        read = pa.RecordBatch.from_arrays(values, names=self._names)
        if self._shared.ordering is not None:
            decoded = Decoded(batch, read, marker, first_row)
            read = with_options(self._shared.ordering, self._unit, self._wanted, decoded)
        return Changes(read, marker, first_row, unchanged)

    def _constant(self, column: TargetColumn, rows: int) -> pa.Array:
        kind = arrow_type(column.type)
        value = self._constants.get(column.name.lower())
        if value == "" and column.name in self._target.partition_columns:
            value = None
        if value is None:
            return pa.nulls(rows, kind)
        if self._keeps_dictionaries and pa.types.is_string(kind):
            return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value], kind))
        return pa.repeat(pa.scalar(value, pa.string()), rows).cast(kind)

    def _markers(self, batch: pa.RecordBatch, first_row: int) -> tuple[npt.NDArray[np.int8], Rejected | None]:
        held = self._wanted.marker
        values = None if held is None else batch.column(self._wanted.at[held.place])
        marker, wrong = read_markers(values, batch.num_rows, self._shared.default_marker)
        bad = None
        place = len(marker)
        if wrong is not None:
            place, shown = wrong
            bad = self._marked(first_row + place, shown, "row-marker-invalid", "is not one of 0, 1, 2, 4")
        if self._shared.append_only or not self._target.key_columns or self._wanted.absent_key is not None:
            changing = marker[:place] != INSERT
            if changing.any():
                place = int(changing.argmax())
                shown = str(values[place].as_py()) if values is not None and values[place].is_valid else "NULL"
                bad = self._no_insert(first_row + place, shown)
        return marker, bad

    def _unchanged(
        self, values: pa.Array, marker: npt.NDArray[np.int8], first_row: int, bad: Rejected | None
    ) -> tuple[pa.Array | None, Rejected | None]:
        """The columns that each row leaves unchanged, and the first bad row. `bad`: the first with a bad marker."""
        try:
            keys = {key.lower() for key in self._target.key_columns}
            ordering = self._shared.ordering
            sequence = {name.lower() for name in ordering.sequence} if ordering is not None else ()
            names, wrong = read_unchanged(values, marker, may_name(self._target, self._unit), keys, sequence)
        except pa.ArrowException:
            names, wrong = None, (0, f"is {values.type}, and must be a list of strings")
        if wrong is None or (bad is not None and bad.row is not None and bad.row <= first_row + wrong[0] + 1):
            return names, bad
        row, name = first_row + wrong[0] + 1, self._unit.name
        return None, Rejected("partial-row-invalid", f"{name}, row {row}: {UNCHANGED} {wrong[1]}", name, row, UNCHANGED)

    def _no_insert(self, row: int, marker: str) -> Rejected:
        """The rejection of a row that must be an insert and is none. `row` counts from 0."""
        absent = self._wanted.absent_key
        if self._shared.append_only:
            why = "contradicts the footer's statistics"
            return replace(self._marked(row, marker, "row-marker-invalid", why), try_as="mixed")
        if not self._target.key_columns:
            why = "needs key columns, and _metadata.json declares none"
            return self._marked(row, marker, "key-columns-missing", why)
        why = f"needs every key column; the file lacks {absent!r}"
        return replace(self._marked(row, marker, "key-column-absent", why), column=absent)

    def _marked(self, row: int, marker: str, code: str, why: str) -> Rejected:
        name = self._unit.name
        return Rejected(code, f"{name}, row {row + 1}: row marker {marker!r} {why}", name, row + 1, ROW_MARKER)

    def _invalid(self, column: FileColumn, error: InvalidValue, first_row: int) -> Rejected:
        name = self._unit.name
        row = None if error.row is None else first_row + error.row + 1
        where = name if row is None else f"{name}, row {row}"
        return Rejected("value-invalid", f"{where}: column {column.name!r}: {error}", name, row, column.name)


def _is_valid(values: pa.Array) -> bool:
    """True if all text in a dictionary is UTF-8. If not, the caller checks the values that occur."""
    try:
        values.validate(full=True)
        values.dictionary.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def unreadable(unit: ChangeUnit, why: object) -> Bad:
    message = f"{unit.name}: its rows cannot be read: {first_line(why)}"
    return Bad(Rejected("file-unreadable", message, unit.name))
