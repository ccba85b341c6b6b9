"""What the change files of a table hold together: each key's last row, read from the files that are still there.

    files 1 to the newest ─▶ rows with their markers, on the disk ─▶ in parts by their keys ─▶ the last row of each key

It is what the mirrored table holds once every file is applied, known without the mirrored table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.keys.key_values import key_bucket
from lakemirror.landing_zone.row_markers import UNCHANGED
from lakemirror.publisher.change_writer import DELETE, MARKER_COLUMN, UPSERT
from lakemirror.publisher.disk_rows import DiskRows
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.row_keys import last_places
from lakemirror.publisher.sequence import Sequence as Numbers

MOST_FILES = 100_000
ROWS_AT_ONCE = 500_000
BYTES_AT_ONCE = 256 << 20
_PARTIAL = -1  # in place of the marker of a row that leaves columns unchanged


@dataclass(frozen=True)
class PublishedRows:
    """`rows`: the last row of each key. `unknown`: keys whose row is not known, because the last change was partial."""

    rows: pa.Table
    unknown: pa.Table


def published_rows(folder: TableFolder, keys: Sequence[str], schema: pa.Schema) -> PublishedRows | None:
    """The rows in the columns and types of `schema`, which has the keys; used inside `folder.room`.

    None where they cannot be known: a file is gone, was quarantined or cannot be applied, there are more than
    `MOST_FILES`, or values do not fit these types.
    """
    numbers = Numbers(folder)
    present = numbers.present()
    if present != list(range(1, numbers.newest() + 1)) or len(present) > MOST_FILES:
        return None
    wide = schema.append(pa.field(MARKER_COLUMN, pa.int32()))
    with suppress(FileNotFoundError, pa.ArrowException, KeyError), ExitStack() as stack:  # ArrowException: other types
        every = stack.enter_context(DiskRows(wide, folder.staged("arrow")))
        for number in present:
            for batch in _of_file(numbers, number, wide, keys):
                every.add(batch)
        changes = every.table()
        count = parts_of(changes)
        parts = key_bucket(changes.select(list(keys)), count)
        rows = stack.enter_context(DiskRows(schema, folder.staged("arrow")))
        unknown = []
        for part in range(count):
            of_part = changes.filter(pa.array(parts == part))
            last = of_part.take(last_places(of_part, keys))
            unknown.append(last.filter(pc.equal(last[MARKER_COLUMN], _PARTIAL)).select(list(keys)))
            is_whole = pc.is_in(last[MARKER_COLUMN], value_set=pa.array([DELETE, _PARTIAL], pa.int32()))
            rows.add(last.filter(pc.invert(is_whole)).select(schema.names))
        return PublishedRows(rows.table(), pa.concat_tables(unknown))
    return None


def parts_of(*tables: pa.Table) -> int:
    """In how many parts, by their keys, tables are taken so that a part of each fits into memory."""
    return 1 + max(int(max(each.num_rows // ROWS_AT_ONCE, each.nbytes // BYTES_AT_ONCE)) for each in tables)


def _of_file(numbers: Numbers, number: int, wide: pa.Schema, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of one file in these columns: NULL in those that it does not have."""
    name = numbers.find(number)
    if name is None or name.startswith("_Quarantined"):
        raise FileNotFoundError(number)
    of_contract = pa.array([0, 1, DELETE, UPSERT], pa.int32())
    with numbers.folder.open(name) as file:
        for batch in pq.ParquetFile(file).iter_batches():
            have = {each.lower(): values for each, values in zip(batch.schema.names, batch.columns, strict=True)}
            if any(key.lower() not in have for key in keys):
                raise KeyError(number)
            marker = have.get(MARKER_COLUMN.lower(), pa.repeat(pa.scalar(UPSERT, pa.int32()), len(batch)))
            if not pc.all(pc.is_in(marker.cast(pa.int32()).drop_null(), of_contract)).as_py():
                raise KeyError(number)  # the mirrored table stops at this file
            if (unchanged := have.get(UNCHANGED.lower())) is not None:
                is_partial = pc.fill_null(pc.greater(pc.list_value_length(unchanged), 0), False)
                marker = pc.if_else(is_partial, pa.scalar(_PARTIAL, pa.int32()), marker.cast(pa.int32()))
            have[MARKER_COLUMN.lower()] = marker
            columns = [_column(have.get(each.name.lower()), each.type, len(batch)) for each in wide]
            yield pa.RecordBatch.from_arrays(columns, schema=wide)


def _column(values: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind) if values is None else values.cast(kind)


__all__ = ["MOST_FILES", "PublishedRows", "parts_of", "published_rows"]
