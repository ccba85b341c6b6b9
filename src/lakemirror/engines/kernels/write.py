"""Writes record batches as data files of a Delta table. Returns the actions that name the files; commits nothing.

    batches ─▶ one open file per partition ─▶ row groups ─▶ `add` or `cdc` actions, with statistics of the rows

To write several files at once, call it from several threads with a part of the rows each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.delta import exact_json
from lakemirror.delta.data_files import logged_path, new_name, partition_value
from lakemirror.delta.long_texts import LONG, long_columns
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import Tally
from lakemirror.engines.kernels.dictionaries import is_repeated, one_table, with_dictionaries
from lakemirror.engines.kernels.nested_types import by_path, indexed_leaves, leaves_of, parquet_paths, stored_type
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.errors import LakemirrorError
from lakemirror.keys.key_values import comparable, key_codes, order_of, whole_numbers
from lakemirror.landing_zone.reserved_columns import DELETED_AT, END_AT
from lakemirror.storage.durable import NewFile, abandoned, completed, created, make_folders, size_so_far
from lakemirror.storage.place import Place
from lakemirror.storage.place import place as place_at

CHANGE_TYPE = "_change_type"
"""The change data feed's column that names the change of a row: `insert`, `delete`, `update_preimage` or
`update_postimage`.
"""

ROWS_A_GROUP = 256 * 1024
ROWS_A_FILE = 4 * ROWS_A_GROUP  # more rows become several files, which can be written and read in parallel
BYTES_A_FILE = 512 << 20
_SMALL_PAGES = {"write_page_index": True, "data_page_size": 8 << 10, "write_batch_size": 256}
"""For tables whose old rows, or remembered changes, are read one by one: a row costs a page of each column."""
if "max_rows_per_page" in pq.ParquetWriter.__init__.__code__.co_varnames:  # pyarrow 17 has no such option
    _SMALL_PAGES["max_rows_per_page"] = 1024
CALENDAR = {"org.apache.spark.version": "4.2.0"}
"""In a file's metadata: tells Spark 3 that dates before 1582 use today's calendar."""


@dataclass(frozen=True)
class FileSizes:
    """When files and row groups end, and how much is kept in memory.

    A file ends at `rows_a_file` rows, or when it has `bytes_a_file` bytes after a row group. A row group ends at
    `rows_a_group` rows or `bytes_a_group` bytes in memory. `bytes_buffered`: of the row groups of all partitions
    together. `most_open`: files; a table with more partitions gets more and smaller files.
    """

    rows_a_file: int = ROWS_A_FILE
    bytes_a_file: int = BYTES_A_FILE
    rows_a_group: int = ROWS_A_GROUP
    bytes_a_group: int = 64 << 20
    bytes_buffered: int = 128 << 20
    most_open: int = 64


SIZES = FileSizes()


def write_rows(
    batches: Iterable[pa.RecordBatch],
    target: Target,
    *,
    sizes: FileSizes = SIZES,
    partition: Mapping[str, str | None] | None = None,
) -> list[Action]:
    """Writes rows as data files of the table. Returns the content of an `add` action for each file.

    `batches`: the table's columns by logical name, in the types of `stored_type`, text also dictionary-encoded; a
    missing column is NULL. Uses memory for one row group per open file, at most `sizes.bytes_buffered` beside the
    current batch. `partition`: the partition values of all rows by column name, as the log spells them; then the
    batches need no partition columns.

    Error: ConstraintViolated for NULL in a NOT NULL column (`row` counts the given rows, from 1). After any error, the
    written files are removed.
    """
    return _write(batches, Files(target, sizes, partition))


def write_change_feed(batches: Iterable[pa.RecordBatch], target: Target, *, sizes: FileSizes = SIZES) -> list[Action]:
    """Writes rows of the change data feed, which also have the column CHANGE_TYPE. Returns `cdc` actions.

    The files are in `_change_data/` (Delta protocol, "Add CDC File"). All else is as in `write_rows`.
    """
    return _write(batches, Files(target, sizes, feed=True))


def file_count(rows: int) -> int:
    """How many files of about equal size so many rows should become: 0, 1, 2, or a multiple of 4.

    Spark gives each task whole files where they are smaller than the share of a core: two cores read three files in
    the time of four.
    """
    least = -(-rows // ROWS_A_FILE)
    return least if least < 3 else -(-least // 4) * 4


class ConstraintViolated(ValueError):
    """A row has NULL in a NOT NULL column. `column`: its logical name. `row`: from 1."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(f"row {row} is NULL in the NOT NULL column {column!r}")
        self.column = column
        self.row = row


def file_schema(target: Target, *, feed: bool = False) -> pa.Schema:
    """The schema of the table's data files: physical names and field ids, without the partition columns.

    ValueError for a column whose type lakemirror cannot write.
    """
    fields = [_field(column) for column in _in_files(target)]
    return pa.schema([*fields, *([pa.field(CHANGE_TYPE, pa.string())] if feed else [])])


def _write(batches: Iterable[pa.RecordBatch], files: Files) -> list[Action]:
    try:
        for batch in batches:
            files.add(batch)
            del batch  # before the next one is made
        return files.close()
    except BaseException:
        files.remove()
        raise


