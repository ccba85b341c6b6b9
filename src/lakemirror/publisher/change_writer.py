"""Rows and a row marker as one Parquet file (contract section 3): the marker last, int32."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import TOKEN
from lakemirror.publisher.row_readers import converted_rows

if TYPE_CHECKING:
    from lakemirror.publisher.folders.table_folder import TableFolder

MARKER_COLUMN = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
MARKERS = (INSERT, UPDATE, DELETE, UPSERT)
GROUP_ROWS = 1 << 20
GROUP_BYTES = 128 << 20


def with_marker(reader: pa.RecordBatchReader, marker: int) -> pa.RecordBatchReader:
    """The same rows with one marker."""
    schema = reader.schema.append(pa.field(MARKER_COLUMN, pa.int32(), nullable=False))

    def convert(batch: pa.RecordBatch, _: int) -> list[pa.Array]:
        return [*batch.columns, pa.repeat(pa.scalar(marker, pa.int32()), batch.num_rows)]

    return converted_rows(reader, schema, convert)


def with_given_markers(reader: pa.RecordBatchReader, column: str, table: str) -> pa.RecordBatchReader:
    """The same rows, their marker column last and int32. `row-marker-invalid` with the row's number, from 1."""
    position = reader.schema.get_field_index(column)
    if position < 0:
        raise LakemirrorError(
            "input-invalid",
            f"{table}: the rows have no column {column}, which should hold their markers",
            hint="0 insert, 1 update, 2 delete, 4 upsert; or use insert, update, upsert and delete.",
        )
    schema = reader.schema.remove(position).append(pa.field(MARKER_COLUMN, pa.int32()))

    def convert(batch: pa.RecordBatch, before: int) -> list[pa.Array]:
        arrays = list(batch.columns)
        markers = _markers(arrays.pop(position), before, table)
        return [*arrays, markers]

    return converted_rows(reader, schema, convert)


def write_parquet(
    reader: pa.RecordBatchReader, path: Path, compression: str, footer: Mapping[str, str] | None = None
) -> int:
    """Writes a new file and flushes it to the disk; returns the number of rows. `footer` is kept as file metadata."""
    rows = 0
    with path.open("xb") as file:
        try:
            with pq.ParquetWriter(file, reader.schema, compression=compression) as writer:
                for group in _groups(reader):
                    rows += group.num_rows
                    writer.write_table(group, row_group_size=GROUP_ROWS)
                if footer:
                    writer.add_key_value_metadata(dict(footer))
        except pa.ArrowNotImplementedError as error:
            raise LakemirrorError("type-unsupported", f"{path.parent.name}: {error}") from error
        file.flush()
        os.fsync(file.fileno())
    return rows


def token_of(folder: TableFolder, name: str) -> str:
    """The name under which a change file was written, as its footer tells; empty where it does not."""
    with suppress(OSError, pa.ArrowException), folder.open(name) as file:
        kept = pq.read_metadata(file).metadata or {}
        return bytes(kept.get(TOKEN.encode(), b"")).decode()
    return ""


def _groups(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Batches gathered into tables of a row group's size: sources often give a thousand rows at a time."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        gathered.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(gathered, reader.schema)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered, reader.schema)


def _markers(array: pa.Array, before: int, table: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        markers = array.cast(pa.int32())
    except pa.ArrowException as error:
        raise LakemirrorError(
            "row-marker-invalid", f"{table}: row markers of type {array.type} are no integers: {error}"
        ) from error
    known = pc.is_in(markers, value_set=pa.array([*MARKERS, None], pa.int32()))
    first = known.index(False).as_py()
    if first >= 0:
        raise LakemirrorError(
            "row-marker-invalid",
            f"{table}: row {before + first + 1} has the marker {markers[first].as_py()}",
            table=table,
            row=before + first + 1,
            hint="Row markers are 0 insert, 1 update, 2 delete, 4 upsert.",
        )
    return markers
