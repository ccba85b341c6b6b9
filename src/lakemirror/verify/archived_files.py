"""Reads the change files of a table again: those in `_ProcessedFiles`, and the last ones in the folder.

listing ─▶ applied files in order ─▶ rows in the table's types, with marker and place
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.landing_zone.change_file import AppliedFiles, TableFiles, partition_values
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.landing_zone.metadata import SEQUENTIAL, TableMetadata
from lakemirror.landing_zone.row_markers import INSERT, NEVER_COLUMNS, ROW_MARKER, UNCHANGED, UPSERT, column_names
from lakemirror.landing_zone.table_options import SCD2
from lakemirror.landing_zone.zone import PROCESSED, TableFolder
from lakemirror.landing_zone.zoneless import Zones
from lakemirror.storage import Entry, Storage
from lakemirror.verify.columns import TableColumn, in_type, plain, zone_in
from lakemirror.verify.row_batches import all_batches, parquet_file

_SOURCE_TIME = "__sourceTimestamp__"
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class AppliedFile:
    """An applied change file: its current place, and the partition folders that it was published in.

    `below`: the path below the table folder under which it was published.
    """

    entry: Entry
    partition: str
    number: int
    below: str = ""


@dataclass(frozen=True)
class Changes:
    """Rows of one change file, in the table's columns. `places`: their order among all changes. `times`: the source's,
    NULL where the file says none. `left_out`: by column, in lower case, which rows leave it out (contract section 3a).
    """

    rows: pa.RecordBatch
    markers: np.ndarray
    places: np.ndarray
    times: pa.Array
    left_out: Mapping[str, np.ndarray] = field(default_factory=dict)


class NotComparable(Exception):
    """The archived files do not show what the rows of the table must be."""


class FilesGone(NotComparable):
    """Applied files are no longer there; the message says which."""


def applied_in_order(
    folder: TableFolder, metadata: TableMetadata, applied: AppliedFiles, count: int, quarantined: Sequence[int]
) -> list[AppliedFile]:
    """All applied files, in the order of their application if it is known. `count`: how many there must be.

    FilesGone where one is missing. Under last-update detection the order is not known (`is_any_order`).
    """
    home, aside = folder.name.folder, f"{folder.name.folder}/{PROCESSED}/"
    moved = {f"{home}/{entry.path[len(aside) :]}": entry for entry in folder.processed}
    known = {entry.path: entry for entry in folder.files} | moved  # the one that was moved first was applied
    listing = TableFolder(folder.name, [Entry(path, each.size, each.modified) for path, each in known.items()])
    found = []
    for file in TableFiles(listing, metadata).changes:
        if applied.holds(file):
            found.append((file.partition, file.number, file.entry.path))
    if metadata.file_detection_strategy == SEQUENTIAL:
        _check_sequences(found, applied, quarantined)
    elif len(found) < count:
        raise FilesGone(f"{count - len(found)} of {count} applied files are gone (retention, or deleted)")
    found.sort()
    return [AppliedFile(known[path], partition, number, path[len(home) + 1 :]) for partition, number, path in found]


def since(files: Sequence[AppliedFile], begin: int | None, metadata: TableMetadata, mode: str) -> list[AppliedFile]:
    """The files from number `begin` on, of which a history table is made. NotComparable where they do not show its
    rows."""
    if begin is None:
        raise NotComparable("its log does not show that it has all files of this table folder and no others")
    if begin > 1 and mode == SCD2:
        raise NotComparable(f"it began at file {begin}, with versions of the rows that were there before")
    if begin > 1 and (metadata.partitioned or is_any_order(metadata)):
        raise NotComparable(f"it began at file {begin} in the order of arrival, which the archive does not show")
    return [file for file in files if begin == 1 or file.number >= begin]


def is_any_order(metadata: TableMetadata) -> bool:
    """True if the archive does not show in which order files were applied, because a move sets their time."""
    return metadata.file_detection_strategy != SEQUENTIAL


def read_changes(
    storage: Storage, index: int, file: AppliedFile, metadata: TableMetadata, columns: Sequence[TableColumn]
) -> Iterator[Changes]:
    """The rows of one file in batches. `index`: the file's position among the applied files.

    FileNotFoundError where it was moved since it was listed. Other errors are pyarrow's and the landing zone's.
    """
    with storage.open(file.entry.path) as source:
        if metadata.file_format == "Parquet":
            with parquet_file(pa.PythonFile(source, mode="r")) as opened:
                yield from _of_file(opened, file, index, metadata, columns)
            return
        from lakemirror.landing_zone.delimited import convert

        with tempfile.TemporaryFile() as converted:
            zones = Zones(zone_in(columns))
            convert(source, converted, file=file.entry.path, metadata=metadata, undeclared="string", zones=zones)
            converted.seek(0)
            with parquet_file(converted) as opened:
                yield from _of_file(opened, file, index, metadata, columns)


def not_compared(
    storage: Storage, files: Sequence[AppliedFile], metadata: TableMetadata, columns: Sequence[TableColumn]
) -> dict[str, str]:
    """The columns that cannot be compared, because of the form that a file has them in: the reason by name."""
    found = {column.name: "a nested type" for column in columns if column.type is None}
    if metadata.file_format != "Parquet":
        return found
    names = {column.name.lower(): column.name for column in columns}
    for file in files:
        with storage.open(file.entry.path) as source:
            footer = pq.read_metadata(pa.PythonFile(source, mode="r"))
        for column in file_columns(footer):
            name = names.get(column.name.lower())
            if name and pa.types.is_nested(column.arrow_type):
                found[name] = "nested values, kept as JSON text"
    return found


def _check_sequences(found: Sequence[tuple[str, int, str]], applied: AppliedFiles, quarantined: Sequence[int]) -> None:
    ends: Mapping[str, int] = applied.sequences if applied.sequences is not None else {"": applied.count}
    held = {(partition, number) for partition, number, _ in found}
    for partition, last in ends.items():
        skipped = quarantined if not partition else ()
        missing = [n for n in range(1, last + 1) if (partition, n) not in held and n not in skipped]
        if missing:
            where = f" of {partition}" if partition else ""
            raise FilesGone(
                f"applied files {missing[0]} to {missing[-1]}{where} are gone ({len(missing)}): retention, or deleted"
            )


def _of_file(
    opened: pq.ParquetFile, file: AppliedFile, index: int, metadata: TableMetadata, columns: Sequence[TableColumn]
) -> Iterator[Changes]:
    constants = (
        {name.lower(): value for name, value in partition_values(file.partition)} if metadata.partitioned else {}
    )
    default = UPSERT if metadata.upsert_by_default else INSERT
    instants = {column.name for column in file_columns(opened.metadata) if column.encoding == "int96"}
    first = 0
    for batch in all_batches(opened):
        left_out = _left_out(batch)
        names = batch.schema.names
        held = {name.lower(): position for position, name in enumerate(names) if name not in NEVER_COLUMNS}
        arrays = []
        for column in columns:
            position = held.get(column.name.lower())
            if position is not None and not pa.types.is_nested(batch.schema.field(position).type):
                found = batch.column(position)
                if column.name.lower() in left_out:
                    found = found.take(pa.array(np.arange(len(found)), mask=left_out[column.name.lower()]))
                values = _value(found, column, is_instant=names[position] in instants)
            elif column.name.lower() in constants:
                value = pa.scalar(constants[column.name.lower()], pa.string()).cast(column.type)
                values = pa.repeat(value, batch.num_rows)
            else:
                values = pa.nulls(batch.num_rows, column.type)
            if column.partition and pa.types.is_string(values.type):  # Delta has no empty text there
                values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
            arrays.append(values)
        rows = pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
        places = np.uint64(index << 40) + np.arange(first, first + batch.num_rows, dtype=np.uint64)
        first += batch.num_rows
        yield Changes(rows, _markers(batch, default), places, _times(batch), left_out)


def _left_out(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    """By column, in lower case, the rows that leave it out."""
    if UNCHANGED not in batch.schema.names:
        return {}
    rows: dict[str, np.ndarray] = {}
    for row, names in enumerate(plain(batch.column(batch.schema.names.index(UNCHANGED))).to_pylist()):
        for name in (column_names(names) or ()) if isinstance(names, str) else names or ():
            rows.setdefault(name.lower(), np.zeros(batch.num_rows, bool))[row] = True
    return rows


def has_partial_rows(storage: Storage, files: Sequence[AppliedFile], metadata: TableMetadata) -> bool:
    """True if a file may have partial rows (contract section 3a)."""
    for file in files:
        with storage.open(file.entry.path) as source:
            if metadata.file_format == "Parquet":
                names = pq.read_schema(pa.PythonFile(source, mode="r")).names
            else:
                from lakemirror.landing_zone.delimited import header_names

                names = header_names(source, file=file.entry.path, metadata=metadata)
        if UNCHANGED in names:
            return True
    return False


def has_all_times(storage: Storage, files: Sequence[AppliedFile], metadata: TableMetadata) -> bool:
    """True if each row of each file has the source's time, as the footers count."""
    for file in files:
        if metadata.file_format != "Parquet":
            return False
        with storage.open(file.entry.path) as source:
            footer = pq.read_metadata(pa.PythonFile(source, mode="r"))
        for group in map(footer.row_group, range(footer.num_row_groups)):
            chunks = [group.column(index) for index in range(group.num_columns)]
            found = [each.statistics for each in chunks if each.path_in_schema == _SOURCE_TIME]
            if not found or found[0] is None or not found[0].has_null_count or found[0].null_count:
                return False
    return True


def _times(batch: pa.RecordBatch) -> pa.Array:
    """The source's time of each row, in microseconds."""
    if _SOURCE_TIME not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.int64())
    return in_type(batch.column(batch.schema.names.index(_SOURCE_TIME)), _INSTANT).cast(pa.int64())


def _markers(batch: pa.RecordBatch, default: int) -> np.ndarray:
    if ROW_MARKER not in batch.schema.names:
        return np.full(batch.num_rows, default, np.uint64)
    column = plain(batch.column(batch.schema.names.index(ROW_MARKER)))
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        column = column.cast(pa.string())
        column = pc.replace_substring_regex(pc.utf8_trim(column, " \t\n\v\f\r"), r"^\+", "")
    return np.asarray(pc.fill_null(column.cast(pa.int64()), default)).astype(np.uint64)


def _value(values: pa.Array, column: TableColumn, *, is_instant: bool) -> pa.Array:
    """A column of a change file as the table holds it (contract section 6). `is_instant`: INT96 timestamps."""
    values = plain(values)
    if pa.types.is_duration(values.type):
        return values.cast(pa.int64()).cast(column.type)
    return in_type(values, column.type, "UTC" if is_instant else column.zone)