@dataclass
class _File:
    """A file that is being written, and the rows of its next row group. `writer`: None before its first row group.

    `long`: the columns with long texts, which have no statistics in its footer: they would be copied five times.
    """

    path: Place
    sink: NewFile
    below: str
    values: dict[str, str | None]
    tally: Tally
    writer: pq.ParquetWriter | None = None
    buffered: list[pa.RecordBatch] = field(default_factory=list)
    buffered_rows: int = 0
    buffered_bytes: int = 0
    rows: int = 0
    long: frozenset[str] = frozenset()


class Files:
    """The open files by partition, and the actions of the complete files. For the parameters see `write_rows`."""

    def __init__(
        self, target: Target, sizes: FileSizes, partition: Mapping[str, str | None] | None = None, *,
        feed: bool = False,
    ) -> None:  # fmt: skip
        self._target, self._folder, self._feed, self._partition = target, place_at(target.path), feed, partition
        self._sizes = sizes
        self._schema = file_schema(target, feed=feed)
        self._columns = {column.name: column for column in target.columns}
        self._data = _in_files(target)
        self._has_small_pages = not feed and not self._columns.keys().isdisjoint((DELETED_AT, END_AT))
        self._leaves = [] if feed else indexed_leaves(target)
        self._indexed = [Column(leaf.name, leaf.type) for leaf in self._leaves]
        # Spark skips a chunk whose dictionary has only -0.0 for `= 0.0`, and one with NaN by bounds that ignore NaN
        exact = [path for field in self._schema for path in parquet_paths(field) if path is not None]
        self._exact = dict.fromkeys(exact)
        self._open: dict[tuple[str | None, ...], _File] = {}
        self._made: list[Place] = []
        self._done: list[Action] = []
        self._rows_before = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Writes a batch, or keeps it for the next row group."""
        if not batch.num_rows:
            return
        self._check_nulls(batch)
        self._rows_before += batch.num_rows
        for values, rows in self._by_partition(batch):
            key = tuple(values)
            rows = self._as_stored(rows)
            while rows.num_rows:
                file = self._file(key)
                room = min(self._sizes.rows_a_file - file.rows, self._sizes.rows_a_group) - file.buffered_rows
                part = _within(rows.slice(0, room), self._sizes.bytes_a_group)
                is_long = part.nbytes > LONG * part.num_rows  # on average: no long row waits for another
                most = self._sizes.bytes_a_group // (2 if is_long else 1)
                file.buffered.append(part)
                file.buffered_rows += part.num_rows
                file.buffered_bytes += part.nbytes
                rows = rows.slice(part.num_rows)
                if part.num_rows == room or file.buffered_bytes >= most:
                    self._write_group(key, file)
        while (
            len(self._open) > 1
            and sum(file.buffered_bytes for file in self._open.values()) > self._sizes.bytes_buffered
        ):
            self._write_group(*max(self._open.items(), key=lambda item: item[1].buffered_bytes))

    def close(self) -> list[Action]:
        """Completes all files. Returns the actions of all files."""
        for key in list(self._open):
            self._complete(key)
        return self._done

    def remove(self) -> None:
        """Removes all files, complete or not."""
        for file in self._open.values():
            abandoned(file.sink)
            if file.writer is not None:
                with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                    file.writer.close()
        for path in self._made:
            with contextlib.suppress(OSError, LakemirrorError):
                path.unlink(missing_ok=True)

    def _check_nulls(self, batch: pa.RecordBatch) -> None:
        for column in self._target.columns:
            if column.nullable or self._feed or (self._partition and column.name in self._partition):
                continue
            place = batch.schema.get_field_index(column.name)
            if place < 0 or batch.column(place).null_count:
                row = 0 if place < 0 else pc.index(batch.column(place).is_null(), True).as_py()
                raise ConstraintViolated(column.name, self._rows_before + row + 1)

    def _by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[list[str | None], pa.RecordBatch]]:
        names = self._target.partition_columns
        if not names:
            yield [], batch
            return
        if self._partition is not None:
            yield [self._partition.get(name) or None for name in names], batch
            return
        held = [
            _plain(batch.column(name)) if name in batch.schema.names else pa.nulls(1, pa.string()) for name in names
        ]
        if all(len(values) == 1 for values in held):
            yield [partition_value(values[0].as_py()) for values in held], batch
            return
        keys = pa.table({name: _as_long(values, batch.num_rows) for name, values in zip(names, held, strict=True)})
        code = key_codes(comparable(keys))
        order = order_of(code)
        begins = np.flatnonzero(np.diff(code[order], prepend=-1))
        ordered = batch if len(begins) == 1 else batch.take(whole_numbers(order))
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            row = keys.slice(order[begin], 1).to_pylist()[0]
            yield [partition_value(row[name]) for name in names], ordered.slice(begin, end - begin)

    def _as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with physical column names, without the partition columns."""
        held = dict(zip(batch.schema.names, batch.columns, strict=True))
        names = [*(column.name for column in self._data), *([CHANGE_TYPE] if self._feed else [])]
        arrays = [
            values
            if (values := held.get(name)) is not None and values.type == field.type
            else _cast(values, field, batch.num_rows)
            for name, field in zip(names, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=self._schema.names)

    def _file(self, key: tuple[str | None, ...]) -> _File:
        if key not in self._open:
            if len(self._open) >= self._sizes.most_open:
                self._complete(max(self._open, key=lambda each: self._open[each].rows))
            physical = [self._columns[name].physical_name for name in self._target.partition_columns]
            values = dict(zip(physical, key, strict=True))
            below = new_name(values, feed=self._feed, version=self._target.version)
            path = self._folder / below
            if "/" in below:
                make_folders(path.parent, self._folder)
            self._made.append(path)
            self._open[key] = _File(path, created(path), below, values, Tally(self._indexed))
        return self._open[key]

    def _writer(self, file: _File, schema: pa.Schema) -> pq.ParquetWriter:
        plain = {
            field.name for field in self._schema
            if field.name in self._exact and not pa.types.is_nested(field.type)
            and not is_repeated([rows.column(field.name) for rows in file.buffered])
        }  # fmt: skip
        dictionaries = [path for path in self._exact if path not in plain]
        told = [path for path in self._exact if path not in file.long]
        return pq.ParquetWriter(
            file.sink, schema, compression="snappy", store_schema=False,
            use_dictionary=dictionaries, write_statistics=told, write_page_checksum=True,
            **(_SMALL_PAGES if self._has_small_pages else {}),
        )  # fmt: skip

    def _write_group(self, key: tuple[str | None, ...], file: _File) -> None:
        if file.buffered:
            long = long_columns(file.buffered) if file.buffered_bytes > LONG else frozenset()
            if file.writer is not None and not long <= file.long:
                file = self._in_next_file(key, file)
            for batch in file.buffered:
                file.tally.add(leaves_of(batch, self._leaves))
            if file.writer is None:
                file.long = long
                file.writer = self._writer(file, with_dictionaries(self._schema, file.buffered))
            file.writer.write_table(
                one_table(file.buffered, file.writer.schema), row_group_size=self._sizes.rows_a_group
            )
            file.rows += file.buffered_rows
            file.buffered, file.buffered_rows, file.buffered_bytes = [], 0, 0
        if file.rows >= self._sizes.rows_a_file or size_so_far(file.sink) >= self._sizes.bytes_a_file:
            self._complete(key)

    def _in_next_file(self, key: tuple[str | None, ...], file: _File) -> _File:
        """Completes a file without the rows of its next row group, which go into a new one."""
        rows = file.buffered, file.buffered_rows, file.buffered_bytes
        file.buffered, file.buffered_rows, file.buffered_bytes = [], 0, 0
        self._complete(key)
        new = self._file(key)
        new.buffered, new.buffered_rows, new.buffered_bytes = rows
        return new

    def _complete(self, key: tuple[str | None, ...]) -> None:
        if self._open[key].buffered:
            self._write_group(key, self._open[key])
        file = self._open.pop(key, None)
        if file is None:
            return  # the file was completed with this row group
        if file.writer is None:
            file.writer = self._writer(file, self._schema)
        file.writer.add_key_value_metadata(CALENDAR)
        file.writer.close()
        size, modified = completed(file.sink)
        action: Action = {"path": logged_path(file.below), "partitionValues": file.values, "size": size}
        if self._feed:
            action["dataChange"] = False
        else:
            action |= {"modificationTime": int(modified * 1000), "dataChange": True}
            action["stats"] = exact_json.text(by_path(file.tally.stats(), self._leaves))
        self._done.append(action)


def _within(rows: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """The rows; of long ones the first, not more than about `most` bytes, but one row at least."""
    while rows.num_rows > 1 and rows.nbytes > max(most, LONG * rows.num_rows):
        rows = rows.slice(0, rows.num_rows // 2)
    return rows


def _in_files(target: Target) -> list[TargetColumn]:
    """The columns that data files have."""
    return [column for column in target.columns if column.stored and column.name not in target.partition_columns]


def _field(column: TargetColumn) -> pa.Field:
    kind = stored_type(column.type, with_ids=column.field_id is not None)
    if kind is None:
        raise ValueError(f"column {column.name!r} has the type {column.type}, which lakemirror cannot write")
    metadata = None if column.field_id is None else {"PARQUET:field_id": str(column.field_id)}
    return pa.field(column.physical_name, kind, metadata=metadata)


def _cast(values: pa.Array | None, kind: pa.Field, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, kind.type)
    held = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return values if held == kind.type else values.cast(kind.type)


def _plain(values: pa.Array) -> pa.Array:
    """The values without dictionary encoding; a single value if all rows have the same."""
    if not pa.types.is_dictionary(values.type):
        return values
    if len(values.dictionary) == 1 and not values.null_count:
        return values.dictionary
    return values.dictionary_decode()


def _as_long(values: pa.Array, rows: int) -> pa.Array:
    return values if len(values) == rows else pa.repeat(values[0], rows)
